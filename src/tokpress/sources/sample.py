"""Documents drawn from all over the inputs, within a byte budget.

In: the inputs and a budget. Out: text arrays, spread evenly over the files and, where a format allows it, over each
file. For the parity check, for training a tokenizer, for a look at the first document. The same inputs give the same sample.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import monotonic

import msgspec
import numpy as np
import pyarrow as pa

from tokpress.batches import TextBatch, string_buffers, text_bytes
from tokpress.config import ReadConfig
from tokpress.records import STDIN, Input
from tokpress.sources.base import Reader, open_reader
from tokpress.sources.opening import standard_input

_PROBES = 32  # places to look at
_PROBE_BATCH_BYTES = 64 * 1024
_SEARCH_BYTES = 256 * 1024  # of a file read at one place where hardly a record gives text
_STDIN_HEAD_BYTES = 1024**2
_UNPACKED = 8  # times what is read at most, that it may be without its compression
_MOST_BAD = 200  # records of a block that are looked at one by one
_MOST_SECONDS = 20.0

Place = tuple[Reader, int, int | None]  # where to read from, and where the next place is


def sample_texts(
    inputs: Sequence[Input],
    config: ReadConfig,
    *,
    total_bytes: int,
    max_doc_bytes: int | None = None,
    text_of: Callable[[TextBatch], pa.LargeStringArray] = lambda batch: batch.text,
    seen: Callable[[TextBatch], None] = lambda batch: None,  # noqa: ARG005
) -> Iterator[pa.LargeStringArray]:
    """Arrays of documents, about `total_bytes` in all, none twice. Longer documents than `max_doc_bytes` are cut to their
    head. `text_of` makes text of a batch, where that takes more than to read it. `seen` is told of every batch: of a block
    with many bad records it has the first of them. What takes long is left early."""
    until = monotonic() + _MOST_SECONDS
    with tempfile.TemporaryDirectory(prefix="tokpress-") as scratch:
        places = _places([_readable_twice(source, Path(scratch)) for source in inputs], config)
        for number, place in enumerate(places):
            if total_bytes <= 0 or monotonic() > until:
                return
            budget = total_bytes // (len(places) - number)  # what one place lacks, the later ones share
            for text in _texts_at(place, budget, max_doc_bytes, text_of, seen, until):
                total_bytes -= text_bytes(text)
                yield text


def _texts_at(
    place: Place,
    budget: int,
    max_doc_bytes: int | None,
    text_of: Callable[[TextBatch], pa.LargeStringArray],
    seen: Callable[[TextBatch], None],
    until: float,
) -> Iterator[pa.LargeStringArray]:
    reader, start, stop = place
    read_bytes = 0
    max_read_bytes = 8 * budget + _SEARCH_BYTES
    max_position = start + _UNPACKED * max_read_bytes if reader.source.compression else None
    for batch in reader.read(start, stop):
        seen(batch)
        read_bytes += batch.input_bytes
        if max_position is not None and batch.next_position > max_position:  # small on the disk, and endless
            read_bytes = max_read_bytes + 1
        whole = text_of(batch)
        text = _heads(whole, max_doc_bytes) if max_doc_bytes else whole
        text = _take_bytes(text, budget)
        budget -= text_bytes(text)
        if len(text):
            yield text
        if budget <= 0 or len(text) < len(whole) or read_bytes > max_read_bytes or monotonic() > until:
            return


def _places(inputs: Sequence[Input], config: ReadConfig) -> list[Place]:
    """Up to `_PROBES` places to read from: every file's start and, with few files, positions evenly spaced inside."""
    step = max(len(inputs) / _PROBES, 1)
    chosen = [int(i * step) for i in range(int(len(inputs) / step))]
    each = _PROBES // len(chosen)
    places: list[Place] = []
    for index in chosen:
        reader = open_reader(inputs[index], index, config, _PROBE_BATCH_BYTES)
        reader.most_bad = _MOST_BAD
        starts = sorted({reader.probe(part / each) for part in range(each)})
        places += [(reader, start, stop) for start, stop in zip(starts, [*starts[1:], None], strict=True)]
    return places


def _readable_twice(source: Input, scratch: Path) -> Input:
    if source.path != STDIN:
        return source
    head = scratch / "stdin"
    head.write_bytes(standard_input(sys.stdin.buffer).peek(_STDIN_HEAD_BYTES))
    return msgspec.structs.replace(source, path=str(head))


def _heads(text: pa.LargeStringArray, max_doc_bytes: int) -> pa.LargeStringArray:
    starts, _ = string_buffers(text)
    if not len(text) or np.diff(starts).max() <= max_doc_bytes:
        return text
    return pa.array([head(doc.as_buffer().to_pybytes(), max_doc_bytes) for doc in text], pa.large_string())


def head(document: bytes, max_bytes: int) -> str:
    """The longest prefix of whole characters within so many bytes."""
    return document[:max_bytes].decode("utf-8", "ignore")


def _take_bytes(text: pa.LargeStringArray, budget: int) -> pa.LargeStringArray:
    """The first documents up to the budget, but at least one."""
    starts, _ = string_buffers(text)
    return text[: max(int(np.searchsorted(starts - starts[0], budget, "right")) - 1, 1)]
