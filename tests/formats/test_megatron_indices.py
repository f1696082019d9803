"""Megatron's indices, made beforehand: those that it would make, and found by it. megatron-core's own: tests/compat."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokpress
from tokpress.errors import InputError, UsageError
from tokpress.formats.megatron_indices import build_indices, samples_of_pairs

from .conftest import MakeStore

TOKENIZER = {"class": "a.Tokenizer", "tokenizer_path": "somewhere"}
LENGTHS = {"train": [[3, 0, 7, 50], [2], [1, 1, 300]], "val": [[5, 5]]}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """What a run of Megatron wrote down of other data."""
    said = {"class": "GPTDataset", "dataset_path": "x", "num_samples": 7, "random_seed": 5, "tokenizer": TOKENIZER}
    (tmp_path / "run.txt").write_text(json.dumps(said, indent=4))
    return tmp_path / "run.txt"


def walk(lengths: list[int], documents: list[int], total: int, seq_len: int) -> list[tuple[int, int]]:
    """Where samples start, token by token: each ends with the token that the next one starts with."""
    places = [(number, offset) for number, doc in enumerate(documents) for offset in range(lengths[doc])]
    return [(0, 0), *(places[sample * seq_len] for sample in range(1, total + 1))]


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=12).filter(sum),
    st.integers(1, 20),
    st.none() | st.integers(1, 60),
    st.integers(0, 2**31),
)
def test_every_sample_starts_where_the_one_before_ends(
    lengths: list[int], seq_len: int, wanted: int | None, seed: int
) -> None:
    documents, samples, shuffle = build_indices(np.array(lengths), seq_len, wanted, seed)
    total = len(samples) - 1
    epochs = len(documents) // len(lengths)
    assert sorted(documents.tolist()) == sorted(list(range(len(lengths))) * epochs)
    assert [tuple(place) for place in samples.tolist()] == walk(lengths, documents.tolist(), total, seq_len)
    assert sorted(shuffle.tolist()) == list(range(total))
    assert total == (epochs * sum(lengths) - 1) // seq_len
    if wanted is not None:  # as many epochs as are needed, and no more
        assert total >= wanted
        assert epochs == 1 or ((epochs - 1) * sum(lengths) - 1) // seq_len < wanted


def test_a_short_last_epoch_stays_the_last() -> None:
    lengths = np.full(100, 11)
    documents, samples, shuffle = build_indices(lengths, 10, 150, seed=1)
    per_epoch = (1100 - 1) // 10
    assert len(samples) - 1 == 219
    assert sorted(documents[:100].tolist()) == list(range(100))
    assert sorted(shuffle[:per_epoch].tolist()) == list(range(per_epoch))
    mixed, _, order = build_indices(lengths, 10, 215, seed=1)
    assert sorted(mixed[:100].tolist()) != list(range(100))
    assert sorted(order[:per_epoch].tolist()) != list(range(per_epoch))


def test_samples_of_pairs_are_by_tokens_and_some_more() -> None:
    assert samples_of_pairs([300, 100], 1000) == [754, 252]
    assert samples_of_pairs([300], 1000) == [1000]
    assert samples_of_pairs([300, 100], None) == [None, None]


def test_they_stand_in_a_cache_by_the_name_that_megatron_looks_for(
    make_store: MakeStore, tmp_path: Path, run: Path
) -> None:
    store = make_store(LENGTHS)
    asked: dict[str, Any] = {"indices_for": [4, 8], "index_samples": {"train": 90}, "index_run": run}
    made = tokpress.export(store, to="megatron", out=tmp_path / "out", **asked)
    cache = {name for name in made.files if name.startswith("cache/")}
    assert len(cache) == 2 * 4 * (3 + 1)  # lengths, files, pairs
    for name in sorted(name for name in cache if name.endswith("description.txt")):
        text = (tmp_path / "out" / name).read_text()
        said = json.loads(text)
        assert name.startswith(f"cache/{hashlib.md5(text.encode()).hexdigest()}-GPTDataset-{said['index_split']}-")
        assert list(said) == [
            "class",
            "dataset_path",
            "num_samples",
            "index_split",
            "random_seed",
            "sequence_length",
            "split",
            "split_matrix",
            "tokenizer",
        ]
        assert (said["random_seed"], said["tokenizer"]) == (5, TOKENIZER)
        listed = (tmp_path / "out" / ("val.txt" if said["index_split"] == "valid" else "train.txt")).read_text().split()
        assert said["dataset_path"] in listed
        assert (said["num_samples"] is None) == (said["index_split"] == "valid")
        samples = np.load(tmp_path / "out" / name.replace("description.txt", "sample_index.npy"))
        assert len(samples) - 1 >= (said["num_samples"] or 0)
    assert tokpress.export(store, to="megatron", out=tmp_path / "out", **asked) == made


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"to": "dolma", "indices_for": [4]}, "--indices-for is for --to megatron"),
        ({"indices_for": [0]}, "0 is too few"),
        ({"indices_for": [4], "index_run": None}, "needs --index-run FILE"),
        (
            {"indices_for": [4], "index_samples": {"dev": 3}},
            "--index-samples dev: the export has the splits train, val",
        ),
        ({"index_samples": {"train": 3}}, "are for --indices-for"),
    ],
)
def test_refused(make_store: MakeStore, tmp_path: Path, run: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        tokpress.export(make_store(LENGTHS), **{"to": "megatron", "out": tmp_path / "out", "index_run": run, **options})


def test_a_run_that_says_something_else(make_store: MakeStore, tmp_path: Path) -> None:
    file = tmp_path / "run.txt"
    file.write_text('{"split": "99,1,0", "tokenizer": {}}')
    store = make_store(LENGTHS)
    with pytest.raises(UsageError, match="cuts its splits out of one list"):
        tokpress.export(store, to="megatron", out=tmp_path / "out", indices_for=[4], index_run=file)
    file.write_text('{"random_seed": 3}')
    with pytest.raises(InputError, match="is no description of a Megatron run"):
        tokpress.export(store, to="megatron", out=tmp_path / "out", indices_for=[4], index_run=file)
    with pytest.raises(UsageError, match="no split 'test-2'"):
        tokpress.export(make_store({"test-2": [[4]]}), to="megatron", out=tmp_path / "out", indices_for=[4])
