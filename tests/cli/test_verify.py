"""`tokpress verify`: 0 and one line if a store is sound, 1 and the names of the damaged files if not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import tokpress

from .conftest import TEXTS, Cli


class TestSound:
    def test_is_said_in_one_line(self, cli: Cli, store: Path) -> None:
        result = cli("verify", store)
        assert result.code == 0
        assert result.err == ""
        assert result.out.startswith(f"{store} is sound: ")
        assert "5 documents" in result.out
        assert result.out.endswith("read = written + rejected in every unit\n")
        assert result.out.count("\n") == 1

    def test_with_json(self, cli: Cli, store: Path) -> None:
        result = cli("verify", store, "--json")
        report = json.loads(result.out)
        assert (result.code, result.err) == (0, "")
        assert report["problems"] == []
        assert report["docs"] == 5
        assert report["files"] == len([path for path in store.rglob("*") if path.is_file()])

    def test_the_exit_code_reaches_the_shell(self, store: Path) -> None:
        command = [sys.executable, "-m", "tokpress", "verify", str(store)]
        assert subprocess.run(command, capture_output=True, check=False).returncode == 0
        (store / "plan.json").unlink()
        assert subprocess.run(command, capture_output=True, check=False).returncode == 1


class TestDamaged:
    @pytest.mark.parametrize(
        "name", ["manifest.json", "plan.json", "shards/train-00000-000.bin", "rejects/00000-002.jsonl"]
    )
    def test_names_the_file_and_exits_with_1(self, cli: Cli, store: Path, name: str) -> None:
        data = (store / name).read_bytes()
        (store / name).write_bytes(data[:-2] + bytes([data[-2] ^ 1]) + data[-1:])
        result = cli("verify", store)
        assert (result.code, result.out) == (1, "")
        assert result.err.startswith(f"damaged  {name}: ")
        assert result.err.endswith(
            f"\n1 problem. Build the store again: tokpress build ... --out {store} --overwrite\n"
        )

    def test_names_each_file(self, cli: Cli, store: Path) -> None:
        for name in ("plan.json", "shards/train-00000-001.ends"):
            (store / name).unlink()
        err = cli("verify", store).err
        assert "damaged  plan.json: is missing\n" in err
        assert "damaged  shards/train-00000-001.ends: is missing\n" in err
        assert "\n2 problems. " in err

    def test_with_json(self, cli: Cli, store: Path) -> None:
        (store / "plan.json").unlink()
        result = cli("verify", store, "--json")
        assert result.code == 1
        assert json.loads(result.out)["problems"] == [{"file": "plan.json", "message": "is missing"}]

    def test_an_unfinished_store_is_an_error(self, cli: Cli, store: Path) -> None:
        (store / "manifest.json").unlink()
        result = cli("verify", store)
        assert result.code == 1
        assert result.err.startswith(f"error: the store at {store} is not finished")

    def test_hostile_names_cannot_command_the_terminal(self, cli: Cli, store: Path) -> None:
        (store / "shards" / "\x1b[31m[red]").write_bytes(b"")
        result = cli("verify", store)
        assert result.code == 1
        assert "damaged  shards/\\x1b[31m[red]: " in result.err


class TestDeep:
    @pytest.fixture
    def built(self, source: Path, tmp_path: Path) -> Path:
        return tokpress.build(source, tokenizer="bytes", out=tmp_path / "built").path

    def test_says_how_much_was_compared(self, cli: Cli, built: Path) -> None:
        assert cli("verify", built, "--deep").out.endswith("; 5 documents encoded again and equal\n")
        assert cli("verify", built, "--deep", "--deep-docs", 1).out.endswith("; 1 document encoded again and equal\n")

    def test_with_json(self, cli: Cli, built: Path) -> None:
        assert json.loads(cli("verify", built, "--deep", "--json").out)["reencoded_docs"] == 5

    def test_looks_into_every_split(self, cli: Cli, tmp_path: Path) -> None:
        source = tmp_path / "numbers.jsonl"
        source.write_text("".join(json.dumps({"text": f"number {i:02d}"}) + "\n" for i in range(40)))
        store = tokpress.build(source, tokenizer="bytes", out=tmp_path / "split", val_fraction=0.5)
        assert 0 < store.num_docs < 40
        assert json.loads(cli("verify", store.path, "--deep", "--json").out)["reencoded_docs"] == 40
        text = store.split("val").text(0)
        source.write_text(source.read_text().replace(text, text.upper()))
        result = cli("verify", store.path, "--deep")
        assert result.code == 1
        assert result.err.startswith("damaged  shards/val-00000-000.bin: document 0 is not what the reference makes of")

    def test_finds_a_document_that_was_changed_in_the_source(self, cli: Cli, built: Path, source: Path) -> None:
        source.write_text(source.read_text().replace("Hello", "HELLO"))
        assert cli("verify", built).code == 0
        result = cli("verify", built, "--deep")
        assert result.code == 1
        assert (
            "damaged  shards/train-00000-000.bin: document 0 is not what the reference makes of texts.jsonl"
            in result.err
        )
        assert result.err.endswith(
            f"\n1 problem. Build the store again: tokpress build ... --out {built} --overwrite\n"
        )

    def test_finds_a_source_that_is_gone(self, cli: Cli, built: Path, source: Path) -> None:
        source.unlink()
        result = cli("verify", built, "--deep")
        assert result.code == 1
        assert result.err.startswith(f"damaged  {source}: its documents cannot be compared")

    def test_is_not_tried_on_a_damaged_store(self, cli: Cli, built: Path) -> None:
        (built / "plan.json").unlink()
        result = cli("verify", built, "--deep")
        assert result.code == 1
        assert "1 problem." in result.err

    def test_cannot_read_standard_input_again_and_says_so(self, cli: Cli, source: Path, tmp_path: Path) -> None:
        out = tmp_path / "piped"
        command = [sys.executable, "-m", "tokpress", "build", "-", "--tokenizer", "bytes", "--out", str(out)]
        subprocess.run(command, input=source.read_bytes(), check=True, capture_output=True)
        result = cli("verify", out, "--deep")
        assert result.code == 0
        assert result.out.endswith("nothing was encoded again: standard input cannot be read twice\n")
        assert len(tokpress.open(out)) == len(TEXTS)


class TestPlans:
    @pytest.fixture
    def plan(self, store: Path) -> Path:
        tokpress.pack(store, seq_len=8, method="bestfit")
        return store / "packs" / "train-bestfit-8"

    def test_are_looked_at(self, cli: Cli, store: Path, plan: Path) -> None:
        assert cli("verify", store).code == 0

    @pytest.mark.parametrize("name", ["starts.bin", "ends.bin", "order.bin", "sequences.bin", "index.json"])
    def test_a_changed_byte_is_found_and_the_plan_s_own_command_said(
        self, cli: Cli, store: Path, plan: Path, name: str
    ) -> None:
        data = bytearray((plan / name).read_bytes())
        data[len(data) // 2] ^= 1
        (plan / name).write_bytes(data)
        result = cli("verify", store)
        assert (result.code, result.out) == (1, "")
        assert result.err.startswith("damaged  packs/train-bestfit-8/index.json: ")
        assert "--overwrite" not in result.err
        assert cli("pack", store, "--seq-len", 8, "--method", "bestfit").code == 0
        assert cli("verify", store).code == 0

    def test_one_under_another_name(self, cli: Cli, store: Path, plan: Path) -> None:
        plan.rename(plan.with_name("mine"))
        assert "not the plan that belongs there" in cli("verify", store).err
