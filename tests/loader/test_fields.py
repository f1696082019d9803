"""Every field equals the slow, obvious reference, on random stores, for every packing and option."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tokpress
from tokpress.errors import UsageError
from tokpress.loader.batches.fields import FIELDS

from .conftest import add_masks, build
from .reference import fields_of, row_of, stream_of

PAD = 7
METHODS: list[tuple[str, dict[str, Any]]] = [
    ("concat", {}),
    ("concat", {"keep_last": True}),
    ("bestfit", {}),
    ("pad", {}),
    ("pad", {"padding_side": "left", "truncation_side": "left"}),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fields")


@pytest.mark.parametrize("shift_labels", [False, True])
@pytest.mark.parametrize("mask_across_docs", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@settings(
    deadline=None, max_examples=8, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(
    texts=st.lists(st.text("abc", max_size=30), min_size=3, max_size=14),
    shard_size=st.sampled_from([8, 60, 10**6]),
    seq_len=st.integers(2, 24),
    seed=st.integers(0, 99),
)
def test_equal_the_reference(
    folder: Path,
    shift_labels: bool,
    mask_across_docs: bool,
    masked: bool,
    texts: list[str],
    shard_size: int,
    seq_len: int,
    seed: int,
) -> None:
    store = build(folder, texts, shard_size=shard_size)
    masks = add_masks(store.path, seed) if masked else None
    tokpress.pack(store.path, seq_len=seq_len, method="bestfit")
    store = tokpress.open(store.path)
    stream = stream_of(store, masks)
    options: dict[str, Any] = {"shift_labels": shift_labels, "mask_across_docs": mask_across_docs, "pad_id": PAD}
    for method, packing_options in METHODS:
        data = tokpress.PretokenizedDataset(
            store, seq_len=seq_len, method=method, fields=FIELDS, output="numpy", **options, **packing_options
        )
        expected = [fields_of(row_of(stream, data.packing, i), seq_len, **options) for i in range(len(data))]
        chosen = np.random.default_rng(seed).integers(0, max(len(data), 1), 5 if len(data) else 0)
        batch = data.batch(chosen)
        for name in ("input_ids", "labels", "loss_mask", "position_ids", "doc_ids"):
            assert batch[name].tolist() == [expected[i][name] for i in chosen], (method, name)
        assert_bounds(batch["cu_seqlens"], [expected[i]["cu_seqlens"] for i in chosen], seq_len)
        for i in chosen[:2].tolist():
            assert data[i]["labels"].tolist() == expected[i]["labels"]
            assert_bounds(data[i]["cu_seqlens"], [expected[i]["cu_seqlens"]], seq_len)


def assert_bounds(cu_seqlens: Any, rows: list[list[int]], seq_len: int) -> None:
    """The rows' bounds, one row after the other, then the end over and over up to a fixed size."""
    flat = [0, *(row * seq_len + bound for row, bounds in enumerate(rows) for bound in bounds[1:])]
    assert len(cu_seqlens) == len(rows) * seq_len + 1
    assert cu_seqlens.dtype == np.int32
    assert cu_seqlens.tolist() == flat + [len(rows) * seq_len] * (len(cu_seqlens) - len(flat))


class TestCuSeqlens:
    def test_has_the_size_that_was_asked_for(self, store: tokpress.Store) -> None:
        data = tokpress.PretokenizedDataset(store, seq_len=16, fields=["cu_seqlens"], max_docs=16, output="numpy")
        tight = tokpress.PretokenizedDataset(store, seq_len=16, fields=["cu_seqlens"], max_docs=6, output="numpy")
        assert len(data.batch([0, 1])["cu_seqlens"]) == 33
        assert tight.batch([3, 4])["cu_seqlens"].tolist() == data.batch([3, 4])["cu_seqlens"].tolist()[:13]

    def test_too_many_documents_for_it_are_an_error_that_says_what_to_do(self, tmp_path: Path) -> None:
        store = build(tmp_path, [""] * 40)
        data = tokpress.PretokenizedDataset(store, seq_len=16, fields=["cu_seqlens"], max_docs=3, output="numpy")
        with pytest.raises(UsageError, match=r"hold 16 documents .* room for 3 in each. Open .* larger max_docs"):
            data.batch([0])


def test_only_the_fields_that_were_asked_for_in_that_order(store: tokpress.Store) -> None:
    data = tokpress.PretokenizedDataset(store, seq_len=16, fields=["doc_ids", "input_ids"], output="numpy")
    assert list(data[0]) == ["doc_ids", "input_ids"]


def test_labels_are_no_view_of_the_inputs(store: tokpress.Store) -> None:
    """Loops write -100 into labels."""
    for shift_labels in (False, True):
        data = tokpress.PretokenizedDataset(store, seq_len=16, shift_labels=shift_labels, output="numpy")
        batch = data.batch([0, 1])
        assert not np.shares_memory(batch["labels"], batch["input_ids"])
        assert batch["input_ids"].flags.c_contiguous
        assert batch["labels"].flags.c_contiguous
