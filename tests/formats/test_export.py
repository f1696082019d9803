"""tokpress.export: links, receipts, one step at the end; what it refuses, and what it says."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from conftest import file_checksum

import tokpress
from tokpress.errors import StoreError, UsageError
from tokpress.formats import FORMATS, raw
from tokpress.formats.base import open_format
from tokpress.formats.target import Target
from tokpress.records import FileEntry, Split
from tokpress.storage.local import LocalStorage
from tokpress.store.manifest import write_manifest

from . import readers
from .conftest import LENGTHS, MakeStore
from .stores import EOS, documents, flat, masks_of

OPTIONS: dict[str, dict[str, Any]] = {
    "npy": {"seq_len": 8},
    "pt": {"seq_len": 8},
    "bridge": {"seq_len": 8, "method": "pad"},
}
LINKED = ("megatron", "datatrove", "dolma")


def contents(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def disk_use(*directories: Path) -> int:
    """Bytes on the disk: a file with several names counts once."""
    files = [path.stat() for top in directories for path in top.rglob("*") if path.is_file()]
    return sum({info.st_ino: info.st_size for info in files}.values())


class TestLinks:
    @pytest.mark.parametrize("to", LINKED)
    def test_add_no_token_bytes_to_the_disk(self, make_store: MakeStore, tmp_path: Path, to: str) -> None:
        store = make_store({"train": [[50_000, 20_000], [30_000]], "val": [[10_000]]}, masks=to != "megatron")
        before = disk_use(store.path)
        made = tokpress.export(store, to=to, out=tmp_path / "out")
        grown = disk_use(store.path, tmp_path / "out") - before
        assert made.linked_bytes == 110_000 * (2 if to == "megatron" else 3)
        assert grown < 5000  # indices and metadata.json
        linked = [path for path in (tmp_path / "out").rglob("*") if path.is_file() and path.stat().st_nlink > 1]
        assert sum(path.stat().st_size for path in linked) == made.linked_bytes
        stored = {path.stat().st_ino for path in (store.path / "shards").iterdir()}
        assert {path.stat().st_ino for path in linked} <= stored

    def test_of_one_shard_is_one_pair(self, make_store: MakeStore, tmp_path: Path) -> None:
        store = make_store({"train": [[5, 6]]})
        made = tokpress.export(store, to="megatron", out=tmp_path / "out")
        assert set(made.files) == {"train.bin", "train.idx", "train.txt"}

    def test_a_single_shard_is_linked_for_nanogpt(self, make_store: MakeStore, tmp_path: Path) -> None:
        store = make_store({"train": [[5, 6]], "val": [[3]]})
        tokpress.export(store, to="nanogpt", out=tmp_path / "out")
        assert all(path.stat().st_nlink == 2 for path in (tmp_path / "out").glob("*.bin"))

    @pytest.mark.parametrize("to", LINKED)
    def test_are_copies_if_asked_for(self, make_store: MakeStore, tmp_path: Path, to: str) -> None:
        store = make_store(LENGTHS)
        made = tokpress.export(store, to=to, out=tmp_path / "out", copy=True)
        assert made.linked_bytes == 0
        assert all(path.stat().st_nlink == 1 for path in (tmp_path / "out").rglob("*") if path.is_file())
        linked = tokpress.export(store, to=to, out=tmp_path / "linked")
        assert {name: size for name, size in made.files.items() if name != "train.txt" and name != "val.txt"} == {
            name: size for name, size in linked.files.items() if name != "train.txt" and name != "val.txt"
        }

    @pytest.fixture
    def other_file_system(self, tmp_path: Path) -> Iterator[Path]:
        shared = Path("/dev/shm")
        if not shared.is_dir() or shared.stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("there is no second file system here")
        directory = Path(tempfile.mkdtemp(dir=shared))
        yield directory
        shutil.rmtree(directory)

    def test_across_file_systems_are_copies(self, make_store: MakeStore, other_file_system: Path) -> None:
        store = make_store(LENGTHS)
        made = tokpress.export(store, to="datatrove", out=other_file_system / "out")
        assert made.linked_bytes == 0
        assert readers.datatrove(other_file_system / "out" / "train")[0] == documents(store)

    def test_where_there_are_none_are_copies(
        self, make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(source: Path, name: str, *, dst_dir_fd: int) -> None:
            raise OSError(errno.EPERM, "no links here")

        store = make_store(LENGTHS)
        monkeypatch.setattr(os, "link", refuse)
        made = tokpress.export(store, to="datatrove", out=tmp_path / "out")
        assert made.linked_bytes == 0
        assert readers.datatrove(tmp_path / "out" / "train")[0] == documents(store)

    def test_a_damaged_shard_is_not_copied(self, make_store: MakeStore, tmp_path: Path) -> None:
        store = make_store({"train": [[50, 20]]})
        path = store.path / "shards" / "train-00000-000.bin"
        path.write_bytes(bytes(path.stat().st_size))
        with pytest.raises(
            StoreError, match=r"train-00000-000\.bin is damaged\. Look at the whole store: tokpress verify"
        ):
            tokpress.export(store, to="datatrove", out=tmp_path / "out", copy=True)
        path.write_bytes(b"short")
        with pytest.raises(StoreError, match=r"train-00000-000\.bin"):
            tokpress.export(store, to="megatron", out=tmp_path / "linked")
        assert not (tmp_path / "linked").exists()


class TestSmallShards:
    """A split that takes one record in a thousand has as many shards as there are units, with hardly anything in them."""

    VAL = [[5], [], [3, 3], [9], [2]]  # noqa: RUF012

    @pytest.fixture(autouse=True)
    def as_it_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(raw, "LEAST_TOKENS", 12)

    @pytest.mark.parametrize("to", LINKED)
    def test_make_one_file(self, make_store: MakeStore, tmp_path: Path, to: str) -> None:
        masks = to != "megatron"
        store = make_store({"train": [[100], [50, 40], [20], [3], [30]], "val": self.VAL}, masks=masks)
        tokpress.export(store, to=to, out=tmp_path / "out")
        suffix = {"megatron": "bin", "datatrove": "ds", "dolma": "npy"}[to]
        for split, files in (("train", 4), ("val", 1)):
            pattern = f"{split}*.{suffix}" if to == "megatron" else f"{split}/[!l]*.{suffix}"
            assert len(list((tmp_path / "out").glob(pattern))) == files
            part = store.split(split)
            if to == "megatron":
                assert readers.megatron_split(tmp_path / "out", split) == documents(part)
            else:
                read = readers.datatrove if to == "datatrove" else lambda folder: readers.dolma(folder, 2)
                assert read(tmp_path / "out" / split) == (documents(part), masks_of(part))

    def test_the_last_is_joined_to_the_one_before(self, make_store: MakeStore, tmp_path: Path) -> None:
        store = make_store({"train": [[100], [50], [3]]})
        made = tokpress.export(store, to="megatron", out=tmp_path / "out")
        assert made.files["train-00001.bin"] == 2 * 53
        assert made.linked_bytes == 200

    def test_megatron_is_told_the_weight_of_each(self, make_store: MakeStore, tmp_path: Path) -> None:
        """Prefixes alone are gone through once: a run that asks for more samples would get none."""
        store = make_store({"train": [[100], [50, 40]]})
        tokpress.export(store, to="megatron", out=tmp_path / "out")
        words = (tmp_path / "out" / "train.txt").read_text().split()
        assert words == ["100", str(tmp_path / "out" / "train-00000"), "90", str(tmp_path / "out" / "train-00001")]

    @pytest.mark.parametrize("to", ["megatron", "nanogpt", "llmc"])
    @pytest.mark.parametrize("val", [[[]], [[0, 0], [0]]])
    def test_a_split_without_a_token_has_no_file_that_cannot_be_mapped(
        self, make_store: MakeStore, tmp_path: Path, to: str, val: list[list[int]]
    ) -> None:
        store = make_store({"train": [[5]], "val": val})
        made = tokpress.export(store, to=to, out=tmp_path / "out", split=["train", "val"])
        assert all(size > 0 for size in made.files.values())
        if to != "llmc":  # there an empty document is a separator
            assert not list((tmp_path / "out").glob("val*"))

    @pytest.mark.parametrize(
        ("options", "train", "val"),
        [({}, [34], [22]), ({"file_tokens": 12}, [10, 11, 12, 1], [11, 11]), ({"min_files": 2}, [17, 17], [22])],
    )
    def test_llmc_has_files_of_a_size_of_its_own(
        self, make_store: MakeStore, tmp_path: Path, options: dict[str, Any], train: list[int], val: list[int]
    ) -> None:
        store = make_store({"train": [[5, 5], [5, 2], [4], [12, 1]], "val": self.VAL})
        tokpress.export(store, to="llmc", out=tmp_path / "out", **options)
        for split, sizes in (("train", train), ("val", val)):
            files = sorted((tmp_path / "out").glob(f"{split}_*.bin"))
            assert [(path.stat().st_size - 1024) // 2 for path in files] == sizes
            assert readers.llmc(tmp_path / "out", split) == flat(
                [EOS, *doc[:-1]] for doc in documents(store.split(split))
            )

    def test_llmc_says_when_documents_are_too_few_for_its_files(self, make_store: MakeStore, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"--min-files 3: .* has 2 documents in 'train', which fill 2"):
            tokpress.export(make_store({"train": [[5, 6]]}), to="llmc", out=tmp_path / "out", min_files=3)


class TestTokenizerName:
    """nanotron loads the tokenizer that datatrove's metadata names."""

    def name(self, out: Path) -> str:
        return (out / "train" / "00000_tokens.ds.metadata").read_text().split("|")[0]

    def test_is_what_can_be_loaded(self, bpe: Path, tmp_path: Path) -> None:
        from transformers import AutoTokenizer

        (tmp_path / "a.jsonl").write_text('{"text": "some words"}\n')
        (tmp_path / "mine").mkdir()
        shutil.copy(bpe, tmp_path / "mine" / "tokenizer.json")
        config = {"tokenizer_class": "PreTrainedTokenizerFast"}
        (tmp_path / "mine" / "tokenizer_config.json").write_text(json.dumps(config))
        given = tmp_path / "mine" / "tokenizer.json"
        store = tokpress.build(tmp_path / "a.jsonl", tokenizer=given, eos_token="<|endoftext|>", out=tmp_path / "store")
        tokpress.export(store, to="datatrove", out=tmp_path / "given")
        assert self.name(tmp_path / "given") == str(tmp_path / "mine")
        shutil.rmtree(tmp_path / "mine")
        tokpress.export(store, to="datatrove", out=tmp_path / "gone")
        for name in (self.name(tmp_path / "gone"),):
            loaded = AutoTokenizer.from_pretrained(name)
            assert loaded("some words")["input_ids"] == store.doc(0).tolist()[:-1]

    def test_is_a_hub_id_as_it_was_given(self, make_store: MakeStore, tmp_path: Path) -> None:
        store = make_store({"train": [[5]]})
        info = msgspec.structs.replace(store.manifest.tokenizer, kind="huggingface")
        run = msgspec.structs.replace(store.manifest.run, tokenizer="Qwen/Qwen3-0.6B")
        write_manifest(store.storage, msgspec.structs.replace(store.manifest, tokenizer=info, run=run))
        tokpress.export(store.path, to="datatrove", out=tmp_path / "out")
        assert self.name(tmp_path / "out") == "Qwen/Qwen3-0.6B"
        tokpress.export(store.path, to="datatrove", out=tmp_path / "asked", tokenizer_name="mine/own")
        assert self.name(tmp_path / "asked") == "mine/own"


class TestSplits:
    def test_all_are_exported_unless_one_is_named(self, make_store: MakeStore, tmp_path: Path) -> None:
        store = make_store(LENGTHS)
        assert set(tokpress.export(store, to="datatrove", out=tmp_path / "all").splits) == {"train", "val"}
        alone = tokpress.export(store, to="datatrove", out=tmp_path / "one", split="val")
        assert set(alone.splits) == {"val"}
        assert alone.splits["val"].docs == 2
        assert sorted(path.name for path in (tmp_path / "one").iterdir()) == ["metadata.json", "val"]

    def test_a_hostile_name_leads_nowhere(self, make_store: MakeStore, tmp_path: Path) -> None:
        store = make_store(LENGTHS)
        splits = store.manifest.splits | {"../../evil": Split(docs=0, tokens=0, shards=[])}
        write_manifest(store.storage, msgspec.structs.replace(store.manifest, splits=splits))
        with pytest.raises(StoreError, match=r"cannot name a directory\. Do not trust it"):
            tokpress.export(store.path, to="datatrove", out=tmp_path / "a" / "b" / "out")
        assert not list(tmp_path.rglob("evil"))

    def test_one_that_is_not_there_is_an_error(self, make_store: MakeStore, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match=r"has no split 'test'. Choose one that it has: train, val"):
            tokpress.export(make_store(LENGTHS), to="npy", seq_len=4, out=tmp_path / "out", split="test")


class TestMetadata:
    @pytest.mark.parametrize("to", FORMATS)
    def test_says_what_it_is_and_how_it_was_made(self, make_store: MakeStore, tmp_path: Path, to: str) -> None:
        store = make_store(LENGTHS)
        made = tokpress.export(store, to=to, out=tmp_path / "out", **OPTIONS.get(to, {}))
        stored = json.loads((tmp_path / "out" / "metadata.json").read_text())
        assert stored["store"] == store.fingerprint
        assert stored["tokenizer"]["fingerprint"] == store.manifest.tokenizer.fingerprint
        assert stored["splits"]["train"]["docs"] == store.num_docs
        assert stored["splits"]["train"]["tokens"] == store.num_tokens
        assert stored["options"]["to"] == to
        assert stored["made_with"] == f"tokpress {tokpress.__version__}"
        files = contents(tmp_path / "out")
        del files["metadata.json"]
        assert stored["files"] == {name: len(data) for name, data in files.items()}
        assert made.linked_bytes + made.written_bytes == sum(stored["files"].values())
        if to not in ("megatron", "datatrove", "dolma", "nanogpt", "llmc", "litdata"):
            assert stored["splits"]["train"]["rows"] > 0

    def test_says_what_rows_are_padded_with(self, make_store: MakeStore, tmp_path: Path) -> None:
        for eos, pad_id in ((True, EOS), (False, 0)):
            store = make_store({"train": [[3]]}, eos=eos)
            made = tokpress.export(store, to="npy", out=tmp_path / str(eos), max_length=5)
            stored = json.loads((tmp_path / str(eos) / "metadata.json").read_text())
            assert made.pad_id == stored["pad_id"] == pad_id
            assert readers.npy(tmp_path / str(eos) / "train")["input"][0][3:] == [pad_id] * 2
        assert "pad_id" not in msgspec.to_builtins(tokpress.export(store, to="parquet", out=tmp_path / "none"))


class TestKeptFields:
    @pytest.fixture
    def store(self, tmp_path: Path) -> tokpress.Store:
        lines = (json.dumps({"text": f"document {i}" * (i % 4), "id": f"no {i}", "n": i or None}) for i in range(40))
        (tmp_path / "a.jsonl").write_text("".join(line + "\n" for line in lines))
        options: Any = {"tokenizer": "bytes", "keep": ["id", "n"], "unit_size": 400, "val_fraction": 0.3}
        return tokpress.build(tmp_path / "a.jsonl", out=tmp_path / "store", **options)

    @pytest.mark.parametrize("to", ["parquet", "arrow"])
    def test_reach_the_rows_of_their_documents(self, store: tokpress.Store, tmp_path: Path, to: str) -> None:
        tokpress.export(store, to=to, out=tmp_path / "out", keep=True)
        for split in ("train", "val"):
            part = store.split(split)
            rows = getattr(readers, to)(tmp_path / "out" / split)
            assert [{"id": row["id"], "n": row["n"]} for row in rows] == [part.kept(i) for i in range(part.num_docs)]
            assert [row["input_ids"] for row in rows] == documents(part)

    def test_that_cannot_be_written_are_refused(
        self, store: tokpress.Store, make_store: MakeStore, tmp_path: Path
    ) -> None:
        for kept, options, said in (
            (store, {"to": "parquet", "seq_len": 8}, "--keep is for --to parquet and arrow, a document a row"),
            (store, {"to": "dolma"}, "--keep is for"),
            (make_store({"train": [[3]]}), {"to": "arrow"}, "keeps no fields. Build it with --keep"),
        ):
            with pytest.raises(UsageError, match=said):
                tokpress.export(kept, out=tmp_path / "out", keep=True, **options)


class TestRefusals:
    def test_of_a_link_leave_what_it_leads_to(self, make_store: MakeStore, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "out").symlink_to("elsewhere")
        with pytest.raises(UsageError, match="out is not a directory"):
            tokpress.export(make_store(LENGTHS), to="megatron", out=tmp_path / "out")
        assert (tmp_path / "out").is_symlink()
        assert not list((tmp_path / "elsewhere").iterdir())

    @pytest.mark.parametrize("to", ["megatron", "nanogpt", "llmc", "litdata"])
    def test_of_masks_say_which_format_has_them(self, make_store: MakeStore, tmp_path: Path, to: str) -> None:
        said = rf"{to} has no place for a loss mask, and split 'train'.*--to datatrove, dolma, npy"
        with pytest.raises(UsageError, match=said):
            tokpress.export(make_store(LENGTHS, masks=True), to=to, out=tmp_path / "out")
        assert not list(tmp_path.iterdir())

    def test_of_masks_of_any_split(self, make_store: MakeStore, tmp_path: Path) -> None:
        store = make_store({"train": [[5]], "val": [[5], [6]]}, masks="some")  # of shards with an odd number
        with pytest.raises(UsageError, match="and split 'val' of"):
            tokpress.export(store, to="megatron", out=tmp_path / "out")
        tokpress.export(store, to="megatron", out=tmp_path / "out", split="train")

    def test_of_32_bits_say_which_format_has_them(self, make_store: MakeStore, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"nanogpt holds 16-bit ids.*--to megatron, datatrove, dolma, llmc"):
            tokpress.export(make_store(LENGTHS, dtype="uint32"), to="nanogpt", out=tmp_path / "out")

    @pytest.mark.parametrize(
        ("to", "options", "said"),
        [
            ("npy", {}, "--to npy writes sequences of one length. Say which: --seq-len 2048"),
            ("pt", {}, "--to pt writes sequences of one length"),
            ("megatron", {"seq_len": 8}, "--to megatron has no sequences: its reader cuts them.*Leave --seq-len out"),
            ("parquet", {"method": "pad"}, "--method and its options are for sequences of one length"),
            ("parquet", {"overlap": 1}, "--method and its options are for sequences of one length"),
            ("litdata", {"seq_len": 8, "method": "pad"}, "has no place for padding: it takes --method concat alone"),
            ("npy", {"seq_len": 8, "max_length": 8}, "--max-length N is --seq-len N with --method pad"),
            ("npy", {"seq_len": 8, "overlap": 1}, "--overlap is for --method concat"),
            ("pt", {"seq_len": 8, "dtype": "uint16"}, "--dtype uint16: --to pt takes int32, int64"),
            ("dolma", {"dtype": "int32"}, "--to dolma has the store's own; leave it out"),
            ("dolma", {"merge": True}, "--merge is for --to megatron"),
            ("dolma", {"min_files": 2}, "--file-tokens and --min-files are for --to llmc"),
            ("llmc", {"file_tokens": 0}, "--file-tokens 0: give a number from 1 on"),
            ("dolma", {"tokenizer_name": "gpt2"}, "--tokenizer-name is for --to datatrove"),
            ("mosaic", {}, "there is no format 'mosaic'. Choose one of megatron, datatrove"),
            ("parquet", {"seq_len": 8, "method": "bestfit"}, "Make it: tokpress pack"),
            ("npy", {"seq_len": 0}, "a sequence cannot have 0 tokens"),
        ],
    )
    def test_of_options(
        self, make_store: MakeStore, tmp_path: Path, to: str, options: dict[str, Any], said: str
    ) -> None:
        with pytest.raises(tokpress.TokpressError, match=said):
            tokpress.export(make_store({"train": [[3, 4]]}), to=to, out=tmp_path / "out", **options)
        assert not list(tmp_path.iterdir())

    def test_of_a_store_without_a_separator(self, make_store: MakeStore, tmp_path: Path) -> None:
        store = make_store(LENGTHS, eos=False)
        info = msgspec.structs.replace(store.manifest.tokenizer, eos_token=None)
        write_manifest(store.storage, msgspec.structs.replace(store.manifest, tokenizer=info))
        with pytest.raises(UsageError, match="has no EOS and its tokenizer names none"):
            tokpress.export(store.path, to="llmc", out=tmp_path / "out")

    def test_of_a_document_that_megatron_cannot_count(
        self, make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from tokpress.formats import megatron

        monkeypatch.setattr(megatron, "_LONGEST", 50)
        with pytest.raises(StoreError, match="has a document of 51 tokens; Megatron's index counts up to 50"):
            tokpress.export(make_store({"train": [[3, 51]]}), to="megatron", out=tmp_path / "out")
        assert not (tmp_path / "out").exists()
        longest = make_store({"train": [[3, 50]]})
        tokpress.export(longest, to="megatron", out=tmp_path / "out", overwrite=True)
        assert readers.megatron_split(tmp_path / "out", "train") == documents(longest)

    def test_of_a_document_that_a_shard_of_mds_cannot_hold(
        self, make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from tokpress.formats import mds

        store = make_store({"train": [[3, 51]]})
        size = tokpress.export(store, to="mds", out=tmp_path / "out").files["train/shard.00000.mds"]
        monkeypatch.setattr(mds, "_LARGEST", size)
        tokpress.export(store, to="mds", out=tmp_path / "fits")
        monkeypatch.setattr(mds, "_LARGEST", size - 1)
        with pytest.raises(UsageError, match=r"MDS shards have up to 4 GiB, .* Choose --seq-len"):
            tokpress.export(store, to="mds", out=tmp_path / "too-large")
        assert not (tmp_path / "too-large").exists()

    def test_of_a_place_that_is_taken(self, make_store: MakeStore, tmp_path: Path) -> None:
        store = make_store(LENGTHS)
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "thesis.tex").write_text("")
        for overwrite in (False, True):
            with pytest.raises(UsageError, match="is not empty and not an export"):
                tokpress.export(store, to="datatrove", out=tmp_path / "mine", overwrite=overwrite)
        (tmp_path / "file").write_text("")
        with pytest.raises(UsageError, match="is not a directory"):
            tokpress.export(store, to="datatrove", out=tmp_path / "file")
        with pytest.raises(UsageError, match="is inside the store itself"):
            tokpress.export(store, to="datatrove", out=store.path / "out")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "mine"]

    def test_an_empty_directory_will_do(self, make_store: MakeStore, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        tokpress.export(make_store(LENGTHS), to="datatrove", out=tmp_path / "out")
        assert (tmp_path / "out" / "metadata.json").is_file()

    def test_every_format_keeps_the_contract(self) -> None:
        for name in FORMATS:
            form = open_format(name)
            assert form.methods
            assert "{out}" in form.opened_with
            assert "{split}" in form.opened_with or name == "arrow"
            assert form.seq_len in ("no", "may", "must")


class TestAgain:
    def test_finished_is_left_alone(self, make_store: MakeStore, tmp_path: Path) -> None:
        store = make_store(LENGTHS)
        first = tokpress.export(store, to="parquet", out=tmp_path / "out")
        when = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
        assert tokpress.export(store, to="parquet", out=tmp_path / "out") == first
        assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == when
        assert [path.name for path in tmp_path.iterdir()] == ["out"]

    def test_of_something_else_is_refused_with_the_difference(self, make_store: MakeStore, tmp_path: Path) -> None:
        store, other = make_store(LENGTHS), make_store(LENGTHS, seed=1)
        tokpress.export(store, to="npy", seq_len=8, out=tmp_path / "out")
        with pytest.raises(
            UsageError, match=r"a finished export of something else:\n  options.seq_len: was 8, is 9\nChoose"
        ):
            tokpress.export(store, to="npy", seq_len=9, out=tmp_path / "out")
        with pytest.raises(UsageError, match=rf"store: was {store.fingerprint}, is {other.fingerprint}"):
            tokpress.export(other, to="npy", seq_len=8, out=tmp_path / "out")

    def test_overwrite_replaces_it(self, make_store: MakeStore, tmp_path: Path) -> None:
        store = make_store(LENGTHS)
        tokpress.export(store, to="datatrove", out=tmp_path / "out")
        tokpress.export(store, to="npy", seq_len=9, out=tmp_path / "out", overwrite=True)
        assert not list((tmp_path / "out").rglob("*.ds"))
        assert (tmp_path / "out" / "train" / "input.npy").is_file()
        assert [path.name for path in tmp_path.iterdir()] == ["out"]

    def test_what_a_run_left_when_it_had_replaced_the_old_is_removed(
        self, make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = make_store(LENGTHS)
        tokpress.export(store, to="datatrove", out=tmp_path / "out")
        with monkeypatch.context() as patch:
            patch.setattr(Target, "tidy", lambda self, plan: None)
            tokpress.export(store, to="dolma", out=tmp_path / "out", overwrite=True)
        assert (tmp_path / "out.partial" / "old" / "metadata.json").is_file()
        tokpress.export(store, to="dolma", out=tmp_path / "out")
        assert [path.name for path in tmp_path.iterdir()] == ["out"]

    def test_stopped_while_it_tidies_up_it_leaves_nothing_behind_the_next_time(
        self, make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        delete_prefix = LocalStorage.delete_prefix

        def stop(storage: LocalStorage, prefix: str) -> None:
            if (tmp_path / "out").exists():
                raise StoppedError
            delete_prefix(storage, prefix)

        store = make_store(LENGTHS)
        with monkeypatch.context() as patch:
            patch.setattr(LocalStorage, "delete_prefix", stop)
            with pytest.raises(StoppedError):
                tokpress.export(store, to="dolma", out=tmp_path / "out")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.partial"]
        tokpress.export(store, to="dolma", out=tmp_path / "out")
        assert [path.name for path in tmp_path.iterdir()] == ["out"]

    def test_other_masks_are_something_else(self, make_store: MakeStore, tmp_path: Path) -> None:
        store = make_store({"train": [[5, 6]]}, masks=True)
        tokpress.export(store, to="npy", seq_len=4, out=tmp_path / "out")
        path = store.path / "shards" / "train-00000-000.mask"
        path.write_bytes(bytes(b ^ 1 for b in path.read_bytes()))
        receipt = store.manifest.splits["train"].shards[0]
        entry = FileEntry(path.stat().st_size, file_checksum(path))
        changed = msgspec.structs.replace(receipt, files=receipt.files | {"mask": entry})
        splits = {"train": Split(docs=2, tokens=11, shards=[changed])}
        write_manifest(store.storage, msgspec.structs.replace(store.manifest, splits=splits))
        with pytest.raises(UsageError, match=r"something else:\n  store: was"):
            tokpress.export(store.path, to="npy", seq_len=4, out=tmp_path / "out")

    def test_what_is_not_ours_is_not_removed(self, make_store: MakeStore, tmp_path: Path) -> None:
        (tmp_path / "out.partial" / "files").mkdir(parents=True)
        (tmp_path / "out.partial" / "files" / "mine").write_text("")
        with pytest.raises(UsageError, match=r"out\.partial is in the way, and not of an export"):
            tokpress.export(make_store(LENGTHS), to="dolma", out=tmp_path / "out", overwrite=True)
        assert (tmp_path / "out.partial" / "files" / "mine").is_file()

    def test_two_at_once_are_refused(self, make_store: MakeStore, tmp_path: Path) -> None:
        from tokpress.storage.lock import WriterLock

        with WriterLock(tmp_path / "out.partial"), pytest.raises(StoreError, match="is being written by another run"):
            tokpress.export(make_store(LENGTHS), to="datatrove", out=tmp_path / "out")


class StoppedError(Exception):
    pass


def is_stopped(monkeypatch: pytest.MonkeyPatch, store: tokpress.Store, after: int, **options: Any) -> bool:
    """An export by one thread that fails when it has written so many parts; whether it came to that."""
    finish = Target.finish
    done: list[str] = []

    def count(self: Target, part: str, written: Any) -> None:
        if len(done) == after:
            raise StoppedError
        finish(self, part, written)
        done.append(part)

    with monkeypatch.context() as patch:
        patch.setattr(Target, "finish", count)
        try:
            tokpress.export(store, workers=1, **options)
        except StoppedError:
            return True
    return False


class TestStopped:
    @pytest.mark.parametrize("to", FORMATS)
    def test_anywhere_leaves_no_export_and_goes_on(
        self, make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
    ) -> None:
        store = make_store({"train": [[9, 30], [8, 2, 60], [5]], "val": [[5, 5], [3]]})
        options = OPTIONS.get(to, {})
        tokpress.export(store, to=to, out=tmp_path / "whole", **options)
        expected = contents(tmp_path / "whole")
        out, stops = tmp_path / "out", 0
        while is_stopped(monkeypatch, store, min(stops, 1), to=to, out=out, **options):  # a part further each time
            assert not out.exists()
            stops += 1
        assert stops >= 2
        found = contents(out)
        for split in ("train", "val"):  # they name the place
            for files in (expected, found):
                files.pop(f"{split}.txt", None)
        del expected["metadata.json"], found["metadata.json"]
        assert found == expected
        assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "whole"]

    def test_parts_that_have_a_receipt_are_not_written_again(
        self, make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = make_store({"train": [[9, 30], [8, 2, 60], [5]]})
        assert is_stopped(monkeypatch, store, 2, to="parquet", out=tmp_path / "out")
        files = tmp_path / "out.partial" / "files" / "train"
        when = {path.name: path.stat().st_mtime_ns for path in files.iterdir()}
        (files / "00001.parquet").unlink()  # a receipt without its file does not count
        tokpress.export(store, to="parquet", out=tmp_path / "out")
        after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out" / "train").iterdir()}
        assert after["00000.parquet"] == when["00000.parquet"]
        assert after["00001.parquet"] != when["00001.parquet"]

    def test_a_part_that_lost_a_byte_is_written_again(
        self, make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = make_store({"train": [[9, 30], [8, 2, 60], [5]]})
        assert is_stopped(monkeypatch, store, 2, to="parquet", out=tmp_path / "out")
        path = tmp_path / "out.partial" / "files" / "train" / "00001.parquet"
        path.write_bytes(path.read_bytes()[:-1])
        tokpress.export(store, to="parquet", out=tmp_path / "out")
        assert [row["input_ids"] for row in readers.parquet(tmp_path / "out" / "train")] == documents(store)

    def test_a_file_that_several_parts_share_and_that_is_gone_is_written_whole(
        self, make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = make_store({"train": [[9, 30], [8, 2, 60], [5]]})
        assert is_stopped(monkeypatch, store, 2, to="nanogpt", out=tmp_path / "out")
        (tmp_path / "out.partial" / "files" / "train.bin").unlink()
        tokpress.export(store, to="nanogpt", out=tmp_path / "out", workers=1)
        assert readers.nanogpt(tmp_path / "out" / "train.bin") == flat(documents(store))

    def test_of_something_else_is_refused(
        self, make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = make_store(LENGTHS)
        assert is_stopped(monkeypatch, store, 1, to="parquet", out=tmp_path / "out")
        with pytest.raises(UsageError, match="an unfinished export of something else"):
            tokpress.export(store, to="datatrove", out=tmp_path / "out")
        tokpress.export(store, to="datatrove", out=tmp_path / "out", overwrite=True)
        assert readers.datatrove(tmp_path / "out" / "train")[0] == documents(store)

    def test_receipts_of_what_is_overwritten_do_not_count(
        self, make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Files of the same names and sizes, reserved by the first part: that they are there says nothing of the others."""
        lengths = {"train": [[9, 30], [8, 2, 60], [5]]}
        old, new = make_store(lengths), make_store(lengths, seed=1)
        options: dict[str, Any] = {"to": "nanogpt", "out": tmp_path / "out"}
        assert is_stopped(monkeypatch, old, 2, **options)
        assert is_stopped(monkeypatch, new, 1, overwrite=True, **options)
        path, first = tmp_path / "out.partial" / "files" / "train.bin", 2 * 39
        path.write_bytes(path.read_bytes()[:first] + bytes(path.stat().st_size - first))  # the rest was not synced
        tokpress.export(new, **options)
        assert readers.nanogpt(tmp_path / "out" / "train.bin") == flat(documents(new))


def test_progress_is_told_to_the_end(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store({"train": [[5000, 600], [700]]})
    heard: list[tuple[int, int]] = []
    tokpress.export(
        store, to="npy", seq_len=8, out=tmp_path / "out", progress=lambda done, total: heard.append((done, total))
    )
    assert sum(done for done, _ in heard) == heard[0][1] > 0


def test_many_threads_write_the_same_bytes(
    make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokpress.formats import rows

    monkeypatch.setattr(rows.Sequences.ranges, "__defaults__", (500,))
    store = make_store({"train": [np.random.default_rng(0).integers(0, 90, 200).tolist()]}, masks=True)
    for workers in (1, 7):
        tokpress.export(store, to="npy", seq_len=8, out=tmp_path / str(workers), workers=workers)
    one, many = contents(tmp_path / "1"), contents(tmp_path / "7")
    assert one == many
