"""What is fuzzed: each target takes bytes that may be anything, and raises nothing but errors of ours.

In: bytes. Out: nothing. `TARGETS` lists them with the bytes to begin with: small valid ones, which a fuzzer changes.
"""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

import tokpress
from tokpress.config import ReadConfig
from tokpress.diagnose.samples import read_samples
from tokpress.documents.base import BadRecord
from tokpress.documents.sandbox import SandboxedTemplate
from tokpress.errors import TokpressError
from tokpress.live.state import read_state as read_live_state
from tokpress.loader.state import read_state
from tokpress.records import Manifest, Plan, Receipt
from tokpress.run.event_log import read_events
from tokpress.run.messages import decode_order, decode_reply
from tokpress.sources.base import open_reader
from tokpress.sources.files import discover
from tokpress.storage.local import LocalStorage
from tokpress.store.manifest import find_record
from tokpress.store.receipts import read_receipts

TEXTS = ["one", "", "two words", "three little words", "ümlaut 你好", "end"]
_LINES = "".join(json.dumps({"text": text, "id": i}) + "\n" for i, text in enumerate(TEXTS)).encode()


@dataclass(frozen=True)
class Target:
    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]


@cache
def scratch() -> Path:
    """Removed by `close`."""
    return Path(tempfile.mkdtemp(prefix="tokpress-fuzz-"))


def close() -> None:
    if scratch.cache_info().currsize:
        shutil.rmtree(scratch(), ignore_errors=True)


@cache
def store() -> Path:
    """A small store with several shards and a plan, which is not changed."""
    source = scratch() / "texts.jsonl"
    source.write_bytes(_LINES)
    out = scratch() / "store"
    tokpress.build(source, tokenizer="bytes", out=out, shard_size=16)
    tokpress.pack(out, seq_len=8, method="bestfit")
    return out


def _table() -> pa.Table:
    return pa.table({"text": TEXTS})


def _parquet() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(_table(), sink, row_group_size=2)
    return bytes(sink.getvalue())


def _arrow() -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, _table().schema) as writer:
        writer.write_table(_table(), max_chunksize=2)
    return bytes(sink.getvalue())


def _reader(name: str) -> Callable[[bytes], None]:
    """Every record that is read is given out or rejected, and no other error is met."""

    def run(data: bytes) -> None:
        path = scratch() / name
        path.write_bytes(data)
        with suppress(TokpressError):
            config = ReadConfig(text_field="text")
            for source in discover([path], config):
                for batch in open_reader(source, 0, config, 1024).read(0, None):
                    batch.text.validate(full=True)
                    assert len(batch.positions) == len(batch.text)

    return run


def _live(data: bytes) -> None:
    path = scratch() / "live.jsonl"
    path.write_bytes(data)
    with suppress(TokpressError):
        live = tokpress.LiveDataset(
            path, tokenizer="bytes", seq_len=4, batch_size=1, max_rejects="100%", output="numpy"
        )
        for batch in live:
            assert batch["input_ids"].shape[-1] == 4


def _record(kind: type[msgspec.Struct]) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        path = scratch() / "record.json"
        path.write_bytes(data)
        find_record(LocalStorage(path.parent), path.name, kind)

    return run


def _in_store(key: Callable[[Path], Path], use: Callable[[Path], object]) -> Callable[[bytes], None]:
    """A file of a copy of the store has these bytes instead."""

    def run(data: bytes) -> None:
        copy = scratch() / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(store(), copy)
        key(copy).write_bytes(data)
        with suppress(TokpressError, IndexError):
            use(copy)

    return run


def _read_all(place: Path) -> None:
    tokpress.verify(place)
    opened = tokpress.open(place)
    for i in range(min(len(opened), 100)):
        opened.where(i)
        opened.text(i)
    opened.summary()
    list(opened.rejects())
    tokpress.PretokenizedDataset(opened, seq_len=8, output="numpy", fields=["input_ids", "doc_ids"]).batch([0])


def _load_packed(place: Path) -> None:
    data = tokpress.PretokenizedDataset(place, seq_len=8, method="bestfit", output="numpy")
    data.batch(np.arange(min(len(data), 64)))


def _files(copy: Path) -> list[Path]:
    return sorted(path for path in copy.rglob("*") if path.is_file())


def _any_file(data: bytes) -> None:
    """The first two bytes say which file, the rest where it is changed and to what."""
    files = _files(store())
    which = int.from_bytes(data[:2], "little") % len(files)
    changed = bytearray(files[which].read_bytes())
    for at, value in zip(data[2::3], data[4::3], strict=False):
        if changed:
            changed[(at * 257 + value) % len(changed)] ^= value or 1
    name = files[which].relative_to(store())
    _in_store(lambda copy: copy / name, _read_all)(bytes(changed))


def _state(read: Callable[[Any], object]) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        with suppress(TokpressError, ValueError, RecursionError):
            read(json.loads(data))

    return run


def _loader_state() -> bytes:
    data = tokpress.PretokenizedDataset(store(), seq_len=8, output="numpy")
    return json.dumps(tokpress.Loader(data, batch_size=1).state_dict()).encode()


def _live_state() -> bytes:
    live = tokpress.LiveDataset(scratch() / "texts.jsonl", tokenizer="bytes", seq_len=8, batch_size=1)
    return json.dumps(live.state_dict()).encode()


def _import(form: str, ending: str) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        source = scratch() / f"import-{form}"
        if not source.exists():
            tokpress.export(tokpress.open(store()), to=form, out=source, copy=True)
        victim = next(path for path in _files(source) if path.name.endswith(ending))
        victim.write_bytes(data)
        out = scratch() / "imported"
        shutil.rmtree(out, ignore_errors=True)
        with suppress(TokpressError):
            made = tokpress.import_tokens(victim.parent, format=form, tokenizer="bytes", out=out)
            assert made.verify().ok

    return run


def _exported(form: str, ending: str) -> list[bytes]:
    out = scratch() / f"export-{form}"
    if not out.exists():
        tokpress.export(tokpress.open(store()), to=form, out=out, copy=True)
    return [next(path for path in _files(out) if path.name.endswith(ending)).read_bytes()]


def _template(data: bytes) -> None:
    source = data.decode("utf-8", "replace")
    with suppress(TokpressError, BadRecord):
        template = SandboxedTemplate(source, "--template", "template-failed")
        values = {"items": [1, "two", {"three": None}], "text": "abc"}
        first, second = template.render(values, 10), template.render(values, 10)
        assert first == second


def _tokenizer(data: bytes) -> None:
    path = scratch() / "tokenizer.json"
    path.write_bytes(data)
    with suppress(TokpressError):
        tokpress.ParallelTokenizer(path, workers=1)(["a text"])


def _events(data: bytes) -> None:
    path = scratch() / "events.jsonl"
    path.write_bytes(data)
    with suppress(TokpressError):
        list(read_events(path))


def _message(data: bytes) -> None:
    for decode in (decode_order, decode_reply):
        with suppress(ValueError, RecursionError):
            decode(data)


def _receipts(place: Path) -> object:
    return read_receipts(LocalStorage(place))


def _first(pattern: str) -> Callable[[Path], Path]:
    return lambda copy: sorted(copy.glob(pattern))[0]


def _of_store(pattern: str) -> Callable[[], list[bytes]]:
    return lambda: [_first(pattern)(store()).read_bytes()]


TARGETS: dict[str, Target] = {
    "jsonl": Target(_reader("a.jsonl"), lambda: [_LINES]),
    "jsonl-gz": Target(_reader("a.jsonl.gz"), lambda: [gzip.compress(_LINES, mtime=0)]),
    "jsonl-zst": Target(_reader("a.jsonl.zst"), lambda: [zstandard.compress(_LINES)]),
    "text": Target(_reader("a.txt"), lambda: ["\n".join(TEXTS).encode()]),
    "parquet": Target(_reader("a.parquet"), lambda: [_parquet()]),
    "arrow": Target(_reader("a.arrow"), lambda: [_arrow()]),
    "live": Target(_live, lambda: [_LINES]),
    "manifest": Target(_in_store(_first("manifest.json"), _read_all), _of_store("manifest.json")),
    "manifest-record": Target(_record(Manifest), _of_store("manifest.json")),
    "plan": Target(_in_store(_first("plan.json"), _read_all), _of_store("plan.json")),
    "plan-record": Target(_record(Plan), _of_store("plan.json")),
    "receipt": Target(_in_store(_first("shards/*.json"), _receipts), _of_store("shards/*.json")),
    "receipt-record": Target(_record(Receipt), _of_store("shards/*.json")),
    "ends": Target(_in_store(_first("shards/*.ends"), _read_all), _of_store("shards/*.ends")),
    "pack-index": Target(_in_store(_first("packs/*/*.json"), _load_packed), _of_store("packs/*/*.json")),
    "pack-order": Target(_in_store(_first("packs/*/order.bin"), _load_packed), _of_store("packs/*/order.bin")),
    "pack-ends": Target(_in_store(_first("packs/*/ends.bin"), _load_packed), _of_store("packs/*/ends.bin")),
    "any-file-of-a-store": Target(_any_file, lambda: [bytes([n, 0, 7, 1, 9]) for n in range(0, 40, 5)]),
    "loader-state": Target(_state(read_state), lambda: [_loader_state()]),
    "live-state": Target(_state(read_live_state), lambda: [_live_state()]),
    "import-megatron": Target(_import("megatron", ".idx"), lambda: _exported("megatron", ".idx")),
    "import-datatrove": Target(_import("datatrove", ".ds.index"), lambda: _exported("datatrove", ".ds.index")),
    "import-dolma": Target(_import("dolma", ".csv.gz"), lambda: _exported("dolma", ".csv.gz")),
    "import-llmc": Target(_import("llmc", ".bin"), lambda: _exported("llmc", ".bin")),
    "template": Target(_template, lambda: [b"{% for i in items %}{{ i | string ~ text }}{% endfor %}"]),
    "tokenizer": Target(_tokenizer, lambda: [b'{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}']),
    "events": Target(_events, lambda: [b'{"type": "Stopped", "time": 1.5}\n']),
    "message": Target(_message, lambda: [msgspec.msgpack.encode({"type": "Encoded", "unit": 3})]),
    "diagnose-samples": Target(
        lambda data: void(read_samples(data.decode("utf-8", "replace"))),
        lambda: [b"process 1: MainThread;main (train.py:3);step (/x/torch/y.py:4) 17\n"],
    ),
}


def void(_: object) -> None:
    """For what is called for its errors alone."""
