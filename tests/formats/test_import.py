"""tokpress.import_tokens: other trainers' files become stores that load, pack, verify and export like any other."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tokpress
from formats import readers
from formats.conftest import LENGTHS
from formats.stores import EOS, Lengths, documents, flat, furnish, masks_of, shards
from tokpress.errors import IdRangeError, InputError, StoreError, TokenizerError, UsageError
from tokpress.formats import IMPORTABLE, raw
from tokpress.run.deep import reencode_sample
from tokpress.storage.local import LocalStorage

SENTENCEPIECE = Path(__file__).parents[1] / "golden" / "tokenizers" / "sp-bpe.model"  # <s> is 1, </s> is 2
anything = settings(deadline=None, max_examples=15, suppress_health_check=list(HealthCheck))


def adopt(path: Any, name: str, out: Path, **options: Any) -> tokpress.Store:
    return tokpress.import_tokens(path, format=name, tokenizer=options.pop("tokenizer", "bytes"), out=out, **options)


def token_files(out: Path, name: str) -> Any:
    """What a user would name of an export's split `train`."""
    match name:
        case "megatron":
            return (out / "train.txt").read_text().split()[1::2]
        case "nanogpt":
            return out / "train.bin"
        case "llmc":
            return sorted(out.glob("train_*.bin"))
    return out / "train"


class TestRoundTrip:
    @anything
    @given(
        docs=shards, dtype=st.sampled_from(["uint16", "uint32"]), masks=st.booleans(), name=st.sampled_from(IMPORTABLE)
    )
    def test_export_then_import_gives_the_documents(
        self, empty_store: Path, tmp_path_factory: pytest.TempPathFactory, docs: Any, dtype: str, masks: bool, name: str
    ) -> None:
        masks = masks and name in ("datatrove", "dolma")
        dtype = "uint16" if name == "nanogpt" else dtype
        directory = tmp_path_factory.mktemp("adopt")
        lengths: Lengths = {"train": [[3], *docs]}  # at least one file
        path = furnish(Path(shutil.copytree(empty_store, directory / "s")), lengths, dtype=dtype, masks=masks)
        tokpress.export(path, to=name, out=directory / "out")
        options = {"dtype": dtype} if name == "dolma" else {}
        again = adopt(token_files(directory / "out", name), name, directory / "again", **options)
        report = again.verify()
        assert report.ok, report.problems
        expected = documents(tokpress.open(path))
        if name == "nanogpt":  # nothing says that a document was empty
            expected = [doc for doc in expected if doc]
        if name == "llmc":  # every document has its separator there
            expected = [doc or [EOS] for doc in expected]
        assert documents(again) == expected
        assert again.manifest.dtype == dtype
        assert again.manifest.eos_id == EOS
        if masks:
            assert masks_of(again) == masks_of(tokpress.open(path))
        shutil.rmtree(directory)

    @pytest.mark.parametrize("name", IMPORTABLE)
    def test_and_exported_again_it_gives_the_same_files(self, make_store: Any, tmp_path: Path, name: str) -> None:
        store = make_store({"train": [[30, 3, 7], [12, 1]]})
        tokpress.export(store, to=name, out=tmp_path / "a")
        again = adopt(token_files(tmp_path / "a", name), name, tmp_path / "store")
        tokpress.export(again, to=name, out=tmp_path / "b")
        files = [path.name for path in (tmp_path / "a").rglob("*.bin")] or ["00000_tokens.ds", "part-0-00000.npy"]
        for file in files:
            for path in (tmp_path / "a").rglob(file):
                other = tmp_path / "b" / path.relative_to(tmp_path / "a")
                assert other.read_bytes() == path.read_bytes()


class TestSplits:
    @pytest.mark.parametrize("name", IMPORTABLE)
    def test_files_of_val_are_a_split(self, make_store: Any, tmp_path: Path, name: str) -> None:
        store = make_store({"train": [[5, 9], [4]], "val": [[7, 2]]})
        tokpress.export(store, to=name, out=tmp_path / "out")
        train = token_files(tmp_path / "out", name)
        val = {
            "megatron": tmp_path / "out" / "val",
            "nanogpt": tmp_path / "out" / "val.bin",
            "llmc": tmp_path / "out" / "val_000000.bin",
        }.get(name, tmp_path / "out" / "val")
        again = adopt(train, name, tmp_path / "again", val=val, **({"dtype": "uint16"} if name == "dolma" else {}))
        report = again.verify()
        assert report.ok, report.problems
        for split in ("train", "val"):
            assert documents(again.split(split)) == documents(store.split(split))
        assert (
            again.split("val")
            .where(1)[0]
            .endswith("_tokens.ds" if name == "datatrove" else (".npy" if name == "dolma" else ".bin"))
        )
        assert (
            adopt(train, name, tmp_path / "again", val=val, **({"dtype": "uint16"} if name == "dolma" else {})).num_docs
            == 3
        )


class TestStore:
    @pytest.fixture
    def adopted(self, make_store: Any, tmp_path: Path) -> tokpress.Store:
        tokpress.export(make_store({"train": [[30, 0, 7], [12, 100]]}), to="datatrove", out=tmp_path / "out")
        return adopt(tmp_path / "out" / "train", "datatrove", tmp_path / "store")

    def test_is_sound_and_says_where_documents_come_from(self, adopted: tokpress.Store, tmp_path: Path) -> None:
        assert adopted.verify().ok
        assert adopted.where(2) == (str(tmp_path / "out" / "train" / "00000_tokens.ds"), 2)
        assert adopted.where(3) == (str(tmp_path / "out" / "train" / "00001_tokens.ds"), 0)
        assert adopted.plan.options["import"] == "datatrove"

    def test_has_the_files_of_a_directory_by_name(self, make_store: Any, tmp_path: Path) -> None:
        tokpress.export(make_store({"train": [[3]] * 12}), to="datatrove", out=tmp_path / "out")
        for path in sorted((tmp_path / "out" / "train").iterdir(), reverse=True):  # however the disk lists them
            path.rename(path.with_name("x"))
            path.with_name("x").rename(path)
        store = adopt(tmp_path / "out" / "train", "datatrove", tmp_path / "store")
        names = [Path(source.path).name for source in store.plan.inputs]
        assert names == [f"{number:05d}_tokens.ds" for number in range(12)]

    def test_loads_and_packs(self, adopted: tokpress.Store) -> None:
        tokpress.pack(adopted.path, seq_len=16, method="bestfit")
        for method in ("concat", "bestfit", "pad"):
            data = tokpress.PretokenizedDataset(adopted.path, seq_len=16, method=method, output="numpy")
            batches = list(tokpress.Loader(data, batch_size=2, seed=0, drop_last=False))
            assert sum(len(batch["input_ids"]) for batch in batches) == len(data)

    def test_cannot_be_encoded_again_and_says_so(self, adopted: tokpress.Store) -> None:
        found = reencode_sample(adopted, 10)
        assert (found.docs, found.why_not, found.problems) == (0, "its sources are tokens, not text", [])

    def test_changed_sources_are_found(self, adopted: tokpress.Store, tmp_path: Path) -> None:
        path = tmp_path / "out" / "train" / "00000_tokens.ds"
        data = bytearray(path.read_bytes())
        data[0] ^= 1
        with path.open("r+b") as file:  # in place: the store has the same bytes
            file.write(data)
        assert [problem.file for problem in adopted.verify().problems] == ["shards/train-00000-000.bin"]


class TestLinks:
    @pytest.mark.parametrize("name", ["megatron", "datatrove", "dolma", "nanogpt"])
    def test_raw_ids_are_linked(self, make_store: Any, tmp_path: Path, name: str) -> None:
        store = make_store({"train": [[30, 3, 7]]})
        tokpress.export(store, to=name, out=tmp_path / "out", copy=True)
        again = adopt(token_files(tmp_path / "out", name), name, tmp_path / "store")
        assert (again.path / "shards" / "train-00000-000.bin").stat().st_nlink == 2

    def test_copies_if_asked_for(self, make_store: Any, tmp_path: Path) -> None:
        tokpress.export(make_store({"train": [[30]]}), to="dolma", out=tmp_path / "out", copy=True)
        again = adopt(tmp_path / "out" / "train", "dolma", tmp_path / "store", copy=True)
        assert (again.path / "shards" / "train-00000-000.bin").stat().st_nlink == 1
        assert again.verify().ok


class TestSeparators:
    def test_documents_of_llm_c_may_go_on_in_the_next_file(self, tmp_path: Path) -> None:
        """Its files have a fixed number of tokens: the last document of one is cut, and none is taken for ended."""
        write_llmc(tmp_path / "a_0.bin", [EOS, 1, 2, EOS, 3])
        write_llmc(tmp_path / "a_1.bin", [4, EOS, 5])
        write_llmc(tmp_path / "a_2.bin", [EOS, 6])
        store = adopt(sorted(tmp_path.glob("a_*.bin")), "llmc", tmp_path / "store")
        assert documents(store) == [[1, 2, EOS], [3], [4, EOS], [5, EOS], [6, EOS]]
        assert store.verify().ok

    def test_a_file_of_llm_c_without_tokens_ends_the_one_before(self, tmp_path: Path) -> None:
        for number, ids in enumerate(([EOS, 1], [], [EOS, 2], [])):
            write_llmc(tmp_path / f"a_{number}.bin", ids)
        store = adopt(sorted(tmp_path.glob("a_*.bin")), "llmc", tmp_path / "store")
        assert documents(store) == [[1, EOS], [2, EOS]]
        assert store.verify().ok

    def test_nanogpt_without_an_end_at_the_end(self, tmp_path: Path) -> None:
        np.array([1, 2, EOS, EOS, 3], "<u2").tofile(tmp_path / "train.bin")
        store = adopt(tmp_path / "train.bin", "nanogpt", tmp_path / "store")
        assert documents(store) == [[1, 2, EOS], [EOS], [3]]

    def test_are_found_in_a_file_that_is_read_in_pieces(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(raw, "BLOCK_BYTES", 6)  # three ids
        ids = np.array([1, EOS, 2, 3, 4, 5, EOS, EOS, 6, 7], "<u2")
        assert raw.ends_after(ids, EOS).tolist() == [2, 7, 8, 10]
        assert raw.ends_after(ids[:8], EOS).tolist() == [2, 7, 8]

    def test_another_end_can_be_named(self, tmp_path: Path, bpe: Path) -> None:
        np.array([1, 2, 0, 3, 0], "<u2").tofile(tmp_path / "train.bin")
        with pytest.raises(TokenizerError, match="is no special token"):
            adopt(tmp_path / "train.bin", "nanogpt", tmp_path / "store", tokenizer=bpe, eos_token="<none>")

    def test_ends_that_are_not_everywhere_are_no_eos(self, make_store: Any, tmp_path: Path) -> None:
        tokpress.export(make_store({"train": [[30, 3, 7]]}, eos=False), to="datatrove", out=tmp_path / "out")
        store = adopt(tmp_path / "out" / "train", "datatrove", tmp_path / "store")
        assert store.manifest.eos_id is None


def write_llmc(path: Path, ids: list[int]) -> None:
    header = struct.pack("<3i", 20240520, 1, len(ids)) + bytes(1012)
    path.write_bytes(header + np.array(ids, "<u2").tobytes())


class TestFrame:
    """What the files do not say: whether a token before and after each document was added."""

    @pytest.mark.parametrize(
        ("docs", "frame"),
        [
            ([[1, 9, 2], [1, 2], [1, 2]], (1, 2)),
            ([[], [1, 9, 2], [], [1, 2], []], (1, 2)),
            ([[1, 9, 2], [1, 9]], (1, None)),
            ([[9, 2], [1, 2]], (None, 2)),
            ([[], []], (None, 2)),
        ],
    )
    def test_is_what_every_document_has_that_is_not_empty(
        self, tmp_path: Path, docs: list[list[int]], frame: tuple[int | None, int | None]
    ) -> None:
        np.array([token for doc in docs for token in doc], "<u2").tofile(tmp_path / "a.ds")
        np.cumsum([len(doc) for doc in docs]).astype("<u8").tofile(tmp_path / "a.ds.index")
        store = adopt(tmp_path / "a.ds", "datatrove", tmp_path / "store", tokenizer=SENTENCEPIECE)
        assert (store.manifest.bos_id, store.manifest.eos_id) == frame
        assert [doc.tolist() for doc in store] == docs
        assert store.verify().ok


class TestRefused:
    @pytest.mark.parametrize("wrong", [257, 300])  # the first that is outside, and one further on
    def test_ids_outside_the_vocabulary(self, tmp_path: Path, wrong: int) -> None:
        np.array([1, 2, wrong, EOS], "<u2").tofile(tmp_path / "train.bin")
        said = rf"train\.bin holds id {wrong} at token 2, but the tokenizer has 257 tokens"
        with pytest.raises(IdRangeError, match=said):
            adopt(tmp_path / "train.bin", "nanogpt", tmp_path / "store")
        with pytest.raises(StoreError, match="is not finished"):
            tokpress.open(tmp_path / "store")

    @pytest.fixture
    def exported(self, make_store: Any, tmp_path: Path) -> Path:
        store = make_store({"train": [[30, 3, 7]]})
        for name in IMPORTABLE:
            tokpress.export(store, to=name, out=tmp_path / name, copy=True)
        return tmp_path

    @pytest.mark.parametrize(
        ("name", "file", "change", "said"),
        [
            ("megatron", "train.idx", lambda data: data[:20], "is no Megatron index: it has 20 bytes"),
            ("megatron", "train.idx", lambda data: b"X" + data[1:], "is no Megatron index of version 1"),
            ("megatron", "train.idx", lambda data: data[:-9], "is cut off"),
            ("megatron", "train.idx", lambda data: data + b"x", "has 1 bytes behind its end"),
            (
                "datatrove",
                "train/00000_tokens.ds.index",
                lambda data: data + b"xyz",
                "is no list of numbers of 8 bytes",
            ),
            ("dolma", "train/part-0-00000.csv.gz", lambda data: data[:-3], "part-0-00000.csv.gz cannot be unpacked"),
            ("dolma", "train/part-0-00000.csv.gz", lambda data: bytes(len(data)), "cannot be unpacked"),
            ("megatron", "train.idx", lambda data: data[:17] + b"\5" + data[18:], "ids are of type 5"),
            ("megatron", "train.idx", lambda data: data[:34] + b"\x1f" + data[35:], "follow each other through all of"),
            ("megatron", "train.idx", lambda data: data[:-8] + bytes(8), "its documents do not cover its sequences"),
            (
                "megatron",
                "train.idx",
                lambda data: data[:-8] + b"\2" + bytes(7),
                "its documents do not cover its sequences",
            ),
            (
                "megatron",
                "train.idx",
                lambda data: data[:-32] + b"\1" + data[-31:],
                "its documents do not cover its sequences",
            ),
            ("megatron", "train.bin", lambda data: data[:-2], "follow each other through all of"),
            ("datatrove", "train/00000_tokens.ds", lambda data: data[:-2], "does not fit"),
            (
                "datatrove",
                "train/00000_tokens.ds.index",
                lambda data: data[8:16] + data[:8] + data[16:],
                "does not fit",
            ),
            (
                "datatrove",
                "train/00000_tokens.ds.index",
                lambda data: b"",
                "its documents end at token 0, the file at 40",
            ),
            ("dolma", "train/part-0-00000.npy", lambda data: data[:-2], "does not fit"),
            ("dolma", "train/part-0-00000.npy", lambda data: data + b"x", "that are no 16-bit ids"),
            ("datatrove", "train/00000_tokens.ds", lambda data: data + b"x", "that are no 16-bit ids"),
            ("megatron", "train.bin", lambda data: data + b"x", "that are no 16-bit ids"),
            ("nanogpt", "train.bin", lambda data: data[:-1], "that are no 16-bit ids"),
            ("llmc", "train_000000.bin", lambda data: data[:-1], r"should have 40 ids of 2 bytes after its header"),
            ("llmc", "train_000000.bin", lambda data: bytes(4) + data[4:], r"its header is \[0, 1, 40\]"),
        ],
    )
    def test_damaged_files(self, exported: Path, name: str, file: str, change: Any, said: str) -> None:
        path = exported / name / file
        path.write_bytes(change(path.read_bytes()))
        with pytest.raises(InputError, match=said):
            adopt(token_files(exported / name, name), name, exported / "store")
        assert not (exported / "store").exists()

    @pytest.mark.parametrize(
        ("name", "missing", "said"),
        [
            ("megatron", "train.idx", r"has no train\.idx beside it"),
            ("datatrove", "train/00000_tokens.ds.index", r"has no 00000_tokens\.ds\.index beside it"),
            ("dolma", "train/part-0-00000.csv.gz", r"has no part-0-00000\.csv\.gz beside it"),
        ],
    )
    def test_a_missing_index(self, exported: Path, name: str, missing: str, said: str) -> None:
        (exported / name / missing).unlink()
        with pytest.raises(InputError, match=said):
            adopt(token_files(exported / name, name), name, exported / "store")

    def test_a_mask_of_another_length(self, make_store: Any, tmp_path: Path) -> None:
        tokpress.export(make_store({"train": [[9]]}, masks=True), to="datatrove", out=tmp_path / "o", copy=True)
        (tmp_path / "o" / "train" / "00000_tokens.ds.loss").write_bytes(b"\1")
        with pytest.raises(InputError, match="should have a byte for each of the 9 tokens"):
            adopt(tmp_path / "o" / "train", "datatrove", tmp_path / "store")
        (tmp_path / "o" / "train" / "00000_tokens.ds.loss").write_bytes(b"\1\2\1\1\1\1\1\1\1")
        with pytest.raises(InputError, match="is no mask: it holds something other than 0 and 1"):
            adopt(tmp_path / "o" / "train", "datatrove", tmp_path / "store")

    def test_ids_of_two_widths(self, make_store: Any, tmp_path: Path) -> None:
        paths = []
        for dtype in ("uint16", "uint32"):
            tokpress.export(make_store({"train": [[9]]}, dtype=dtype), to="megatron", out=tmp_path / dtype)
            paths.append(tmp_path / dtype / "train")
        with pytest.raises(InputError, match=r"has ids of 2 bytes, .* of 4\. Import them into stores of their own"):
            adopt(paths, "megatron", tmp_path / "store")

    def test_wrong_calls(self, exported: Path) -> None:
        with pytest.raises(UsageError, match=r"'parquet' cannot be imported\. Choose one of megatron"):
            adopt(exported, "parquet", exported / "store")
        with pytest.raises(UsageError, match=r"is a directory\. Name one file of it: .*train\.bin"):
            adopt(exported / "nanogpt", "nanogpt", exported / "store")
        with pytest.raises(UsageError, match=r"no \*\.ds at "):
            adopt(exported / "nowhere", "datatrove", exported / "store")
        with pytest.raises(UsageError, match="--dtype 'int8' is not known"):
            adopt(exported / "dolma" / "train", "dolma", exported / "store", dtype="int8")
        with pytest.raises(InputError, match="Is it the right --tokenizer, or --dtype"):
            adopt(exported / "dolma" / "train", "dolma", exported / "store", dtype="uint32")

    def test_files_that_were_written_anew_are_something_else(self, exported: Path) -> None:
        """Also if they are as long as they were: an import must not go on with the half of them."""
        path = exported / "nanogpt" / "train.bin"
        adopt(path, "nanogpt", exported / "store", copy=True)
        ids = np.fromfile(path, "<u2")
        ids[0] ^= 1
        ids.tofile(path)
        with pytest.raises(UsageError, match=r"something else:\n  inputs\[0\]\.mtime_ns: was"):
            adopt(path, "nanogpt", exported / "store", copy=True)

    def test_another_store_is_not_replaced_unless_asked_for(self, exported: Path) -> None:
        first = adopt(exported / "megatron" / "train", "megatron", exported / "store")
        assert (
            adopt(exported / "megatron" / "train.idx", "megatron", exported / "store").fingerprint == first.fingerprint
        )
        with pytest.raises(UsageError, match="a finished store of something else"):
            adopt(exported / "dolma" / "train", "dolma", exported / "store")
        again = adopt(exported / "dolma" / "train", "dolma", exported / "store", overwrite=True)
        assert again.plan.options["import"] == "dolma"
        assert again.verify().ok


def test_stopped_it_goes_on(make_store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tokpress.formats import import_ as module

    tokpress.export(make_store(LENGTHS), to="datatrove", out=tmp_path / "out")
    whole = adopt(tmp_path / "out" / "train", "datatrove", tmp_path / "whole")
    write, written = module._write_shard, []

    def fail_at_the_second(storage: LocalStorage, unit: int, file: Any, *, copy: bool) -> None:
        if unit == 1:
            raise OSError("the disk is full")
        write(storage, unit, file, copy=copy)

    with monkeypatch.context() as patch:
        patch.setattr(module, "_write_shard", fail_at_the_second)
        with pytest.raises(OSError, match="the disk is full"):
            adopt(tmp_path / "out" / "train", "datatrove", tmp_path / "store")

    def note(storage: LocalStorage, unit: int, file: Any, *, copy: bool) -> None:
        written.append(unit)
        write(storage, unit, file, copy=copy)

    monkeypatch.setattr(module, "_write_shard", note)
    store = adopt(tmp_path / "out" / "train", "datatrove", tmp_path / "store")
    assert 0 not in written
    assert 1 in written
    assert store.fingerprint == whole.fingerprint
    assert store.verify().ok


def test_a_stream_of_documents_is_the_same_by_every_way(make_store: Any, tmp_path: Path) -> None:
    """Through each format and back, one after the other: the last store has the first one's documents."""
    store = first = make_store({"train": [[30, 3, 7, 1], [12, 400]]})
    for name in IMPORTABLE:
        tokpress.export(store, to=name, out=tmp_path / name)
        store = adopt(token_files(tmp_path / name, name), name, tmp_path / f"{name}-store")
    assert flat(documents(store)) == flat(documents(first))
    assert documents(store) == documents(first)
    assert readers.nanogpt(tmp_path / "nanogpt" / "train.bin") == flat(documents(first))
