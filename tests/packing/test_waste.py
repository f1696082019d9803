"""What a packing says it wastes is what it wastes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import tokpress
from tokpress.packing import AnyPacking, open_packing
from tokpress.packing.waste import FILL_CLASSES, Waste, new_plot, plot_waste

from .conftest import MakeStore
from .stores import doc_spans, rows_of, seq_lens, shards_of_lengths, tokens_of

any_store = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def choices(draw: st.DrawFn) -> dict[str, Any]:
    """A method, a length and options for it."""
    seq_len = draw(seq_lens)
    sides = st.sampled_from(["left", "right"])
    options: dict[str, st.SearchStrategy[dict[str, Any]]] = {
        "concat": st.fixed_dictionaries({"overlap": st.integers(0, seq_len - 1), "keep_last": st.booleans()}),
        "bestfit": st.fixed_dictionaries({"long_docs": st.sampled_from(["split", "truncate"])}),
        "pad": st.fixed_dictionaries({"padding_side": sides, "truncation_side": sides}),
    }
    method = draw(st.sampled_from(sorted(options)))
    return {"method": method, "seq_len": seq_len} | draw(options[method])


def counted(packing: AnyPacking) -> dict[str, Any]:
    """Cell by cell."""
    rows = rows_of(packing)
    held = tokens_of(rows)
    cut = []
    for start, stop in doc_spans(packing.store):
        if stop > start and not any(set(range(start, stop)) <= set(row) for row in rows):
            cut.append(stop - start)
    fill = [0] * FILL_CLASSES
    for row in rows:
        tokens = packing.seq_len - row.count(None)
        fill[next(k for k in range(FILL_CLASSES) if tokens * FILL_CLASSES <= (k + 1) * packing.seq_len)] += 1
    return {
        "sequences": len(rows),
        "padding": sum(row.count(None) for row in rows),
        "truncated_tokens": packing.store.num_tokens - len(set(held)),
        "repeated_tokens": len(held) - len(set(held)),
        "docs_cut": len(cut),
        "docs_cut_that_fit": sum(length <= packing.seq_len for length in cut),
        "fill": fill,
    }


@any_store
@given(lengths=shards_of_lengths, choice=choices())
@example(lengths=[[1, 1]], choice={"method": "concat", "seq_len": 5, "overlap": 3})  # not one whole sequence
@example(lengths=[[1, 5, 4]], choice={"method": "concat", "seq_len": 5})  # cut, though it fits exactly
def test_counts_are_those_cell_by_cell(make_store: MakeStore, lengths: list[list[int]], choice: dict[str, Any]) -> None:
    store = make_store(lengths)
    waste = tokpress.pack(store.path, **choice)
    assert waste.facts().items() >= counted(open_packing(store, **choice)).items()
    assert (waste.method, waste.seq_len, waste.split) == (choice["method"], choice["seq_len"], "train")
    assert (waste.docs, waste.tokens) == (store.num_docs, store.num_tokens)


@any_store
@given(lengths=shards_of_lengths, choice=choices())
def test_the_account_is_closed(make_store: MakeStore, lengths: list[list[int]], choice: dict[str, Any]) -> None:
    waste = tokpress.pack(make_store(lengths).path, **choice)
    kept = waste.tokens - waste.truncated_tokens + waste.repeated_tokens
    assert waste.positions == waste.sequences * waste.seq_len == kept + waste.padding
    assert sum(waste.fill) == waste.sequences
    assert waste.efficiency == pytest.approx(kept / waste.positions if waste.positions else 1)


@any_store
@given(lengths=shards_of_lengths, seq_len=seq_lens)
def test_best_fit_cuts_nothing_that_fits(make_store: MakeStore, lengths: list[list[int]], seq_len: int) -> None:
    waste = tokpress.pack(make_store(lengths).path, seq_len=seq_len, method="bestfit")
    assert waste.docs_cut == sum(length > seq_len for shard in lengths for length in shard)
    assert waste.docs_cut_that_fit == waste.truncated_tokens == 0


@pytest.mark.parametrize("sequences", [0, 7])
def test_a_plot_is_a_png(tmp_path: Path, sequences: int) -> None:
    waste = Waste(
        method="pad",
        seq_len=10,
        split="train",
        docs=sequences,
        tokens=sequences * 4,
        sequences=sequences,
        padding=sequences * 6,
        truncated_tokens=0,
        docs_cut=0,
        fill=[0, 0, 0, sequences, 0, 0, 0, 0, 0, 0],
    )
    figure = new_plot()
    plot_waste(waste, figure)
    figure.savefig(tmp_path / "waste.png")
    assert (tmp_path / "waste.png").read_bytes().startswith(b"\x89PNG")
