"""tokpress export and tokpress import, as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from formats.stores import furnish, template

import tokpress

from .conftest import Cli


class TestExport:
    def test_says_what_was_written_and_how_to_open_it(self, cli: Cli, store: Path, tmp_path: Path) -> None:
        result = cli("export", store, "--to", "datatrove", "--out", tmp_path / "out")
        assert result.code == 0
        assert "is datatrove (train): 5 documents," in result.out
        assert " linked, " in result.out
        assert f'Open it: DatatroveFolderDataset("{tmp_path}/out/train"' in result.out
        assert result.err == ""

    @pytest.mark.parametrize(("dtype", "width"), [("uint16", 2), ("uint32", 4)])
    def test_says_how_wide_the_ids_are(self, cli: Cli, tmp_path: Path, dtype: str, width: int) -> None:
        store = furnish(template(tmp_path / "made"), {"train": [[3]]}, dtype=dtype)
        result = cli("export", store, "--to", "datatrove", "--out", tmp_path / "out")
        assert result.out.endswith(f"seq_len=2048, token_size={width})\n")

    def test_as_json_it_is_the_metadata(self, cli: Cli, store: Path, tmp_path: Path) -> None:
        result = cli("export", store, "--to", "parquet", "--seq-len", 16, "--out", tmp_path / "out", "--json")
        assert json.loads(result.out) == json.loads((tmp_path / "out" / "metadata.json").read_text())

    def test_arrays_for_supervised_data(self, cli: Cli, store: Path, tmp_path: Path) -> None:
        assert cli("export", store, "--to", "npy", "--max-length", 32, "--out", tmp_path / "out").code == 0
        arrays = {name: np.load(tmp_path / "out" / "train" / f"{name}.npy") for name in ("input", "target", "mask")}
        assert {array.shape for array in arrays.values()} == {(5, 32)}
        assert np.array_equal(arrays["target"][:, :-1], arrays["input"][:, 1:])
        lengths = np.minimum(tokpress.open(store).doc_lengths(), 32)
        assert arrays["mask"].sum(axis=1).tolist() == np.maximum(lengths - 1, 0).tolist()

    def test_packing_options_are_passed_on(self, cli: Cli, store: Path, tmp_path: Path) -> None:
        typed = ("--to", "npy", "--max-length", 32, "--padding-side", "left", "--dtype", "int64", "--split", "train")
        assert cli("export", store, *typed, "--out", tmp_path / "out").code == 0
        data = np.load(tmp_path / "out" / "train" / "input.npy")
        assert data.dtype == np.int64
        assert data[0, -1] == tokpress.open(store).doc(0)[-1]

    def test_of_several_splits_those_that_are_named(self, cli: Cli, tmp_path: Path) -> None:
        splits = {name: [[3], [2]] for name in ("train", "val", "test")}
        store = furnish(template(tmp_path / "made"), splits)
        typed = ("export", store, "--to", "npy", "--max-length", 4, "--json")
        chosen = json.loads(cli(*typed, "--split", "val", "--split", "test", "--out", tmp_path / "two").out)
        assert sorted(chosen["splits"]) == ["test", "val"]
        assert sorted(json.loads(cli(*typed, "--out", tmp_path / "all").out)["splits"]) == ["test", "train", "val"]

    def test_what_a_format_cannot_hold_is_wrong_usage(self, cli: Cli, store: Path, tmp_path: Path) -> None:
        result = cli("export", store, "--to", "npy", "--out", tmp_path / "out")
        assert result.code == 2
        assert "Say which: --seq-len 2048" in result.err

    def test_no_store_is_an_error(self, cli: Cli, tmp_path: Path) -> None:
        result = cli("export", tmp_path / "none", "--to", "npy", "--seq-len", 8, "--out", tmp_path / "out")
        assert result.code == 1
        assert "no store at" in result.err


class TestImport:
    def test_adopts_and_says_what(self, cli: Cli, store: Path, tmp_path: Path) -> None:
        cli("export", store, "--to", "dolma", "--out", tmp_path / "out")
        typed = ("--from", "dolma", "--tokenizer", "bytes", "--out", tmp_path / "again")
        result = cli("import", tmp_path / "out" / "train", *typed)
        assert result.code == 0
        assert "again is a store of " in result.out
        assert "5 documents" in result.out
        again = json.loads(cli("import", tmp_path / "out" / "train", *typed, "--json").out)
        assert again["docs"] == 5
        assert again["dtype"] == "uint16"
        checked = cli("verify", tmp_path / "again", "--deep")
        assert checked.code == 0
        assert "nothing was encoded again: its sources are tokens, not text" in checked.out

    def test_links_unless_copies_are_asked_for(self, cli: Cli, store: Path, tmp_path: Path) -> None:
        cli("export", store, "--to", "datatrove", "--out", tmp_path / "out", "--copy")
        typed = ("import", tmp_path / "out" / "train", "--from", "datatrove", "--tokenizer", "bytes")
        for options, names in (((), 2), (("--copy",), 1)):
            out = tmp_path / f"names-{names}"
            assert cli(*typed, "--out", out, *options).code == 0
            assert (out / "shards" / "train-00000-000.bin").stat().st_nlink == names

    def test_a_wrong_tokenizer_is_an_error(self, cli: Cli, tmp_path: Path) -> None:
        np.array([9000, 1], "<u2").tofile(tmp_path / "train.bin")
        typed = ("--from", "nanogpt", "--tokenizer", "bytes", "--out", tmp_path / "store")
        result = cli("import", tmp_path / "train.bin", *typed)
        assert result.code == 1
        assert "holds id 9000 at token 0, but the tokenizer has 257 tokens" in result.err
