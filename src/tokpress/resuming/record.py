"""What a training process was given, step by step.

In: batches: the integer arrays among them are what counts. Out: a line a step, a digest, in a file of this rank. Modules of
torch record what they are called with while they train (`inside/sitecustomize.py`); other trainers call `record_step`
themselves. It does nothing unless `tokpress check-resume` runs the process.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import xxhash

LOG_VARIABLE = "TOKPRESS_RESUME_LOG"  # a directory: a file for each rank
STOP_VARIABLE = "TOKPRESS_RESUME_STOP"  # before this step the process kills itself
_steps = 0


def record_step(batch: Any) -> None:
    """Of a step that begins with this batch: a dictionary, a sequence, or an array."""
    global _steps
    directory = os.environ.get(LOG_VARIABLE)
    if directory is None:
        return
    stop = os.environ.get(STOP_VARIABLE)
    if stop is not None and _steps >= int(stop):
        os.kill(os.getpid(), signal.SIGKILL)  # as a machine that fails would: nothing is saved on the way out
    _steps += 1
    name = os.path.join(directory, f"{os.environ.get('RANK', '0')}.log")  # noqa: PTH118 - runs in users' processes
    with open(name, "ab", buffering=0) as file:  # noqa: PTH123 - the same
        file.write(digest(batch).encode() + b"\n")


def digest(batch: Any) -> str:
    """Of the integers in it, in order: ids, labels, positions."""
    found = xxhash.xxh3_64()
    for array in _arrays(batch):
        found.update(f"{array.shape}".encode())
        found.update(np.ascontiguousarray(array).astype(np.int64).tobytes())
    return found.hexdigest()


def _arrays(value: Any) -> Iterator[np.ndarray[Any, Any]]:
    if isinstance(value, Mapping):
        for name in sorted(value, key=str):
            yield from _arrays(value[name])
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _arrays(item)
    else:
        if hasattr(value, "detach"):  # a tensor, on whatever device
            value = value.detach().cpu().numpy() if not value.is_floating_point() else None
        if value is not None and hasattr(value, "dtype") and np.issubdtype(np.asarray(value).dtype, np.integer):
            yield np.asarray(value)
