"""py-spy's samples of the thread that trains.

In: stacks with counts, a line each, as `py-spy record --format raw --threads --full-filenames` writes them. Out: how many of
them were spent on what, leaving out those in calls that the watch has timed already; and the user's lines where most were
taken. A stack is judged by the libraries in it: what a model does in user code still stands under torch's `Module.__call__`.
"""

from __future__ import annotations

import re
import sysconfig
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import tokpress
from tokpress.metering.report import OTHER

_FRAME = re.compile(r".*? \((?P<file>.+):(?P<line>\d+)\)")
_WATCHED = "/tokpress_watch.py"
_KINDS = {  # the first of them that a stack has
    "tokenize": ("/transformers/tokenization", "/tokenizers/", "/sentencepiece/", "/tiktoken/", "/mistral_common/"),
    "data": (
        "/torch/utils/data/",
        "/datasets/",
        "/tokpress/loader/",
        "/tokpress/live/",
        "/webdataset/",
        "/streaming/",
        "/litdata/",
        "/tfds/",
    ),
    "compute": ("/torch/", "/jax/", "/jaxlib/", "/flax/"),
}
_LIBRARIES = ("<frozen", sysconfig.get_path("stdlib"), str(Path(tokpress.__file__).parent))


@dataclass(frozen=True, slots=True)
class Samples:
    total: int
    kinds: dict[str, int]  # without those in watched calls
    lines: list[tuple[str, int, int]]  # file, line, samples; most first


def read_samples(text: str) -> Samples:
    kinds: Counter[str] = Counter()
    lines: Counter[tuple[str, int]] = Counter()
    total = 0
    for row in text.splitlines():
        stack, _, count = row.rpartition(" ")
        thread, *names = stack.split(";")
        if not count.isdecimal() or not thread.endswith(": MainThread"):
            continue
        frames = [(match["file"], int(match["line"])) for name in names if (match := _FRAME.fullmatch(name))]
        if not frames:  # the interpreter is being torn down
            continue
        total += int(count)
        own = next((frame for frame in reversed(frames) if not _is_library(frame[0])), None)
        if own is not None:
            lines[own] += int(count)
        if not any(file.endswith(_WATCHED) for file, _ in frames):
            kinds[_kind([file for file, _ in frames])] += int(count)
    return Samples(total, dict(kinds), [(file, line, count) for (file, line), count in lines.most_common()])


def _kind(files: list[str]) -> str:
    for kind, marks in _KINDS.items():
        if any(mark in file for file in files if _is_library(file) for mark in marks):
            return kind
    return OTHER


def _is_library(file: str) -> bool:
    return file.startswith(_LIBRARIES) or "-packages/" in file or file.endswith(_WATCHED)
