"""The state: small, plain, the same everywhere, and refused where it does not belong."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

import tokpress
from tokpress.errors import UsageError
from tokpress.loader.state import read_state

from .conftest import SEQ_LEN, build, make_texts

Data = tokpress.PretokenizedDataset


def after(loader: tokpress.Loader, steps: int) -> dict[str, Any]:
    for _ in itertools.islice(loader, steps):
        pass
    return loader.state_dict()


class TestRecord:
    def test_is_small_and_goes_through_json(self, sources: dict[str, Data]) -> None:
        state = after(tokpress.Loader(sources, batch_size=4, stages={100: {"math": 1}}), 5)
        assert len(json.dumps(state)) < 2000
        loader = tokpress.Loader(sources, batch_size=4, stages={100: {"math": 1}})
        loader.load_state_dict(json.loads(json.dumps(state)))
        assert loader.state_dict() == state

    def test_counts_what_was_delivered_and_not_what_was_made(self, data: Data) -> None:
        loader = tokpress.Loader(data, batch_size=4, threads=4, prefetch=8)
        batches = iter(loader)
        assert loader.state_dict()["samples"] == 0
        for step in range(1, 6):
            next(batches)
            assert loader.state_dict()["samples"] == 4 * step
            assert loader.state_dict()["step"] == step

    def test_does_not_depend_on_how_samples_were_batched(self, data: Data) -> None:
        digests = {
            after(tokpress.Loader(data, batch_size=size, threads=size % 2), 24 // size)["digest"]
            for size in (1, 2, 3, 8, 24)
        }
        assert len(digests) == 1

    def test_its_digest_tells_histories_apart(self, data: Data) -> None:
        runs: list[dict[str, Any]] = [{}, {"seed": 1}, {"shuffle": False}, {"shuffle": "blocks"}]
        digests = {after(tokpress.Loader(data, batch_size=4, **options), 5)["digest"] for options in runs}
        digests |= {after(tokpress.Loader(data, batch_size=4), 4)["digest"]}
        assert len(digests) == 5

    def test_its_digest_tells_sources_apart(self, data: Data) -> None:
        """Also where the same sequences of them were drawn at the same time."""
        both = {"one": data, "other": data}
        runs = [tokpress.Loader(both, batch_size=4, shuffle=False, weights={name: 1}) for name in both]
        one, other = [after(loader, 5) for loader in runs]
        assert one["samples"] == other["samples"]
        assert one["digest"] != other["digest"]

    def test_keeps_how_steps_and_samples_belong_together(self, data: Data) -> None:
        first = tokpress.Loader(data, batch_size=4)
        second = tokpress.Loader(data, batch_size=6)
        second.load_state_dict(after(first, 3))
        state = after(second, 2)
        assert state["batches"] == [{"sample": 0, "step": 0, "size": 4}, {"sample": 12, "step": 3, "size": 6}]
        assert (state["samples"], state["step"]) == (24, 5)
        assert len(second) == 3 + (len(data) - 12) // 6

    def test_of_a_finished_run_is_taken_and_at_its_end(self, data: Data) -> None:
        """A job that is started once more after its end is told that nothing is left, and not that its state is wrong."""
        finished = tokpress.Loader(data, batch_size=len(data))
        state = after(finished, 1)
        again = tokpress.Loader(data, batch_size=len(data))
        again.load_state_dict(state)
        assert again.state_dict() == state
        with pytest.raises(UsageError, match="the loader is at its end"):
            next(iter(again))

    def test_a_finished_run_goes_on_with_more_epochs_where_it_ended(self, data: Data) -> None:
        """Its last step was not full; not a sample is left out or comes twice."""
        size = len(data) // 3 + 1
        finished = tokpress.Loader(data, batch_size=size, drop_last=False)
        state = after(finished, len(finished))
        assert state["samples"] == len(data) < len(finished) * size
        more = tokpress.Loader(data, batch_size=size, drop_last=False, max_epochs=2)
        more.load_state_dict(state)
        assert more.where(2) == finished.where(2)
        rows = [tuple(row) for batch in more for row in batch["input_ids"].tolist()]
        assert sorted(rows) == sorted(tuple(data[i]["input_ids"].tolist()) for i in range(len(data)))
        assert more.state_dict()["samples"] == 2 * len(data)
        straight = tokpress.Loader(data, batch_size=size, drop_last=False, max_epochs=2)
        assert more.state_dict()["digest"] == after(straight, len(straight))["digest"]


class TestRefused:
    def state(self, data: Data, **options: Any) -> dict[str, Any]:
        return after(tokpress.Loader(data, batch_size=4, **options), 5)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"seed": 1}, "saved with seed 0, this loader has 1.*Make the loader with seed 0"),
            ({"shuffle": False}, "saved with shuffle 'samples', this loader has 'none'"),
        ],
    )
    def test_another_order(self, data: Data, options: dict[str, Any], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            tokpress.Loader(data, batch_size=4, **options).load_state_dict(self.state(data))

    def test_another_store(self, data: Data, tmp_path: Path) -> None:
        other = Data(build(tmp_path, make_texts(150, 9)), seq_len=SEQ_LEN)
        with pytest.raises(UsageError, match="source 'data' is not what it was: its fingerprint was"):
            tokpress.Loader(other, batch_size=4).load_state_dict(self.state(data))

    @pytest.mark.parametrize(
        ("options", "field"),
        [({"seq_len": 8}, "seq_len"), ({"method": "pad"}, "packing"), ({"shift_labels": True}, "packing")],
    )
    def test_the_same_store_cut_otherwise(self, data: Data, options: dict[str, Any], field: str) -> None:
        changed: dict[str, Any] = {"seq_len": SEQ_LEN, "output": "numpy"} | options
        other = Data(data.store, **changed)
        with pytest.raises(UsageError, match=f"its {field} was"):
            tokpress.Loader(other, batch_size=4).load_state_dict(self.state(data))

    def test_another_past_of_the_mixture_with_what_to_do(self, sources: dict[str, Data]) -> None:
        state = after(tokpress.Loader(sources, batch_size=4, weights={"web": 1}), 5)
        changed = tokpress.Loader(sources, batch_size=4, weights={"code": 1, "web": 1})
        with pytest.raises(UsageError, match=r"up to sample 20 the state's mixture was .* add stages=\{20: ...\}"):
            changed.load_state_dict(state)
        right = tokpress.Loader(sources, batch_size=4, weights={"web": 1}, stages={20: {"code": 1, "web": 1}})
        right.load_state_dict(state)

    def test_a_source_that_is_gone(self, sources: dict[str, Data]) -> None:
        state = after(tokpress.Loader(sources, batch_size=4), 5)
        with pytest.raises(UsageError, match="a source 'math', which this loader does not have"):
            tokpress.Loader({name: sources[name] for name in ("web", "code")}, batch_size=4).load_state_dict(state)

    def test_a_source_that_was_never_used_may_go(self, sources: dict[str, Data]) -> None:
        state = after(tokpress.Loader(sources, batch_size=4, weights={"web": 1}), 5)
        tokpress.Loader({"web": sources["web"]}, batch_size=4).load_state_dict(state)

    @pytest.mark.parametrize("wrong", [{}, {"version": 99}, {"epoch": 3}])
    def test_what_is_no_state(self, data: Data, wrong: dict[str, Any]) -> None:
        with pytest.raises(UsageError, match="not the state of a tokpress loader"):
            tokpress.Loader(data, batch_size=4).load_state_dict(wrong)

    def test_a_damaged_one(self, data: Data) -> None:
        state = self.state(data) | {"samples": "many"}
        with pytest.raises(UsageError, match=r"not a loader's state: .*samples"):
            tokpress.Loader(data, batch_size=4).load_state_dict(state)

    def test_one_beyond_the_end(self, data: Data) -> None:
        state = self.state(data, max_epochs=3) | {"samples": 2 * len(data)}
        with pytest.raises(UsageError, match=r"at sample .*, this loader ends at .* Raise max_epochs"):
            tokpress.Loader(data, batch_size=4).load_state_dict(state)

    def test_and_the_loader_is_as_before(self, data: Data) -> None:
        loader = tokpress.Loader(data, batch_size=4, seed=1)
        before = after(loader, 2)
        with pytest.raises(UsageError):
            loader.load_state_dict(self.state(data))
        assert loader.state_dict() == before


class TestNoState:
    @pytest.mark.parametrize("state", [None, 5, "x", b"x", [], {}, {"version": 1}, {"version": 1, 3: 4}])
    def test_what_no_loader_wrote_is_refused_in_our_words(self, state: Any) -> None:
        with pytest.raises(UsageError, match="Give load_state_dict what state_dict returned"):
            read_state(state)
