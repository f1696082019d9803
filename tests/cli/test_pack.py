"""`tokpress pack`: what a packing wastes, as a table, as JSON, as a picture; and the plan of a best-fit one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tokpress
from tokpress.packing import open_packing

from .conftest import TEXTS, Cli

LENGTHS = [len(text.encode()) + 1 for text in TEXTS]
TOKENS = sum(LENGTHS)
PLAN = "packs/train-bestfit-64"


class TestTable:
    def test_of_best_fit(self, cli: Cli, store: Path) -> None:
        result = cli("pack", store, "--seq-len", 64, "--method", "bestfit")
        waste = tokpress.pack(store, seq_len=64, method="bestfit")
        assert (result.code, result.err) == (0, "")
        for said in (
            r"bestfit, split train",
            rf"sequences +{waste.sequences} +of 64 tokens",
            rf"tokens in them +{TOKENS:,} +{waste.efficiency:.2%} of all positions",
            rf"padding +{waste.padding} +{waste.padding_share:.2%} of all positions",
            r"tokens left out +0 +0\.00% of all tokens",
            r"documents cut +1 +20\.00% of all documents",
            r"though they fit +0 +0\.00% of all documents",
        ):
            assert re.search(said, result.out), said

    def test_of_concat_shows_what_is_left_out_and_cut(self, cli: Cli, store: Path) -> None:
        result = cli("pack", store, "--seq-len", 10)
        assert re.search(rf"sequences +{TOKENS // 10} ", result.out)
        assert re.search(rf"tokens left out +{TOKENS % 10} ", result.out)
        assert "repeated" not in result.out

    def test_of_an_overlap_shows_what_is_repeated(self, cli: Cli, store: Path) -> None:
        result = cli("pack", store, "--seq-len", 11, "--overlap", 1)
        assert re.search(rf"of these repeated +{(TOKENS - 1) // 10 - 1} ", result.out)

    @pytest.mark.parametrize("method", ["concat", "bestfit", "pad"])
    def test_of_an_empty_store(self, cli: Cli, tmp_path: Path, method: str) -> None:
        (tmp_path / "a.jsonl").write_bytes(b"")
        tokpress.build(tmp_path / "a.jsonl", tokenizer="bytes", out=tmp_path / "empty", limit=0)
        result = cli("pack", tmp_path / "empty", "--seq-len", 10, "--method", method)
        assert (result.code, result.err) == (0, "")
        assert re.search(r"sequences +0 +of 10 tokens", result.out)


class TestPlan:
    def test_is_written_where_one_is_needed(self, cli: Cli, store: Path) -> None:
        for method in ("concat", "pad"):
            assert cli("pack", store, "--seq-len", 64, "--method", method).code == 0
        assert not (store / "packs").exists()
        assert cli("pack", store, "--seq-len", 64, "--method", "bestfit").code == 0
        assert (store / PLAN / "index.json").is_file()
        assert len(open_packing(tokpress.open(store), seq_len=64, method="bestfit")) > 0

    def test_the_command_that_an_error_names_makes_it(self, cli: Cli, store: Path) -> None:
        with pytest.raises(tokpress.TokpressError) as refused:
            open_packing(tokpress.open(store), seq_len=64, method="bestfit", long_docs="truncate")
        command = str(refused.value).partition("Make it: tokpress ")[2].split()
        assert cli(*command).code == 0
        assert len(open_packing(tokpress.open(store), seq_len=64, method="bestfit", long_docs="truncate")) > 0

    def test_a_damaged_one_is_made_again(self, cli: Cli, store: Path) -> None:
        first = cli("pack", store, "--seq-len", 64, "--method", "bestfit")
        data = (store / PLAN / "order.bin").read_bytes()
        (store / PLAN / "order.bin").write_bytes(data[:-1] + b"\xff")
        assert cli("pack", store, "--seq-len", 64, "--method", "bestfit") == first
        assert (store / PLAN / "order.bin").read_bytes() == data


class TestJson:
    @pytest.mark.parametrize(
        ("typed", "passed"),
        [
            ([], {}),
            (["--overlap", 2, "--keep-last"], {"overlap": 2, "keep_last": True}),
            (["--method", "bestfit", "--long-docs", "truncate"], {"method": "bestfit", "long_docs": "truncate"}),
            (
                ["--method", "pad", "--padding-side", "left", "--truncation-side", "left"],
                {"method": "pad", "padding_side": "left", "truncation_side": "left"},
            ),
        ],
    )
    def test_is_the_report_that_python_gives(
        self, cli: Cli, store: Path, typed: list[object], passed: dict[str, object]
    ) -> None:
        result = cli("pack", store, "--seq-len", 20, "--split", "train", "--json", *typed)
        assert (result.code, result.err) == (0, "")
        assert json.loads(result.out) == tokpress.pack(store, seq_len=20, **passed).facts()  # type: ignore[arg-type]

    def test_is_all_there_is_on_standard_output(self, store: Path) -> None:
        command = [sys.executable, "-m", "tokpress", "pack", str(store), "--seq-len", "9", "--method", "bestfit"]
        out = subprocess.check_output([*command, "--json"])
        assert json.loads(out)["positions"] == json.loads(out)["sequences"] * 9


class TestPlot:
    @pytest.mark.parametrize("method", ["concat", "bestfit", "pad"])
    def test_is_a_png(self, cli: Cli, store: Path, tmp_path: Path, method: str) -> None:
        result = cli("pack", store, "--seq-len", 64, "--method", method, "--plot", tmp_path / "w.png")
        assert result.code == 0
        assert result.err == f"Plot written to {tmp_path / 'w.png'}\n"
        assert (tmp_path / "w.png").read_bytes().startswith(b"\x89PNG")

    def test_without_matplotlib_says_so_before_the_work(
        self, cli: Cli, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
        result = cli("pack", store, "--seq-len", 64, "--method", "bestfit", "--plot", tmp_path / "w.png")
        assert result.code == 2
        assert "pip install 'tokpress[plot]'" in result.err
        assert not (store / "packs").exists()


class TestRefused:
    @pytest.mark.parametrize(
        ("typed", "said"),
        [
            (["--seq-len", 0], "error: a sequence cannot have 0 tokens. Choose a --seq-len of 1 to "),
            (
                ["--seq-len", 10, "--overlap", 10],
                "error: --overlap 10: sequences of 10 tokens can share 0 to 9 of them",
            ),
            (["--seq-len", 10, "--long-docs", "split"], "error: --long-docs is for --method bestfit; --method concat"),
            (["--seq-len", 10, "--method", "pad", "--keep-last"], "error: --keep-last is for --method concat"),
            ([], "error: Missing option '--seq-len'"),
        ],
    )
    def test_options_that_make_no_sense_are_wrong_usage(
        self, cli: Cli, store: Path, typed: list[object], said: str
    ) -> None:
        result = cli("pack", store, *typed)
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith(said)

    def test_a_split_that_there_is_not(self, cli: Cli, store: Path) -> None:
        result = cli("pack", store, "--seq-len", 10, "--split", "val")
        assert result.code == 1
        assert "no split 'val'" in result.err

    def test_a_store_that_there_is_not(self, cli: Cli, tmp_path: Path) -> None:
        result = cli("pack", tmp_path / "nowhere", "--seq-len", 10)
        assert result.code == 1
        assert "tokpress build --help" in result.err
