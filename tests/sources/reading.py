"""Files in every format, and what comes out of reading them."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import zstandard

from tokpress.batches import TextBatch
from tokpress.config import ReadConfig
from tokpress.records import Input, Reject
from tokpress.sources.base import Reader, open_reader
from tokpress.sources.files import discover

BOM = b"\xef\xbb\xbf"
BIG_BATCH = 4 * 1024**2
BATCH_SIZES = (64, 1000, BIG_BATCH)  # records straddle chunks, several fit into one, all do

Compress = Callable[[bytes], bytes]
COMPRESSORS: dict[str, Compress] = {
    "": lambda data: data,
    ".gz": lambda data: gzip.compress(data, mtime=0),
    ".zst": lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data),
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
PACKED = tuple(extension for extension in COMPRESSORS if extension)


def compress(data: bytes, extension: str, members: int = 1) -> bytes:
    """The data as one member (frame, stream) or as several, one after the other."""
    step = max(-(-len(data) // members), 1)
    parts = [data[i : i + step] for i in range(0, len(data), step)] or [b""]
    return b"".join(COMPRESSORS[extension](part) for part in parts)


def jsonl(texts: Iterable[str]) -> bytes:
    return b"".join(json.dumps({"id": i, "text": text}).encode() + b"\n" for i, text in enumerate(texts))


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


TABLE_KINDS = ("parquet", "arrow-file", "arrow-stream", "feather")


def write_table(path: Path, table: pa.Table, kind: str, rows: int = 1000) -> Path:
    """A table in one of TABLE_KINDS, with so many rows in a row group or record batch."""
    path = path.with_suffix({"parquet": ".parquet", "feather": ".feather"}.get(kind, ".arrow"))
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=rows)
    elif kind == "feather":
        pyarrow.feather.write_feather(table, path, compression="lz4", chunksize=rows)
    else:
        new = pa.ipc.new_file if kind == "arrow-file" else pa.ipc.new_stream
        with new(path, table.schema) as writer:
            for batch in table.to_batches(max_chunksize=rows):
                writer.write_batch(batch)
    return path


def describe(path: Path, **options: Any) -> Input:
    [source] = discover([path], ReadConfig(**options))
    return source


def reader_of(path: Path, batch_bytes: int = BIG_BATCH, **options: Any) -> Reader:
    return open_reader(describe(path, **options), 7, ReadConfig(**options), batch_bytes)


@dataclass(frozen=True)
class Outcome:
    """All that a reader gave."""

    texts: list[str]
    positions: list[int]
    rejects: list[Reject]
    batches: list[TextBatch]

    @property
    def documents(self) -> list[tuple[int, str]]:
        return list(zip(self.positions, self.texts, strict=True))

    @property
    def records(self) -> int:
        """How many records were read, good or bad."""
        return len(self.texts) + sum(reject.records for reject in self.rejects)

    @property
    def reasons(self) -> list[str]:
        return [reject.reason for reject in self.rejects]


def outcome(batches: Iterable[TextBatch]) -> Outcome:
    result = Outcome([], [], [], [])
    for batch in batches:
        result.texts.extend(batch.text.to_pylist())
        result.positions.extend(batch.positions.tolist())
        result.rejects.extend(batch.rejects)
        result.batches.append(batch)
    return result


def read(path: Path, start: int = 0, stop: int | None = None, batch_bytes: int = BIG_BATCH, **options: Any) -> Outcome:
    """Reads a file, or a range of it, and checks what holds for every reader and every batch."""
    result = outcome(reader_of(path, batch_bytes, **options).read(start, stop))
    done = start
    for batch in result.batches:
        batch.text.validate(full=True)
        assert batch.text.null_count == 0
        assert len(batch.text) == len(batch.positions) == len(batch.sources)
        assert batch.input == 7
        assert set(batch.sources.tolist()) <= {7}
        found = sorted([*batch.positions.tolist(), *(reject.position for reject in batch.rejects)])
        assert all(done <= position < batch.next_position for position in found)
        done = batch.next_position
    assert result.positions == sorted(set(result.positions))
    for reject in result.rejects:
        assert (reject.source, reject.input) == (str(path), 7)
        assert reject.detail
    return result


def read_ranges(path: Path, cuts: Sequence[int], batch_bytes: int = BIG_BATCH, **options: Any) -> list[Outcome]:
    """The ranges between any offsets, from the start of the file to its end."""
    bounds = [0, *sorted(cuts)]
    ends: list[int | None] = [*bounds[1:], None]
    return [read(path, start, stop, batch_bytes, **options) for start, stop in zip(bounds, ends, strict=True)]


def joined(parts: Iterable[Outcome]) -> Outcome:
    return outcome(batch for part in parts for batch in part.batches)


def same(a: Outcome, b: Outcome) -> bool:
    """The same documents and rejects at the same places, however they are batched."""
    return a.documents == b.documents and a.rejects == b.rejects


_MEASURE = """
import hashlib, json, sys
from tokpress.config import ReadConfig
from tokpress.sources.base import open_reader
from tokpress.sources.files import discover

def peak_bytes():
    with open("/proc/self/status") as status:
        [line] = [line for line in status if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024

def read(path):
    [source] = discover([path], config)
    digest = hashlib.sha256()
    reasons = []
    documents = 0
    for batch in open_reader(source, 0, config, 4 * 1024**2).read():
        for text in batch.text:
            digest.update(text.as_buffer())
        documents += len(batch)
        reasons += [reject.reason for reject in batch.rejects]
    return {"documents": documents, "reasons": reasons, "sha256": digest.hexdigest()}

config = ReadConfig(**json.loads(sys.argv[3]))
read(sys.argv[1])
before = peak_bytes()
result = read(sys.argv[2])
print(json.dumps(result | {"growth": peak_bytes() - before}))
"""


def measure(path: Path, small: Path, **options: Any) -> dict[str, Any]:
    """Reads a file in a fresh process: what came out, and by how many bytes its memory grew at most, compared with what
    it took to read a small file of the same format."""
    command = [sys.executable, "-c", _MEASURE, str(small), str(path), json.dumps(options)]
    result: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return result
