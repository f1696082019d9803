"""Wrong calls from Python: the answer names the argument and what to give, in our words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokpress
from tokpress.arguments import did_you_mean, whole_number


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tokpress.Store:
    source = tmp_path_factory.mktemp("arguments") / "a.jsonl"
    source.write_text('{"text": "some words of a document"}\n' * 40)
    return tokpress.build(source, tokenizer="bytes", out=source.with_name("store"))


def dataset(store: tokpress.Store, **options: Any) -> tokpress.PretokenizedDataset:
    return tokpress.PretokenizedDataset(store, **{"seq_len": 16, "output": "numpy", **options})


WRONG_CALLS: dict[str, tuple[Callable[[tokpress.Store], Any], str]] = {
    "a length in quotes": (
        lambda store: dataset(store, seq_len="2048"),
        "seq_len='2048' is a str. Give a whole number.",
    ),
    "a length that is no whole number": (lambda store: dataset(store, seq_len=64.0), "seq_len=64.0 is a float."),
    "half a sequence": (lambda store: dataset(store)[1.5], "sequence=1.5 is a float."),  # type: ignore[index]
    "a loader of a path": (
        lambda store: tokpress.Loader(str(store.path), batch_size=2),  # type: ignore[arg-type]
        "a loader takes datasets, not a str: give it tokpress.PretokenizedDataset(STORE, seq_len=2048)",
    ),
    "a loader of a store": (lambda store: tokpress.Loader(store, batch_size=2), "not a Store"),  # type: ignore[arg-type]
    "a batch size in quotes": (lambda store: tokpress.Loader(dataset(store), batch_size="2"), "batch_size='2'"),  # type: ignore[arg-type]
    "a rank in quotes": (lambda store: tokpress.Loader(dataset(store), batch_size=2, rank="0"), "rank='0'"),  # type: ignore[arg-type]
    "a seed that is a word": (lambda store: tokpress.Loader(dataset(store), batch_size=2, seed="a"), "seed='a'"),  # type: ignore[arg-type]
    "half a thread": (lambda store: tokpress.Loader(dataset(store), batch_size=2, threads=0.5), "threads=0.5"),  # type: ignore[arg-type]
    "workers in quotes": (lambda _: tokpress.ParallelTokenizer("bytes", workers="2"), "workers='2'"),  # type: ignore[arg-type]
    "a packing's length in quotes": (lambda store: tokpress.pack(store, seq_len="64"), "seq_len='64'"),  # type: ignore[arg-type]
    "a document's name": (lambda store: store.doc("a"), "document='a' is a str."),  # type: ignore[arg-type]
    "nothing to open": (lambda _: tokpress.open(None), "None is a NoneType, no place of a store. Give its path."),  # type: ignore[arg-type]
    "a live length in quotes": (
        lambda store: tokpress.LiveDataset(store.path, tokenizer="bytes", seq_len="64", batch_size=1),  # type: ignore[arg-type]
        "seq_len='64'",
    ),
    "an option that is none": (
        lambda store: tokpress.build("a", tokenizer="bytes", out="b", worker=2),  # type: ignore[call-arg]
        "unknown option 'worker'. Did you mean 'workers'?",
    ),
}


@pytest.mark.parametrize("case", WRONG_CALLS)
def test_a_wrong_type_is_said_in_our_words(case: str, store: tokpress.Store) -> None:
    call, said = WRONG_CALLS[case]
    with pytest.raises(TypeError) as refused:
        call(store)
    assert said in str(refused.value)


def test_an_option_of_a_wrong_type_is_named(store: tokpress.Store, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    with pytest.raises(tokpress.TokpressError, match=r"^workers cannot be that: it is text\. Give a whole number\."):
        tokpress.build(tmp_path / "a.jsonl", tokenizer="bytes", out=tmp_path / "s", workers="2")  # type: ignore[arg-type]
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("part", [slice(0, 3), slice(-4, None), slice(None, None, 7), slice(5, 5)])
def test_a_slice_of_a_dataset_is_a_batch(store: tokpress.Store, part: slice) -> None:
    data = dataset(store)
    batch = data[part]
    assert batch["input_ids"].tolist() == [data[i]["input_ids"].tolist() for i in range(len(data))[part]]


def test_integers_of_numpy_are_whole_numbers(store: tokpress.Store) -> None:
    assert whole_number("x", np.int32(3)) == 3
    data = dataset(store, seq_len=np.int64(16))
    two: Any = np.int64(2)
    assert data[two]["input_ids"].tolist() == data[2]["input_ids"].tolist()
    assert len(tokpress.Loader(data, batch_size=two)) == len(data) // 2


def test_a_store_that_is_open_can_be_packed(store: tokpress.Store) -> None:
    assert tokpress.pack(store, seq_len=16) == tokpress.pack(store.path, seq_len=16)


def test_what_was_probably_meant() -> None:
    assert did_you_mean("buld", ["pack", "build"]) == " Did you mean 'build'?"
    assert did_you_mean("xyz", ["pack", "build"]) == ""
