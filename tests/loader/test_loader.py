"""The loader: one global order, whoever asks for it, in whatever portions, from wherever."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tokpress
from tokpress.errors import StoreError, UsageError
from tokpress.loader import loader as loader_module
from tokpress.loader.batches.fields import FIELDS
from tokpress.loader.memory.buffers import BufferPool

from .conftest import SEQ_LEN

Data = tokpress.PretokenizedDataset
Sources = dict[str, Data]
Rows = list[tuple[int, ...]]

MIX: dict[str, Any] = {"weights": {"web": 3, "code": 2}, "seed": 5}
SAMPLES = 64


def rows_of(batch: dict[str, Any]) -> Rows:
    return [tuple(row) for row in batch["input_ids"].tolist()]


class Ranks:
    """All ranks of a run, in one process: a step is what they deliver together, in the order of ranks."""

    def __init__(self, data: Any, world_size: int, batch_size: int, **options: Any) -> None:
        self.loaders = [
            tokpress.Loader(data, batch_size=batch_size, rank=rank, world_size=world_size, **options)
            for rank in range(world_size)
        ]

    def load(self, state: dict[str, Any]) -> Ranks:
        for loader in self.loaders:
            loader.load_state_dict(state)
        return self

    def steps(self) -> Iterator[Rows]:
        for batches in zip(*self.loaders, strict=True):
            yield [row for batch in batches for row in rows_of(batch)]

    def take(self, steps: int) -> Rows:
        return [row for step in itertools.islice(self.steps(), steps) for row in step]

    def state(self) -> dict[str, Any]:
        """The same on all ranks."""
        first, *others = [loader.state_dict() for loader in self.loaders]
        assert all(state == first for state in others)
        return first


class TestOneEpoch:
    @pytest.mark.parametrize("shuffle", [True, False, "blocks"])
    def test_has_each_sample_once(self, data: Data, shuffle: bool | str) -> None:
        loader = tokpress.Loader(data, batch_size=7, shuffle=shuffle, drop_last=False)
        rows = [row for batch in loader for row in rows_of(batch)]
        assert Counter(rows) == Counter(tuple(data[i]["input_ids"].tolist()) for i in range(len(data)))
        stored = [tuple(data[i]["input_ids"].tolist()) for i in range(len(data))]
        assert (rows == stored) is (shuffle is False)

    def test_drops_what_does_not_fill_a_step(self, data: Data) -> None:
        loader = tokpress.Loader(data, batch_size=50)
        assert [len(rows_of(batch)) for batch in loader] == [50] * (len(data) // 50) == [50] * len(loader)

    @pytest.mark.parametrize("world_size", [2, 3, 8])
    def test_or_deals_it_out_evenly(self, data: Data, world_size: int) -> None:
        ranks = [
            tokpress.Loader(data, batch_size=5, rank=rank, world_size=world_size, drop_last=False)
            for rank in range(world_size)
        ]
        batches = [[rows_of(batch) for batch in loader] for loader in ranks]
        assert Counter(row for rank in batches for batch in rank for row in batch) == Counter(
            tuple(data[i]["input_ids"].tolist()) for i in range(len(data))
        )
        last = [len(rank[-1]) if len(rank) == len(ranks[0]) else 0 for rank in batches]
        assert max(last) - min(last) <= 1
        assert len({str(loader.state_dict()) for loader in ranks}) == 1

    def test_epochs_follow_each_other_in_new_orders_without_a_gap(self, data: Data) -> None:
        loader = tokpress.Loader(data, batch_size=10, max_epochs=3, drop_last=False)
        rows = [row for batch in loader for row in rows_of(batch)]
        epochs = [rows[i * len(data) : (i + 1) * len(data)] for i in range(3)]
        assert Counter(epochs[0]) == Counter(epochs[1]) == Counter(epochs[2])
        assert len({tuple(epoch) for epoch in epochs}) == 3

    def test_without_end(self, data: Data) -> None:
        loader = tokpress.Loader(data, batch_size=10, max_epochs=math.inf)
        assert len(list(itertools.islice(loader, 2 * len(data) // 10))) == 2 * len(data) // 10
        with pytest.raises(TypeError, match="no end, so no length"):
            len(loader)

    def test_ends_after_so_many_steps(self, data: Data) -> None:
        """With a length, which trainers ask for, over the end of an epoch and over a change of the batch size."""
        steps = len(data) // 10 + 5
        endless = tokpress.Loader(data, batch_size=10, max_epochs=math.inf)
        loader = tokpress.Loader(data, batch_size=10, max_epochs=math.inf, steps=steps)
        rows = [rows_of(batch) for batch in loader]
        assert len(rows) == len(loader) == steps
        assert rows == [rows_of(batch) for batch in itertools.islice(endless, steps)]
        with pytest.raises(UsageError, match=r"at its end, after .* samples.*a larger steps=N"):
            iter(loader)
        half = tokpress.Loader(data, batch_size=10, max_epochs=math.inf, steps=steps)
        first = [rows_of(batch) for batch in itertools.islice(half, 4)]
        wider = tokpress.Loader(data, batch_size=20, max_epochs=math.inf, steps=6)
        wider.load_state_dict(half.state_dict())
        rest = [rows_of(batch) for batch in wider]
        assert (len(rest), len(wider)) == (2, 6)
        assert [row for batch in first + rest for row in batch] == [row for batch in rows[:8] for row in batch]

    def test_ends_within_an_epoch(self, data: Data) -> None:
        assert len(list(tokpress.Loader(data, batch_size=4, steps=3))) == 3

    def test_more_steps_than_there_are_is_an_error(self, data: Data) -> None:
        with pytest.raises(UsageError, match=r"the data fills .*max_epochs=math.inf, or fewer steps"):
            tokpress.Loader(data, batch_size=10, steps=len(data))
        with pytest.raises(UsageError, match="at least one step"):
            tokpress.Loader(data, batch_size=10, steps=0)

    def test_after_the_end_says_what_to_do(self, data: Data) -> None:
        loader = tokpress.Loader(data, batch_size=10)
        list(loader)
        with pytest.raises(UsageError, match=r"at its end, after .* samples.*max_epochs=N"):
            iter(loader)

    def test_too_small_for_one_step_says_what_to_do(self, data: Data) -> None:
        with pytest.raises(
            UsageError, match=r"do not fill a single step of 4,000 .*smaller batch_size, or drop_last=False"
        ):
            iter(tokpress.Loader(data, batch_size=1000, world_size=4))

    @pytest.mark.parametrize("wrong", [{"threads": -1}, {"prefetch": 0}])
    def test_threads_that_cannot_be_are_named_at_once(self, data: Data, wrong: dict[str, int]) -> None:
        with pytest.raises(UsageError, match=r"threads=-1, .*give threads=0 or more|prefetch=0: .*at least 1"):
            tokpress.Loader(data, batch_size=4, **wrong)  # type: ignore[arg-type]

    def test_every_seed_has_its_own(self, data: Data) -> None:
        orders = {tuple(Ranks(data, 1, 8, seed=seed).take(3)) for seed in range(5)}
        assert len(orders) == 5


class TestGlobalOrder:
    """What does not change the order of samples."""

    @pytest.fixture(scope="class")
    @classmethod
    def expected(cls, sources: Sources) -> Rows:
        return Ranks(sources, 1, 1, threads=0, **MIX).take(SAMPLES)

    @pytest.mark.parametrize(("world_size", "batch_size"), [(1, 4), (1, 32), (2, 2), (4, 3), (8, 1), (3, 16)])
    @pytest.mark.parametrize("threads", [0, 1, 4])
    def test_ranks_batches_threads(
        self, sources: Sources, expected: Rows, world_size: int, batch_size: int, threads: int
    ) -> None:
        run = Ranks(sources, world_size, batch_size, threads=threads, **MIX)
        assert (
            run.take(SAMPLES // (world_size * batch_size))
            == expected[: SAMPLES // (world_size * batch_size) * world_size * batch_size]
        )

    @pytest.mark.parametrize("together", [1, 3, 1000])
    @pytest.mark.parametrize("planned", [1, 7 * 4, 8192])
    def test_how_many_steps_are_made_or_planned_at_once(
        self, sources: Sources, expected: Rows, together: int, planned: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make_and_plan(monkeypatch, sources, together, planned)
        assert Ranks(sources, 1, 4, **MIX).take(SAMPLES // 4) == expected

    def test_nor_does_it_change_any_field(
        self, store: tokpress.Store, other_store: tokpress.Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Rows of unequal widths (concat knows one token more if labels are shifted) come together, or do not."""
        options: dict[str, Any] = {"fields": FIELDS, "shift_labels": True, "mask_across_docs": True, "output": "numpy"}
        mixed = {
            "web": Data(store, seq_len=SEQ_LEN, **options),
            "code": Data(other_store, seq_len=SEQ_LEN, method="pad", **options),
        }
        runs = []
        for together, planned in ((1, 1), (1, 8192), (2, 8), (3, 8192), (1000, 8192)):
            make_and_plan(monkeypatch, mixed, together, planned)
            batches = itertools.islice(tokpress.Loader(mixed, batch_size=4, seed=5), 30)
            runs.append([{name: array.tolist() for name, array in batch.items()} for batch in batches])
        assert all(run == runs[0] for run in runs)

    def test_rank_r_takes_the_r_th_part_of_each_step(self, sources: Sources, expected: Rows) -> None:
        for rank in range(3):
            loader = tokpress.Loader(sources, batch_size=2, rank=rank, world_size=3, **MIX)
            for step, batch in enumerate(itertools.islice(loader, 5)):
                assert rows_of(batch) == expected[step * 6 + rank * 2 : step * 6 + rank * 2 + 2]


def make_and_plan(monkeypatch: pytest.MonkeyPatch, sources: Sources, together: int, planned: int) -> None:
    """So many steps of 4 are made at once, and samples planned."""
    size = together * 4 * SEQ_LEN * next(iter(sources.values())).layout.token_bytes
    monkeypatch.setattr(loader_module, "_BUNDLE_BYTES", size)
    monkeypatch.setattr(loader_module, "PLAN_SAMPLES", planned)


STAGES = {32: {"web": 1, "math": 2}}


class TestReleaseMatrix:
    """Resume at every step x world sizes x threads x batch size x mixture stage: as if nothing had happened."""

    @pytest.fixture(scope="class")
    @classmethod
    def uninterrupted(cls, sources: Sources) -> dict[bool, tuple[Rows, str]]:
        found = {}
        for staged in (False, True):
            run = Ranks(sources, 1, 8, threads=0, stages=STAGES if staged else None, **MIX)
            found[staged] = (run.take(SAMPLES // 8), run.state()["digest"])
        assert found[False][0][:32] == found[True][0][:32]
        assert found[False][0] != found[True][0]
        return found

    @pytest.mark.parametrize("world_size", [1, 2, 4, 8])
    @pytest.mark.parametrize("threads", [0, 1, 4])
    @pytest.mark.parametrize("step_samples", [8, 16])
    @pytest.mark.parametrize("staged", [False, True])
    def test_the_stream_goes_on(
        self,
        sources: Sources,
        uninterrupted: dict[bool, tuple[Rows, str]],
        world_size: int,
        threads: int,
        step_samples: int,
        staged: bool,
    ) -> None:
        rows, digest = uninterrupted[staged]
        stages = STAGES if staged else None
        before = Ranks(sources, 2, 4, threads=1, **MIX)  # knows nothing of a stage to come
        going = before.steps()
        for step in range(SAMPLES // 8):
            if step * 8 == 32:
                before = Ranks(sources, 2, 4, threads=1, stages=stages, **MIX).load(before.state())
                going = before.steps()
            after = Ranks(sources, world_size, step_samples // world_size, threads=threads, stages=stages, **MIX)
            left, rest = divmod(SAMPLES - step * 8, step_samples)
            assert after.load(before.state()).take(left) == rows[step * 8 : SAMPLES - rest]
            assert after.state()["samples"] == SAMPLES - rest
            if not rest:
                assert after.state()["digest"] == digest
            assert next(going) == rows[step * 8 : (step + 1) * 8]


class TestCheckpoints:
    def test_a_thousand_at_random_continue_identically(self, sources: Sources) -> None:
        rng = random.Random(0)
        longest = 400
        expected = Ranks(sources, 1, 1, threads=0, **MIX).take(longest + 64)
        samples, state = 0, tokpress.Loader(sources, batch_size=1, **MIX).state_dict()
        for _ in range(1000):
            world_size, batch_size = rng.choice([(1, 1), (1, 3), (2, 2), (4, 1), (1, 8)])
            if samples + 32 > longest:
                samples, state = 0, tokpress.Loader(sources, batch_size=1, **MIX).state_dict()
            run = Ranks(sources, world_size, batch_size, threads=rng.choice([0, 0, 0, 1]), **MIX).load(state)
            steps = rng.randrange(4)
            taken = run.take(steps)
            assert taken == expected[samples : samples + len(taken)]
            assert len(taken) == steps * world_size * batch_size
            samples, state = samples + len(taken), run.state()
            assert state["samples"] == samples


class TestIterators:
    def test_a_second_one_goes_on_after_what_was_delivered(self, data: Data) -> None:
        loader = tokpress.Loader(data, batch_size=4, threads=2)
        first = [rows_of(batch) for batch in itertools.islice(loader, 3)]
        second = [rows_of(batch) for batch in itertools.islice(loader, 3)]
        fresh = [rows_of(batch) for batch in itertools.islice(tokpress.Loader(data, batch_size=4), 6)]
        assert first + second == fresh

    def test_an_old_one_is_told_that_it_is_old(self, data: Data) -> None:
        loader = tokpress.Loader(data, batch_size=4)
        old = iter(loader)
        next(old)
        new = iter(loader)
        next(new)
        with pytest.raises(UsageError, match="out of date"):
            next(old)

    def test_batches_that_are_kept_are_not_written_over(self, data: Data) -> None:
        loader = tokpress.Loader(data, batch_size=4, threads=3)
        kept = list(loader)
        again = tokpress.Loader(data, batch_size=4, threads=0)
        for batch, other in zip(kept, again, strict=True):
            assert np.array_equal(batch["input_ids"], other["input_ids"])
            assert np.array_equal(batch["labels"], other["labels"])

    def test_buffers_are_used_again(self, data: Data) -> None:
        loader = tokpress.Loader(data, batch_size=2, threads=1, max_epochs=20)
        for _ in loader:
            pass
        assert isinstance(loader._allocate, BufferPool)
        assert loader._allocate.created < 60


class TestMixing:
    def test_has_the_rows_of_its_sources_in_proportion(self, sources: Sources) -> None:
        owners = {
            tuple(source[i]["input_ids"].tolist()): name for name, source in sources.items() for i in range(len(source))
        }
        rows = Ranks(sources, 1, 10, **MIX).take(8)
        assert Counter(owners[row] for row in rows) == {"web": 48, "code": 32}

    def test_fields_of_mixed_rows_are_those_of_their_sources(self, sources: Sources) -> None:
        fields = ["input_ids", "labels", "position_ids", "doc_ids", "cu_seqlens", "loss_mask"]
        options: dict[str, Any] = {"seq_len": SEQ_LEN, "fields": fields, "output": "numpy", "mask_across_docs": True}
        rich = {name: Data(source.store, **options) for name, source in sources.items()}
        loader = tokpress.Loader(rich, batch_size=6, **MIX)
        owners = {tuple(rich[n][i]["input_ids"].tolist()): (n, i) for n in rich for i in range(len(rich[n]))}
        for batch in itertools.islice(loader, 4):
            alone = [rich[name][i] for name, i in (owners[row] for row in rows_of(batch))]
            for field in ("labels", "position_ids", "doc_ids", "loss_mask"):
                assert batch[field].tolist() == [row[field].tolist() for row in alone]
            bounds = {row * SEQ_LEN + int(b) for row, one in enumerate(alone) for b in one["cu_seqlens"]}
            assert sorted(bounds) == sorted(set(batch["cu_seqlens"].tolist()))

    def test_no_sample_comes_again_before_its_source_is_used_up(self, sources: Sources) -> None:
        stages = {30: {"code": 1}, 50: {"web": 1, "code": 1}}
        loader = tokpress.Loader(sources, batch_size=1, weights={"web": 1, "code": 1}, stages=stages)
        seen = [(where.source, where.sequence) for step in range(150) for where in loader.where(step)[:1]]
        for name in ("web", "code"):
            sequences = [sequence for source, sequence in seen if source == name]
            size = len(sources[name])
            for epoch in range(0, len(sequences), size):
                assert len(set(sequences[epoch : epoch + size])) == len(sequences[epoch : epoch + size])

    def test_max_epochs_of_one_source(self, sources: Sources) -> None:
        loader = tokpress.Loader(sources, batch_size=1, weights={"web": 1, "math": 9}, max_epochs={"web": 1, "math": 1})
        assert len(loader) == len(sources["web"]) + len(sources["math"])
        rows = Counter(row for batch in loader for row in rows_of(batch))
        assert rows == Counter(
            tuple(s[i]["input_ids"].tolist()) for s in (sources["web"], sources["math"]) for i in range(len(s))
        )


class TestMistakes:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"batch_size": 0}, "a batch has at least one sequence"),
            ({"rank": 2, "world_size": 2}, "rank=2 of world_size=2"),
            ({"shuffle": "all"}, "shuffle='all' is not known"),
            ({"max_epochs": 0}, "must be a whole number from 1 on"),
            ({"max_epochs": {"x": 1}}, "max_epochs names 'x'"),
            ({"weights": {"x": 1}}, "no such source"),
        ],
    )
    def test_are_named(self, data: Data, options: dict[str, Any], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            tokpress.Loader(data, **({"batch_size": 4} | options))

    def test_sources_that_do_not_fit_together(self, sources: Sources, store: tokpress.Store) -> None:
        longer = Data(store, seq_len=SEQ_LEN + 1, output="numpy")
        with pytest.raises(UsageError, match="'web' and 'long' give different batches"):
            tokpress.Loader({"web": sources["web"], "long": longer}, batch_size=4)

    def test_a_store_too_small_for_one_sequence(self, store: tokpress.Store) -> None:
        with pytest.raises(StoreError, match=r"no sequence of 1,000,000 tokens .* tokpress inspect"):
            tokpress.Loader(Data(store, seq_len=10**6), batch_size=1)
