"""A store in numbers."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from golden.recipes import STORES

import tokpress
from tokpress.records import RunFacts
from tokpress.store.summary import DocLengths, LengthClass, StoreSummary

NAMES = sorted(path.name for path in STORES.iterdir() if path.is_dir())


class TestSummary:
    @pytest.mark.parametrize("name", NAMES)
    def test_of_every_kept_store_is_json_and_back(self, name: str) -> None:
        store = tokpress.open(STORES / name)
        summary = store.summary()
        assert msgspec.json.decode(msgspec.json.encode(summary), type=StoreSummary) == summary
        assert summary.read == summary.written + summary.rejected
        assert sum(summary.rejects.values()) == summary.rejected
        assert summary.all_tokens == sum(split.tokens for split in store.manifest.splits.values())
        assert summary.run == store.manifest.run

    def test_is_of_one_split_and_names_the_others(self) -> None:
        store = tokpress.open(STORES / "split-field")
        summaries = {name: store.split(name).summary(lengths=False) for name in store.manifest.splits}
        assert len(summaries) > 1
        for name, summary in summaries.items():
            assert (summary.split, summary.docs, summary.tokens) == (name, *counts(store.split(name)))
            assert {other: (split.docs, split.tokens) for other, split in summary.splits.items()} == {
                other: counts(store.split(other)) for other in summaries
            }

    def test_says_how_much_is_learned_where_there_are_masks(self) -> None:
        masks = tokpress.open(STORES / "masks").summary(lengths=False)
        plain = tokpress.open(STORES / "plain").summary(lengths=False)
        assert masks.all_loss_tokens == sum(split.loss_tokens or 0 for split in masks.splits.values()) > 0
        assert (plain.loss_tokens, plain.all_loss_tokens) == (None, None)

    def test_without_lengths_reads_the_manifest_alone(self, tmp_path: Path) -> None:
        (tmp_path / "manifest.json").write_bytes((STORES / "plain" / "manifest.json").read_bytes())
        assert tokpress.open(tmp_path).summary(lengths=False).tokens_per_doc is None

    def test_an_import_has_no_rates(self) -> None:
        run = tokpress.open(STORES / "imported").summary(lengths=False).run
        assert run.is_import
        assert run == RunFacts(imported_from=run.imported_from, seconds=run.seconds, tokpress=run.tokpress)
        assert not tokpress.open(STORES / "plain").summary(lengths=False).run.is_import


def counts(store: tokpress.Store) -> tuple[int, int]:
    return store.num_docs, store.num_tokens


class TestLengths:
    def test_are_summed_up(self) -> None:
        lengths = DocLengths.of(np.array([0, 1, 2, 3, 4, 5, 1000]))
        assert (lengths.mean, lengths.p50, lengths.max, lengths.empty) == (145.0, 3, 1000, 1)
        assert lengths.histogram[:4] == [
            LengthClass(up_to=1, docs=2),
            LengthClass(up_to=2, docs=1),
            LengthClass(up_to=4, docs=2),
            LengthClass(up_to=8, docs=1),
        ]
        assert lengths.histogram[-1] == LengthClass(up_to=1024, docs=1)

    def test_of_nothing_are_zero(self) -> None:
        assert DocLengths.of(np.empty(0, np.int64)) == DocLengths(
            mean=0, p50=0, p90=0, p99=0, max=0, empty=0, histogram=[]
        )
