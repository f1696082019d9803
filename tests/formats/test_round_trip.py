"""Export, then read back: what is read is the store, for every format and any documents."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import tokpress
from tokpress.formats.base import has_mask

from . import readers
from .stores import EOS, Lengths, Masks, documents, flat, furnish, masks_of, splits

anything = settings(deadline=None, max_examples=12, suppress_health_check=list(HealthCheck))
masks = st.sampled_from([False, True, "some"])
dtypes = st.sampled_from(["uint16", "uint32"])
seq_lens = st.integers(1, 20)
NO_TOKENS: Lengths = {"train": [[0]]}  # one empty document: formats whose readers could not start have no file for it


@contextmanager
def exported(
    empty: Path, lengths: Lengths, to: str, options: dict[str, Any], **made: Any
) -> Iterator[tuple[Path, Any]]:
    """An export of a new store, and its splits."""
    with tempfile.TemporaryDirectory() as directory:
        store = furnish(Path(shutil.copytree(empty, Path(directory) / "store")), lengths, **made)
        out = Path(directory) / "out"
        tokpress.export(store, to=to, out=out, **options)
        yield out, {name: tokpress.open(store, name) for name in lengths}


@anything
@given(lengths=splits, dtype=dtypes, merge=st.booleans())
@example(lengths=NO_TOKENS, dtype="uint16", merge=False)
def test_megatron(empty_store: Path, lengths: Lengths, dtype: str, merge: bool) -> None:
    with exported(empty_store, lengths, "megatron", {"merge": merge}, dtype=dtype) as (out, stores):
        for name, store in stores.items():
            assert readers.megatron_split(out, name) == (documents(store) if store.num_tokens else [])


@anything
@given(lengths=splits, dtype=dtypes, masks=masks)
@example(lengths=NO_TOKENS, dtype="uint16", masks=False)
def test_datatrove(empty_store: Path, lengths: Lengths, dtype: str, masks: Masks) -> None:
    with exported(empty_store, lengths, "datatrove", {}, dtype=dtype, masks=masks) as (out, stores):
        for name, store in stores.items():
            docs, loss = readers.datatrove(out / name)
            assert docs == (documents(store) if store.num_tokens else [])
            assert loss == (masks_of(store) if has_mask(store) else None)


@anything
@given(lengths=splits, dtype=dtypes, masks=masks)
@example(lengths=NO_TOKENS, dtype="uint16", masks=False)
def test_dolma(empty_store: Path, lengths: Lengths, dtype: str, masks: Masks) -> None:
    with exported(empty_store, lengths, "dolma", {}, dtype=dtype, masks=masks) as (out, stores):
        for name, store in stores.items():
            docs, loss = readers.dolma(out / name, store.dtype.itemsize)
            assert docs == (documents(store) if store.num_tokens else [])
            assert loss == (masks_of(store) if has_mask(store) else None)


@anything
@given(lengths=splits)
def test_nanogpt(empty_store: Path, lengths: Lengths) -> None:
    with exported(empty_store, lengths, "nanogpt", {}) as (out, stores):
        for name, store in stores.items():
            stream = flat(documents(store))
            assert (readers.nanogpt(out / f"{name}.bin") if stream else []) == stream


@anything
@given(lengths=splits, dtype=dtypes, eos=st.booleans())
def test_llmc(empty_store: Path, lengths: Lengths, dtype: str, eos: bool) -> None:
    """A separator before each document, and none after."""
    with exported(empty_store, lengths, "llmc", {}, dtype=dtype, eos=eos) as (out, stores):
        for name, store in stores.items():
            bare = [doc[:-1] if doc and doc[-1] == EOS else doc for doc in documents(store)]
            assert readers.llmc(out, name) == flat([EOS, *doc] for doc in bare)


@anything
@given(lengths=splits, dtype=dtypes, masks=masks, to=st.sampled_from(["parquet", "arrow", "mds"]))
@example(lengths=NO_TOKENS, dtype="uint16", masks=False, to="mds")
def test_rows_of_documents(empty_store: Path, lengths: Lengths, dtype: str, masks: Masks, to: str) -> None:
    with exported(empty_store, lengths, to, {}, dtype=dtype, masks=masks) as (out, stores):
        for name, store in stores.items():
            rows = getattr(readers, to)(out / name)
            assert [row["tokens" if to == "mds" else "input_ids"] for row in rows] == documents(store)
            if has_mask(store):
                assert [row["loss_mask"] for row in rows] == masks_of(store)
            else:
                assert not any("loss_mask" in row for row in rows)


def slow_rows(store: tokpress.Store, seq_len: int, method: str) -> list[tuple[list[int], list[int], list[int]]]:
    """Of each sequence: ids, loss, and where documents in it end."""
    docs, masks = documents(store), masks_of(store)
    rows: list[tuple[list[int], list[int], list[int]]] = []
    if method == "pad":
        for doc, mask in zip(docs, masks, strict=True):
            padding = [0] * max(seq_len - len(doc), 0)
            pad = [EOS] * len(padding)
            end = [min(len(doc), seq_len)] if doc else []
            rows.append((doc[:seq_len] + pad, mask[:seq_len] + padding, end))
        return rows
    ids, loss = flat(docs), flat(masks)
    ends = set(np.cumsum([len(doc) for doc in docs]).tolist())
    for start in range(0, len(ids) - seq_len + 1, seq_len):
        inside = [place - start for place in range(start + 1, start + seq_len + 1) if place in ends]
        last = [] if inside and inside[-1] == seq_len else [seq_len]
        rows.append((ids[start : start + seq_len], loss[start : start + seq_len], inside + last))
    return rows


@anything
@given(
    lengths=splits,
    dtype=dtypes,
    masks=masks,
    to=st.sampled_from(["parquet", "arrow", "mds", "pt"]),
    seq_len=seq_lens,
    method=st.sampled_from(["concat", "pad"]),
)
def test_rows_of_sequences(
    empty_store: Path, lengths: Lengths, dtype: str, masks: Masks, to: str, seq_len: int, method: str
) -> None:
    options = {"seq_len": seq_len, "method": method}
    with exported(empty_store, lengths, to, options, dtype=dtype, masks=masks) as (out, stores):
        for name, store in stores.items():
            expected = slow_rows(store, seq_len, method)
            masked = method == "pad" or has_mask(store)
            if to == "pt":
                assert readers.pt(out / name) == [ids for ids, _, _ in expected]
                chunks = readers.pt(out / name, "doc_ends")  # of one chunk, as these are
                assert chunks == [[row, end] for row, (_, _, ends) in enumerate(expected) for end in ends]
                assert readers.pt(out / name, "mask") == ([loss for _, loss, _ in expected] if masked else [])
                continue
            rows = getattr(readers, to)(out / name)
            assert [row["tokens" if to == "mds" else "input_ids"] for row in rows] == [ids for ids, _, _ in expected]
            if masked:
                assert [row["loss_mask"] for row in rows] == [loss for _, loss, _ in expected]
            if to != "mds":
                assert [row["doc_ends"] for row in rows] == [ends for _, _, ends in expected]


@anything
@given(lengths=splits, dtype=dtypes, seq_len=st.none() | seq_lens)
@example(lengths=NO_TOKENS, dtype="uint16", seq_len=None)
@example(lengths={"train": [[1]]}, dtype="uint16", seq_len=None)
def test_litdata(empty_store: Path, lengths: Lengths, dtype: str, seq_len: int | None) -> None:
    with exported(empty_store, lengths, "litdata", {"seq_len": seq_len}, dtype=dtype) as (out, stores):
        for name, store in stores.items():
            ids, counts = readers.litdata(out / name)
            assert ids == (flat(documents(store)) if store.num_tokens >= (seq_len or 1) else [])
            assert all(count % (seq_len or 1) == 0 for count in counts[:-1])


@anything
@given(lengths=splits, dtype=dtypes, masks=masks, seq_len=seq_lens)
def test_npy_of_documents(empty_store: Path, lengths: Lengths, dtype: str, masks: Masks, seq_len: int) -> None:
    """A document a row; targets are shifted by one; loss where the predicted token is there and counts."""
    with exported(empty_store, lengths, "npy", {"max_length": seq_len}, dtype=dtype, masks=masks) as (out, stores):
        for name, store in stores.items():
            arrays = readers.npy(out / name)
            assert len(arrays["input"]) == store.num_docs
            for row, (doc, mask) in enumerate(zip(documents(store), masks_of(store), strict=True)):
                doc, mask = doc[:seq_len], mask[:seq_len]
                pad = [EOS] * (seq_len - len(doc))
                assert arrays["input"][row] == doc + pad
                assert arrays["target"][row] == [*(doc + pad)[1:], EOS]
                assert arrays["mask"][row] == [*mask[1:], *([0] * (seq_len - max(len(doc) - 1, 0)))]


@anything
@given(lengths=splits, masks=masks, seq_len=seq_lens, dtype=st.sampled_from(["uint16", "int32", "int64"]))
def test_npy_of_the_stream(empty_store: Path, lengths: Lengths, masks: Masks, seq_len: int, dtype: str) -> None:
    """Every token but the first is a target once, up to the last whole row."""
    options = {"seq_len": seq_len, "method": "concat", "dtype": dtype}
    with exported(empty_store, lengths, "npy", options, masks=masks) as (out, stores):
        for name, store in stores.items():
            arrays = readers.npy(out / name)
            ids, loss = flat(documents(store)), flat(masks_of(store))
            rows = max((len(ids) - 1) // seq_len, 0)
            assert flat(arrays["input"]) == ids[: rows * seq_len]
            assert flat(arrays["target"]) == ids[1 : rows * seq_len + 1]
            assert flat(arrays["mask"]) == loss[1 : rows * seq_len + 1]
            assert np.load(out / name / "input.npy", mmap_mode="r").dtype == dtype


def test_npy_equals_the_loader(make_store: Any, tmp_path: Path) -> None:
    store = make_store({"train": [[9, 30, 0, 4], [8, 2, 60]]}, masks=True)
    tokpress.pack(store.path, seq_len=16, method="bestfit")
    for method in ("concat", "bestfit", "pad"):
        tokpress.export(store, to="npy", out=tmp_path / method, seq_len=16, method=method)
        arrays = {name: np.array(rows) for name, rows in readers.npy(tmp_path / method / "train").items()}
        data = tokpress.PretokenizedDataset(
            store,
            seq_len=16,
            method=method,
            shift_labels=True,
            output="numpy",
            fields=("input_ids", "labels", "loss_mask"),
        )
        batch = data.batch(range(len(data)))
        assert np.array_equal(arrays["input"], batch["input_ids"])
        assert np.array_equal(arrays["mask"], batch["loss_mask"])
        assert np.array_equal(np.where(arrays["mask"], arrays["target"], -100), batch["labels"])


@pytest.mark.parametrize("to", ["parquet", "arrow", "mds", "pt"])
def test_padding_of_a_last_row_that_is_kept_is_not_learned(make_store: Any, tmp_path: Path, to: str) -> None:
    store = make_store({"train": [[9, 4]]})
    tokpress.export(store, to=to, out=tmp_path / "out", seq_len=8, keep_last=True)
    if to == "pt":
        ids, loss = readers.pt(tmp_path / "out" / "train"), readers.pt(tmp_path / "out" / "train", "mask")
    else:
        rows = getattr(readers, to)(tmp_path / "out" / "train")
        ids, loss = ([row[name] for row in rows] for name in ("tokens" if to == "mds" else "input_ids", "loss_mask"))
    assert flat(ids)[:13] == flat(documents(store))
    assert loss == [[1] * 8, [1] * 5 + [0] * 3]


def test_tensors_are_of_a_type_that_embeddings_take(make_store: Any, tmp_path: Path) -> None:
    import torch

    store = make_store({"train": [[9, 30]]})
    for name, asked in (("int32", None), ("int64", "int64")):
        tokpress.export(store, to="pt", out=tmp_path / name, seq_len=8, dtype=asked)
        chunk = torch.load(tmp_path / name / "train" / "chunk_000000.pt", weights_only=True)
        assert chunk.dtype == getattr(torch, name)
        assert torch.nn.Embedding(257, 2)(chunk).shape == (4, 8, 2)


def test_datasets_tells_splits_and_stores_apart(make_store: Any, tmp_path: Path) -> None:
    """By its fingerprint: it would take what it cached of one for the other."""

    def fingerprints(store: tokpress.Store, out: Path) -> list[str]:
        tokpress.export(store, to="arrow", out=out)
        return [json.loads((out / split / "state.json").read_text())["_fingerprint"] for split in ("train", "val")]

    store, other = (make_store({"train": [[5]], "val": [[5]]}, seed=seed) for seed in (0, 1))
    first = fingerprints(store, tmp_path / "first")
    assert len({*first, *fingerprints(other, tmp_path / "other")}) == 4
    assert fingerprints(store, tmp_path / "again") == first


@pytest.mark.parametrize("to", ["parquet", "mds", "pt"])
def test_best_fit_rows_are_the_loader_s(make_store: Any, tmp_path: Path, to: str) -> None:
    store = make_store({"train": [[9, 30, 0, 4], [8, 2, 60]]})
    tokpress.pack(store.path, seq_len=16, method="bestfit")
    tokpress.export(store, to=to, out=tmp_path / "out", seq_len=16, method="bestfit")
    data = tokpress.PretokenizedDataset(store, seq_len=16, method="bestfit", output="numpy")
    rows = getattr(readers, to)(tmp_path / "out" / "train")
    found = rows if to == "pt" else [row["tokens" if to == "mds" else "input_ids"] for row in rows]
    assert found == data.batch(range(len(data)))["input_ids"].tolist()


@pytest.mark.parametrize(
    "to", ["megatron", "datatrove", "dolma", "nanogpt", "llmc", "parquet", "arrow", "mds", "litdata"]
)
def test_one_huge_document_and_many_tiny_ones(make_store: Any, tmp_path: Path, to: str) -> None:
    """Also of lengths at which a count takes one byte more."""
    store = make_store({"train": [[70_000, *([2] * 3000), 255, 256, 65_535, 65_536, 0]]})
    tokpress.export(store, to=to, out=tmp_path / "out")
    out, expected = tmp_path / "out", documents(store)
    stream = flat(expected)
    match to:
        case "megatron":
            assert readers.megatron_split(out, "train") == expected
        case "datatrove":
            assert readers.datatrove(out / "train")[0] == expected
        case "dolma":
            assert readers.dolma(out / "train", 2)[0] == expected
        case "nanogpt":
            assert readers.nanogpt(out / "train.bin") == stream
        case "llmc":
            assert readers.llmc(out, "train") == [EOS, *stream[:-1], EOS]  # the last document is empty
        case "litdata":
            assert readers.litdata(out / "train")[0] == stream
        case _:
            name = "tokens" if to == "mds" else "input_ids"
            assert [row[name] for row in getattr(readers, to)(out / "train")] == expected


class TestManyParts:
    """Files, parts and blocks of a few rows: what is cut is cut in the right places."""

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from tokpress.formats import arrow, dolma, litdata, llmc, mds, parquet, raw, rows

        for module in (rows, litdata, mds):
            monkeypatch.setattr(module, "FILE_BYTES", 64)
        monkeypatch.setattr(rows.Sequences.ranges, "__defaults__", (64,))
        monkeypatch.setattr(rows.Sequences.blocks, "__defaults__", (24,))
        for module in (litdata, raw, llmc, arrow):
            monkeypatch.setattr(module, "BLOCK_BYTES", 24)
        for module in (parquet, arrow):
            monkeypatch.setattr(module, "_FILE_BYTES", 64)
        monkeypatch.setattr(parquet, "_GROUP_BYTES", 24)
        monkeypatch.setattr(dolma, "_BLOCK_DOCS", 2)

    @pytest.mark.parametrize("to", ["parquet", "arrow", "mds"])
    def test_documents(self, make_store: Any, tmp_path: Path, to: str) -> None:
        store = make_store({"train": [[3, 0, 7, 50, 0, 0], [2, 40, 1, 1, 9]]}, masks=True)
        made = tokpress.export(store, to=to, out=tmp_path / "out")
        assert len(made.files) > 5
        rows = getattr(readers, to)(tmp_path / "out" / "train")
        assert [row["tokens" if to == "mds" else "input_ids"] for row in rows] == documents(store)
        assert [row["loss_mask"] for row in rows] == masks_of(store)

    @pytest.mark.parametrize("to", ["parquet", "arrow", "mds", "pt", "npy"])
    def test_sequences(self, make_store: Any, tmp_path: Path, to: str) -> None:
        store = make_store({"train": [[3, 0, 7, 50, 0, 0], [2, 40, 1, 1, 9]]}, masks=True)
        tokpress.export(store, to=to, out=tmp_path / "out", seq_len=5, method="pad")
        expected = [ids for ids, _, _ in slow_rows(store, 5, "pad")]
        rows = getattr(readers, to)(tmp_path / "out" / "train")
        if to == "npy":
            assert rows["input"] == expected
        else:
            assert [row if to == "pt" else row["tokens" if to == "mds" else "input_ids"] for row in rows] == expected

    def test_streams(self, make_store: Any, tmp_path: Path) -> None:
        store = make_store({"train": [[3, 0, 7, 50, 0, 0], [2, 40, 1, 1, 9]]})
        stream = flat(documents(store))
        for to in ("litdata", "nanogpt", "llmc", "datatrove", "dolma"):
            tokpress.export(store, to=to, out=tmp_path / to)
        tokpress.export(store, to="litdata", out=tmp_path / "blocks", seq_len=7)
        assert readers.litdata(tmp_path / "litdata" / "train")[0] == stream
        assert readers.litdata(tmp_path / "blocks" / "train") == (stream, [28, 28, 28, 28, 1])
        assert readers.nanogpt(tmp_path / "nanogpt" / "train.bin") == stream
        assert readers.datatrove(tmp_path / "datatrove" / "train")[0] == documents(store)
        assert readers.dolma(tmp_path / "dolma" / "train", 2)[0] == documents(store)
        bare = [doc[:-1] for doc in documents(store)]
        assert readers.llmc(tmp_path / "llmc", "train") == flat([EOS, *doc] for doc in bare)
