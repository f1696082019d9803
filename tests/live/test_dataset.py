"""LiveDataset: the batches that a store of the same inputs would give, without the store."""

from __future__ import annotations

import gzip
import json
import math
import threading
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from conftest import make_texts, write_jsonl

import tokpress
from tokpress import LiveDataset
from tokpress.batches import TokenBatch
from tokpress.errors import InputError, NothingWritten, ParityError, TooManyRejects, UsageError
from tokpress.live.packer import Packer
from tokpress.live.window import Place
from tokpress.loader.batches.fields import FIELDS

pytestmark = pytest.mark.timeout(120)
SHAPE: dict[str, Any] = {"seq_len": 32, "output": "numpy"}
Rows = list[list[int]]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents in all formats, bad records among them."""
    directory = tmp_path_factory.mktemp("inputs")
    texts = make_texts(60)
    bad = ["not json", "{}", '{"text": 7}']
    lines = [json.dumps({"text": text}) for text in texts[:20]]
    (directory / "a.jsonl").write_text("\n".join([bad[0], *lines[:9], *bad, *lines[9:], bad[1], ""]))
    with gzip.open(directory / "b.jsonl.gz", "wt") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts[20:40])
    pq.write_table(pa.table({"text": [*texts[40:50], None, *texts[50:]]}), directory / "c.parquet")
    return directory


@pytest.fixture(scope="module")
def store(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> tokpress.Store:
    out = tmp_path_factory.mktemp("store") / "store"
    return tokpress.build(inputs, tokenizer="bytes", out=out, unit_size=4000, shard_size=3000, max_rejects="50%")


def live_of(inputs: Path, **options: Any) -> LiveDataset:
    defaults: dict[str, Any] = {"tokenizer": "bytes", "batch_size": 3, "max_rejects": "50%", **SHAPE}
    return LiveDataset(inputs, **(defaults | options))


def _reversed(tokens: TokenBatch) -> TokenBatch:
    return TokenBatch(tokens.ids[::-1], tokens.ends)


def rows_of(batches: Any, field: str = "input_ids") -> Rows:
    return [row for batch in batches for row in batch[field].tolist()]


class TestEqualsPretokenized:
    @pytest.mark.parametrize("shift_labels", [False, True])
    @pytest.mark.parametrize("drop_last", [False, True])
    def test_in_every_field_over_epochs(
        self, inputs: Path, store: tokpress.Store, shift_labels: bool, drop_last: bool
    ) -> None:
        options: dict[str, Any] = {"fields": FIELDS, "shift_labels": shift_labels, "mask_across_docs": True, **SHAPE}
        data = tokpress.PretokenizedDataset(store, **options)
        loader = tokpress.Loader(data, batch_size=7, shuffle=False, max_epochs=3, drop_last=drop_last)
        live = live_of(inputs, batch_size=7, max_epochs=3, drop_last=drop_last, **options)
        pairs = list(zip(loader, live, strict=True))
        assert len(pairs) > 10
        for ours, theirs in pairs:
            assert list(ours) == list(theirs)
            for name in FIELDS:
                assert ours[name].dtype == theirs[name].dtype
                assert np.array_equal(ours[name], theirs[name]), name

    def test_with_real_tokenizers_and_workers(self, tmp_path: Path, spm: Path, bpe: Path) -> None:
        source = write_jsonl(tmp_path / "texts.jsonl", make_texts(300))
        for tokenizer in (spm, bpe):
            store = tokpress.build(source, tokenizer=tokenizer, out=tmp_path / tokenizer.name, bos=tokenizer == spm)
            loader = tokpress.Loader(tokpress.PretokenizedDataset(store, **SHAPE), batch_size=4, shuffle=False)
            options = {"tokenizer": tokenizer, "bos": tokenizer == spm, "workers": 3}
            live = live_of(source, batch_size=4, audit_rate=0.5, **options)
            assert rows_of(live) == rows_of(loader)
            assert live.parity.engine == store.manifest.parity.engine
            live.close()

    @pytest.mark.parametrize("rank", range(3))
    def test_of_each_rank_in_every_field(self, inputs: Path, store: tokpress.Store, rank: int) -> None:
        shape = SHAPE | {"fields": FIELDS}
        sharing: dict[str, Any] = {"batch_size": 2, "rank": rank, "world_size": 3}
        loader = tokpress.Loader(tokpress.PretokenizedDataset(store, **shape), shuffle=False, **sharing)
        for live, expected in zip(live_of(inputs, **shape, **sharing), loader, strict=True):
            assert {name: live[name].tolist() for name in FIELDS} == {name: expected[name].tolist() for name in FIELDS}

    def test_a_fast_engine_is_audited_as_it_goes(
        self, tmp_path: Path, bpe: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = write_jsonl(tmp_path / "texts.jsonl", make_texts(50))
        for audit_rate in (0.0, 1.0):
            live = live_of(source, tokenizer=bpe, audit_rate=audit_rate, prefetch=0)
            engine: Any = live._tokens.encoder.engine
            right = engine.encoder.encode
            monkeypatch.setattr(engine.encoder, "encode", lambda *a, right=right, **k: _reversed(right(*a, **k)))
            if audit_rate:
                with pytest.raises(ParityError, match="the audit found a document"):
                    next(iter(live))
            else:
                next(iter(live))

    @pytest.mark.parametrize("options", [{"drop_empty": True}, {"limit": 25}, {"eos": False}, {"limit": 0}])
    def test_with_the_options_of_a_build(self, inputs: Path, tmp_path: Path, options: dict[str, Any]) -> None:
        store = tokpress.build(inputs, tokenizer="bytes", out=tmp_path / "store", max_rejects="50%", **options)
        data = tokpress.PretokenizedDataset(store, **SHAPE)
        if not len(data):
            with pytest.raises(UsageError, match="after 0 samples"):
                list(live_of(inputs, **options))
            return
        expected = rows_of(tokpress.Loader(data, batch_size=1, shuffle=False, max_epochs=2))
        assert rows_of(live_of(inputs, batch_size=1, max_epochs=2, **options)) == expected

    def test_as_tensors_where_torch_is(self, inputs: Path) -> None:
        batch = next(iter(live_of(inputs, output="auto")))
        assert isinstance(batch["input_ids"], torch.Tensor)
        assert batch["labels"].dtype == torch.int64

    def test_whatever_is_prefetched(self, inputs: Path) -> None:
        expected = rows_of(live_of(inputs, prefetch=0))
        assert rows_of(live_of(inputs, prefetch=1)) == rows_of(live_of(inputs, prefetch=50)) == expected


class TestRanks:
    def test_share_the_rows_of_one(self, inputs: Path) -> None:
        whole = list(live_of(inputs, batch_size=6, drop_last=False))
        for world_size in (2, 3, 6):
            ranks = [
                list(live_of(inputs, batch_size=6 // world_size, rank=rank, world_size=world_size, drop_last=False))
                for rank in range(world_size)
            ]
            for step, batch in enumerate(whole):
                mine = [row for rank in ranks for row in (rank[step]["input_ids"].tolist() if step < len(rank) else [])]
                assert mine == batch["input_ids"].tolist()

    def test_have_the_same_state(self, inputs: Path) -> None:
        ranks = [live_of(inputs, rank=rank, world_size=2) for rank in range(2)]
        for batches in zip(*ranks, strict=True):
            assert len(batches) == 2
            assert ranks[0].state_dict() == ranks[1].state_dict()

    @pytest.mark.parametrize("wrong", [{"rank": 2, "world_size": 2}, {"batch_size": 0}])
    def test_that_cannot_be_are_refused(self, inputs: Path, wrong: dict[str, int]) -> None:
        with pytest.raises(UsageError):
            live_of(inputs, **wrong)


class TestResume:
    @pytest.mark.parametrize("shift_labels", [False, True])
    def test_at_every_step_with_any_ranks(self, inputs: Path, shift_labels: bool) -> None:
        options: dict[str, Any] = {"max_epochs": 2, "shift_labels": shift_labels, "seq_len": 400, "drop_last": False}
        expected = rows_of(live_of(inputs, batch_size=1, **options))
        live = live_of(inputs, batch_size=4, **options)
        states = [live.state_dict(), *(json.loads(json.dumps(live.state_dict())) for _ in live)]
        assert len(states) > 15
        assert states[-1]["place"]["epoch"] == 1
        for number, state in enumerate(states[:-1]):
            world_size = number % 3 + 1
            ranks = [live_of(inputs, batch_size=2, rank=r, world_size=world_size, **options) for r in range(world_size)]
            for rank in ranks:
                rank.load_state_dict(state)
            steps = [[batch["input_ids"].tolist() for batch in rank] for rank in ranks]
            rest = [row for k in range(len(steps[-1])) for rank in steps for row in (rank[k] if k < len(rank) else [])]
            assert rest == expected[state["samples"] :]

    @pytest.mark.parametrize("drop_empty", [False, True])
    def test_with_a_limit_it_ends_with_the_same_document(self, inputs: Path, drop_empty: bool) -> None:
        """The limit is of documents in an epoch, those before the place included."""
        options: dict[str, Any] = {
            "max_epochs": 2,
            "limit": 35,
            "drop_empty": drop_empty,
            "batch_size": 1,
            "seq_len": 800,
        }
        live = live_of(inputs, **options)
        expected, states = [], [live.state_dict()]
        for batch in live:
            expected += rows_of([batch])
            states.append(live.state_dict())
        assert {state["place"]["epoch"] for state in states} == {0, 1}
        for state in states[:-1]:
            resumed = live_of(inputs, **options)
            resumed.load_state_dict(state)
            assert rows_of(resumed) == expected[state["samples"] :]

    def test_of_one_that_was_iterated_and_left(self, inputs: Path) -> None:
        expected = rows_of(live_of(inputs))
        live = live_of(inputs)
        rows = []
        for count in (1, 2, 5, None):  # whoever iterates again goes on
            rows += rows_of(islice(live, count))
        assert rows == expected

    def test_encodes_no_more_than_the_document_that_it_is_in(self, inputs: Path) -> None:
        live = live_of(inputs, prefetch=0)
        *_, _last = live
        state = live.state_dict()
        other = live_of(inputs, prefetch=0, max_epochs=1, drop_last=False)
        other.load_state_dict(state)
        encoded: list[int] = []
        encode = other._tokens.encoder.encode
        other._tokens.encoder.encode = lambda text, **how: encoded.append(len(text)) or encode(text, **how)  # type: ignore[method-assign, func-returns-value]
        assert sum(len(batch["input_ids"]) for batch in other) < 3
        assert sum(encoded) == 60 - state["place"]["doc"]  # the documents from there on

    def test_more_epochs_later(self, inputs: Path) -> None:
        expected = rows_of(live_of(inputs, max_epochs=3))
        live = live_of(inputs, max_epochs=1)
        rows = rows_of(live)
        longer = live_of(inputs, max_epochs=3)
        longer.load_state_dict(live.state_dict())
        assert rows + rows_of(longer) == expected

    def test_from_another_directory(self, inputs: Path, tmp_path: Path) -> None:
        live = live_of(inputs)
        batches = iter(live)
        next(batches)
        for path in inputs.iterdir():
            (tmp_path / path.name).write_bytes(path.read_bytes())
        moved = live_of(tmp_path)
        moved.load_state_dict(live.state_dict())
        assert rows_of(moved) == rows_of(batches)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"seq_len": 16}, "saved with seq_len=32, here it is 16. Give seq_len=32"),
            ({"eos": False}, "saved with eos_id=256"),
            ({"limit": 5}, "saved with limit=None"),
        ],
    )
    def test_of_other_tokens_is_refused(self, inputs: Path, options: dict[str, Any], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            live_of(inputs, **options).load_state_dict(live_of(inputs).state_dict())

    def test_of_other_inputs_or_another_tokenizer_is_refused(self, inputs: Path, spm: Path) -> None:
        state = live_of(inputs).state_dict()
        with pytest.raises(UsageError, match="other inputs"):
            live_of(inputs / "a.jsonl").load_state_dict(state)
        with pytest.raises(UsageError, match="another tokenizer"):
            live_of(inputs, tokenizer=spm).load_state_dict(state)

    def test_of_inputs_that_have_grown_is_refused(self, tmp_path: Path) -> None:
        source = write_jsonl(tmp_path / "a.jsonl", make_texts(20))
        state = live_of(source).state_dict()
        write_jsonl(source, make_texts(21))
        with pytest.raises(UsageError, match="other inputs"):
            live_of(source).load_state_dict(state)

    @pytest.mark.parametrize("wrong", [{}, {"live": 2}, {"live": 1, "samples": "x"}, {"version": 1}])
    def test_of_something_else_is_refused(self, inputs: Path, wrong: dict[str, Any]) -> None:
        with pytest.raises(UsageError, match="not the state of a LiveDataset"):
            live_of(inputs).load_state_dict(wrong)


class TestBadRecords:
    def test_are_passed_over_and_counted(self, inputs: Path, store: tokpress.Store) -> None:
        live = live_of(inputs, batch_size=1)
        list(live)
        assert live.rejects == 6 == sum(shard.bad_records for shard in store.manifest.splits["train"].shards)
        assert [reject.reason for reject in live.first_rejects[:2]] == ["bad-json", "bad-json"]
        assert live.first_rejects[0].position == 0

    def test_are_counted_up_to_where_a_batch_ended(self, inputs: Path) -> None:
        live = live_of(inputs, batch_size=1)
        counts = [live.rejects for _ in live]
        assert counts == sorted(counts)
        assert (counts[0], counts[-1]) == (1, 6)
        resumed = live_of(inputs, batch_size=1)
        half = live_of(inputs, batch_size=1)
        for _ in islice(half, len(counts) // 2):
            pass
        resumed.load_state_dict(half.state_dict())
        assert [resumed.rejects for _ in resumed] == counts[len(counts) // 2 :]

    def test_too_many_stop_it(self, inputs: Path) -> None:
        with pytest.raises(TooManyRejects, match="5 of 45 records were rejected"):
            list(live_of(inputs, max_rejects=3))
        with pytest.raises(TooManyRejects, match="The first of them:"):
            list(live_of(inputs, on_bad_record="stop"))

    def test_of_a_wrong_field_are_no_endless_loop(self, inputs: Path) -> None:
        with pytest.raises(TooManyRejects, match="missing-field"):
            list(live_of(inputs / "a.jsonl", text_field="body", max_rejects="1%", max_epochs=math.inf))

    def test_alone_are_a_failure_that_names_the_fields(self, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_text('{"body": "some text", "meta": {"id": 1}}\n' * 9)
        with pytest.raises(
            NothingWritten, match=r"all 9 were rejected\.(.|\n)*line 1: missing-field(.|\n)*body, meta\.id\."
        ):
            list(live_of(tmp_path / "a.jsonl"))


class TestEnds:
    def test_a_sequence_that_the_inputs_cannot_fill(self, inputs: Path) -> None:
        with pytest.raises(UsageError, match="does not fill a step of 3"):
            list(live_of(inputs, seq_len=10**6))
        with pytest.raises(InputError, match="no sequence of 1,000,000"):
            list(live_of(inputs, seq_len=10**6, max_epochs=math.inf))

    def test_the_end_is_said_once_more(self, inputs: Path) -> None:
        live = live_of(inputs)
        list(live)
        with pytest.raises(UsageError, match="at their end"):
            list(live)

    def test_an_old_iterator_is_refused(self, inputs: Path) -> None:
        live = live_of(inputs)
        old = iter(live)
        next(old)
        next(iter(live))
        with pytest.raises(UsageError, match="out of date"):
            next(old)

    def test_so_is_one_from_before_a_state_was_loaded(self, inputs: Path) -> None:
        live = live_of(inputs)
        old = iter(live)
        next(old)
        state = live.state_dict()
        next(old)
        live.load_state_dict(state)
        with pytest.raises(UsageError, match="out of date"):
            next(old)
        assert live.state_dict() == state

    def test_a_file_that_changes_is_an_error(self, tmp_path: Path) -> None:
        source = write_jsonl(tmp_path / "a.jsonl", make_texts(50))
        live = live_of(source, max_epochs=math.inf)
        batches = iter(live)
        next(batches)
        source.write_text(source.read_text() * 2)
        with pytest.raises(InputError, match="was changed while it was being read"):
            list(batches)

    def test_standard_input_is_refused(self) -> None:
        with pytest.raises(UsageError, match="can be read only once"):
            live_of("-")  # type: ignore[arg-type]

    @pytest.mark.parametrize("wrong", [{"keep": ["id"]}, {"shuffle": True}])
    def test_options_of_others_are_refused(self, inputs: Path, wrong: dict[str, Any]) -> None:
        with pytest.raises(TypeError, match="unknown option"):
            live_of(inputs, **wrong)

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"fields": ["tokens"]}, "fields="),
            ({"dtype": "uint8"}, "dtype=uint8"),
            ({"max_epochs": 0}, "max_epochs=0"),
            ({"prefetch": -1}, "prefetch=-1"),
            ({"workers": 0}, "workers=0"),
        ],
    )
    def test_options_that_cannot_be_are_refused(self, inputs: Path, wrong: dict[str, Any], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            live_of(inputs, **wrong)

    def test_a_loop_that_is_left_leaves_no_thread(self, inputs: Path) -> None:
        before = threading.active_count()
        batches = iter(live_of(inputs, max_epochs=math.inf))
        next(batches)
        assert threading.active_count() > before
        del batches
        assert threading.active_count() == before


class TestMemory:
    def test_it_reads_no_further_ahead_than_asked_for(self, tmp_path: Path) -> None:
        """However long the inputs are, what is encoded and not delivered is about `prefetch` steps."""
        source = write_jsonl(tmp_path / "a.jsonl", ["x" * 999] * 2000)
        live = live_of(source, batch_size=4, seq_len=250, prefetch=3)
        encoded: list[int] = []
        encode = live._tokens.encoder.encode
        live._tokens.encoder.encode = lambda text, **how: encoded.append(text.nbytes) or encode(text, **how)  # type: ignore[method-assign, func-returns-value]
        ahead = [sum(encoded) - 1000 * (step + 1) for step, _ in enumerate(live)]
        assert len(ahead) == 2000
        batch_bytes = 16 * 1024
        assert max(ahead) < 4 * 1000 + 3 * batch_bytes

    def test_the_window_lets_go_of_what_was_delivered(self, tmp_path: Path) -> None:
        source = write_jsonl(tmp_path / "a.jsonl", ["x" * 999] * 500)
        packer = _packer(source)
        held = []
        while packer.rows(4) is not None:
            held.append(packer._window.tokens)
        assert max(held) < 3 * 16 * 1024


def _packer(source: Path) -> Packer:
    live = live_of(source)
    return Packer(
        live._tokens.inputs,
        live._tokens.read,
        live._tokens.encode,
        Place(),
        width=100,
        stride=100,
        max_epochs=1,
        batch_bytes=16 * 1024,
        max_rejects="1%",
        rejects=[],
    )


def test_batches_are_not_written_over(inputs: Path) -> None:
    kept = list(live_of(inputs, prefetch=4))
    assert rows_of(kept) == rows_of(live_of(inputs, prefetch=0))
