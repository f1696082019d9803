"""Inputs are cut into units of about equal size, each record in exactly one."""

from __future__ import annotations

import base64
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokpress.config import BuildConfig, ReadConfig, Resources, StoreConfig, TokenizerConfig
from tokpress.documents.frame import Frame, frame_for
from tokpress.documents.splits import threshold_for
from tokpress.engines.load import reference_engine
from tokpress.options import build_config
from tokpress.records import STDIN, Input, Plan, Slice, TokenizerInfo
from tokpress.run import plan
from tokpress.run.coordinator import make_job
from tokpress.run.plan import cut_units, make_plan
from tokpress.storage.local import LocalStorage
from tokpress.store.manifest import encode


def source(size: int, kind: str = "jsonl", compression: str | None = None, path: str = "x") -> Input:
    return Input(path=path, format=kind, compression=compression, size=size, mtime_ns=0)


def cut(inputs: list[Input], unit_bytes: int) -> list[list[Slice]]:
    return cut_units(inputs, unit_bytes, ReadConfig())


sources = st.builds(
    source,
    st.integers(0, 1000),
    st.sampled_from(["jsonl", "lines", "text"]),
    st.sampled_from([None, None, "zst"]),
    st.sampled_from(["x", "x", "x", STDIN]),
)


class TestCutting:
    @given(inputs=st.lists(sources, max_size=20), unit_bytes=st.integers(1, 500))
    def test_every_record_is_in_exactly_one_unit_and_order_is_kept(self, inputs: list[Input], unit_bytes: int) -> None:
        slices = [piece for unit in cut(inputs, unit_bytes) for piece in unit]
        assert [piece.input for piece in slices] == sorted(piece.input for piece in slices)
        for index in range(len(inputs)):
            own = [piece for piece in slices if piece.input == index]
            assert own[0].start == 0
            assert own[-1].stop is None
            for before, after in pairwise(own):
                assert before.stop == after.start
                assert before.start < after.start

    @given(sizes=st.lists(st.integers(0, 1000), max_size=20), unit_bytes=st.integers(1, 500))
    def test_units_of_lines_are_of_about_the_size_asked_for(self, sizes: list[int], unit_bytes: int) -> None:
        inputs = [source(size) for size in sizes]
        for unit in cut(inputs, unit_bytes):
            size = sum((sizes[p.input] if p.stop is None else p.stop) - p.start for p in unit)
            assert size < 2 * unit_bytes + 1

    def test_nothing_gives_no_units(self) -> None:
        assert cut([], 100) == []

    def test_small_files_share_a_unit(self) -> None:
        assert cut([source(40)] * 5, 100) == [[Slice(0), Slice(1), Slice(2)], [Slice(3), Slice(4)]]

    def test_a_large_file_between_small_ones_stands_alone(self) -> None:
        inputs = [source(40), source(150, compression="zst"), source(40)]
        assert cut(inputs, 100) == [[Slice(0)], [Slice(1)], [Slice(2)]]

    @pytest.mark.parametrize("kind", ["jsonl", "lines"])
    def test_a_large_file_of_lines_is_cut_by_bytes(self, kind: str) -> None:
        assert cut([source(350, kind)], 100) == [[Slice(0, 0, 116)], [Slice(0, 116, 233)], [Slice(0, 233, None)]]

    @pytest.mark.parametrize("whole", [source(999, compression="zst"), source(999, "text"), source(0, path=STDIN)])
    def test_what_cannot_be_cut_is_one_unit(self, whole: Input) -> None:
        assert cut([whole], 100) == [[Slice(0)]]

    def test_standard_input_shares_no_unit(self) -> None:
        assert cut([source(1), source(0, path=STDIN), source(1)], 100) == [[Slice(0)], [Slice(1)], [Slice(2)]]

    def test_a_unit_has_a_limited_number_of_files(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(plan, "_MAX_FILES_A_UNIT", 3)
        assert [len(unit) for unit in cut([source(0)] * 8, 100)] == [3, 3, 2]

    @pytest.mark.parametrize("writer", [pa.ipc.new_file, pa.ipc.new_stream])
    def test_arrow_is_cut_at_its_record_batches(self, tmp_path: Path, writer: Any) -> None:
        table = pa.table({"text": ["x" * 100] * 1000})
        with writer(tmp_path / "x.arrow", table.schema) as file:
            file.write_table(table, max_chunksize=50)
        size = (tmp_path / "x.arrow").stat().st_size
        units = cut([source(size, "arrow", path=str(tmp_path / "x.arrow"))], 30_000)
        assert [(piece.start, piece.stop) for (piece,) in units] == [
            *((start, start + 300) for start in range(0, 900, 300)),
            (900, None),
        ]

    def test_compressed_arrow_is_one_unit(self, tmp_path: Path) -> None:
        table = pa.table({"text": [f"{i} " * 50 for i in range(1000)]})
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_file(tmp_path / "x.arrow", table.schema, options=options) as file:
            file.write_table(table, max_chunksize=50)
        assert cut([source(10**6, "arrow", path=str(tmp_path / "x.arrow"))], 30_000) == [[Slice(0)]]

    def test_parquet_is_cut_at_its_row_groups(self, tmp_path: Path) -> None:
        path = tmp_path / "x.parquet"
        pq.write_table(pa.table({"text": [str(i) * 100 for i in range(100)]}), path, row_group_size=10)
        size = path.stat().st_size
        units = cut([source(size, "parquet", path=str(path))], size // 4)
        starts = [unit[0].start for unit in units]
        assert starts == [0, 30, 60, 90]  # a tenth each: three of them are the first to be a quarter
        assert [unit[0].stop for unit in units] == [*starts[1:], None]

    def test_a_damaged_parquet_file_is_left_to_its_reader(self, tmp_path: Path) -> None:
        (tmp_path / "x.parquet").write_bytes(b"PAR1 and nothing more")
        assert cut([source(500, "parquet", path=str(tmp_path / "x.parquet"))], 100) == [[Slice(0)]]


class TestPlan:
    INFO = TokenizerInfo(kind="bytes", fingerprint="f", vocab_size=257, special_tokens={})
    FRAME = Frame(None, 256, 257)
    CONFIG = BuildConfig(tokenizer=TokenizerConfig(spec="bytes"))

    def planned(self, config: BuildConfig) -> bytes:
        return encode(make_plan([source(500)], config, self.INFO, self.FRAME))

    def test_does_not_depend_on_what_a_run_may_use(self) -> None:
        config = msgspec.structs.replace(self.CONFIG, resources=Resources(workers=7, batch_bytes=1))
        assert self.planned(config) == self.planned(self.CONFIG)

    def test_does_not_depend_on_the_engine(self) -> None:
        config = msgspec.structs.replace(self.CONFIG, tokenizer=TokenizerConfig(spec="bytes", engine="bytes"))
        assert self.planned(config) == self.planned(self.CONFIG)

    def test_depends_on_how_the_store_is_cut(self) -> None:
        for store in (StoreConfig(unit_bytes=100), StoreConfig(shard_bytes=100)):
            assert self.planned(msgspec.structs.replace(self.CONFIG, store=store)) != self.planned(self.CONFIG)


CHAT: dict[str, Any] = {"messages_field": "messages", "chat_template": "chat.jinja"}
FRACTION: dict[str, Any] = {"val_fraction": 0.5}
# Every field of a config that changes what is written: options around it, one value as an option, another one.
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "tokenizer.spec": ({}, {}, {"tokenizer": "bytes", "pattern": None, "added_tokens": {}}),
    "tokenizer.special_tokens": ({}, {}, {"special_tokens": "parse"}),
    "tokenizer.pattern": ({}, {}, {"pattern": "cl100k"}),
    "tokenizer.added_tokens": ({}, {}, {"added_tokens": {"<end>": 300, "<begin>": 302}}),
    "tokenizer.bos": ({}, {}, {"bos": True}),
    "tokenizer.eos": ({}, {}, {"eos": False}),
    "tokenizer.bos_token": ({"bos": True}, {}, {"bos_token": "<end>"}),
    "tokenizer.eos_token": ({}, {}, {"eos_token": "<begin>"}),
    "read.format": ({}, {}, {"format": "lines"}),
    "read.text_field": ({}, {}, {"text_field": "body"}),
    "read.separator": ({"format": "text"}, {"separator": "--"}, {"separator": "=="}),
    "read.max_doc_bytes": ({}, {}, {"max_doc_bytes": 100}),
    "read.drop_empty": ({}, {}, {"drop_empty": True}),
    "read.limit": ({}, {}, {"limit": 3}),
    "read.keep": ({}, {"keep": ["id"]}, {"keep": ["id", "url"]}),
    "template.prompt_field": ({"completion_field": "a"}, {"prompt_field": "q"}, {"prompt_field": "p"}),
    "template.completion_field": ({"prompt_field": "q"}, {"completion_field": "a"}, {"completion_field": "b"}),
    "template.prompt_separator": ({"prompt_field": "q", "completion_field": "a"}, {}, {"prompt_separator": " "}),
    "template.messages_field": (CHAT, {}, {"messages_field": "chat"}),
    "template.tools_field": (CHAT, {}, {"tools_field": "functions"}),
    "template.chat_template": (CHAT, {}, {"chat_template": "other-chat.jinja"}),
    "template.date": (CHAT, {}, {"date": "2026-01-01"}),
    "template.template": ({}, {"template": "record.jinja"}, {"template": "other-record.jinja"}),
    "template.loss": (CHAT, {}, {"loss": "last"}),
    "template.keep_empty_loss": (CHAT, {}, {"keep_empty_loss": True}),
    "template.per_turn": (CHAT, {}, {"per_turn": True}),
    "template.mask_thinking": (CHAT, {}, {"mask_thinking": True}),
    "template.mask_tool_calls": (CHAT, {}, {"mask_tool_calls": True}),
    "template.max_length": ({}, {}, {"max_length": 5}),
    "template.overlong": ({"max_length": 5}, {}, {"overlong": "drop"}),
    "split.val_fraction": ({}, FRACTION, {"val_fraction": 0.25}),
    "split.val_docs": ({}, {"val_docs": 1}, {"val_docs": 2}),
    "split.split_field": ({}, {"split_field": "part"}, {"split_field": "fold"}),
    "split.val_inputs": ({}, {"val_inputs": "b.jsonl"}, {"val_inputs": "c.jsonl"}),
    "split.split_key": (FRACTION, {}, {"split_key": "id"}),
    "split.split_seed": (FRACTION, {}, {"split_seed": 1}),
    "store.unit_bytes": ({}, {}, {"unit_size": 10**9}),
    "store.shard_bytes": ({}, {}, {"shard_size": 100}),
}
CHANGE_NOTHING = {
    *("tokenizer.engine", "check.audit_rate", "check.max_rejects", "check.on_bad_record", "check.check_receipts"),
}
OF_THE_DATASET = {"read.dataset", "read.split"}  # which inputs there are: these stand in the plan themselves
OF_THE_TEMPLATE = {"read.kind", "read.required", "read.optional"}  # what readers are told of it


def fields_of(config: BuildConfig) -> set[str]:
    sections = {name: getattr(config, name) for name in config.__struct_fields__ if name != "resources"}
    return {f"{section}.{field}" for section, options in sections.items() for field in options.__struct_fields__}


class TestOtherOptions:
    """A store of other options is never taken for this one."""

    @pytest.fixture
    def planned(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        """The plan that a build with these options has, as the coordinator makes it, and its config."""
        monkeypatch.chdir(tmp_path)
        for name in "abc":
            Path(f"{name}.jsonl").write_text('{"text": "x", "id": 1}\n' * 5)
        for which in ("", "other-"):
            Path(f"{which}chat.jinja").write_text(which + "{% for m in messages %}{{ m.content }}{% endfor %}")
            Path(f"{which}record.jinja").write_text(which + "{% loss %}{{ text }}{% endloss %}")
        Path("ranks").write_bytes(b"".join(base64.b64encode(bytes([i])) + b" %d\n" % i for i in range(256)))
        usual = {"tokenizer": "ranks", "pattern": "gpt2", "added_tokens": {"<end>": 300, "<begin>": 301}}
        usual |= {"eos_token": "<end>", "bos_token": "<begin>"}

        def make(**options: Any) -> tuple[BuildConfig, Plan]:
            options = usual | options
            if options["tokenizer"] == "bytes":
                options |= {"eos_token": None, "bos_token": None}
            config = build_config(options.pop("tokenizer"), options)  # type: ignore[arg-type]
            job = make_job(["a.jsonl"], LocalStorage("out"), config)
            info = reference_engine(job.files, config.tokenizer.special_tokens).info
            below = threshold_for(config, job.inputs)
            return config, make_plan(job.inputs, config, info, frame_for(config.tokenizer, info), below)

        return make

    def test_all_that_there_are_stand_here(self) -> None:
        known = [set(CHANGES), CHANGE_NOTHING, OF_THE_DATASET, OF_THE_TEMPLATE]
        assert set.union(*known) == fields_of(TestPlan.CONFIG)
        assert sum(map(len, known)) == len(set.union(*known))

    @pytest.mark.parametrize("field", CHANGES)
    def test_are_another_plan(self, planned: Any, field: str) -> None:
        around, this, other = CHANGES[field]
        section, name = field.split(".")
        (config, old), (changed, new) = planned(**around, **this), planned(**(around | this | other))
        assert getattr(getattr(config, section), name) != getattr(getattr(changed, section), name)
        assert encode(old) != encode(new)

    def test_what_changes_nothing_is_the_same_plan(self, planned: Any) -> None:
        options = {"engine": "tiktoken", "audit_rate": 0.5, "max_rejects": 7, "workers": 3, "memory": "9GB"}
        assert encode(planned(**options)[1]) == encode(planned()[1])
