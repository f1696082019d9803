"""What a run may use: cores and bytes.

In: the machine as this process may use it, `--memory`, `--workers`, and what a worker was measured to hold. Out: how many
workers, and how much text each takes on at a time. None of it changes the output.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from tokpress.errors import UsageError
from tokpress.machine import available_memory, usable_cores
from tokpress.records import Input
from tokpress.run.gate import Room
from tokpress.storage.ranged import READ_BYTES

PARENT_BYTES = 150 * 10**6  # the coordinating process: imports, receipts, the view
IMPORT_BYTES = 85 * 10**6  # of these, what it holds before a run has begun
READ_COST = (
    10  # bytes held at the worst for each of a batch (line, string, text, framed ids), beside what encoding takes
)
ORDINARY_BATCHES = 2  # times its size a batch may have, the record that fills it included
ORDINARY_PART = 4  # a worker's share divided by this is for such batches; the rest is for records far larger than those
MIN_BATCH_BYTES = 256 * 1024
MAX_BATCH_BYTES = 4 * 1024**2
DEFAULT_SHARE = 0.6  # of the memory that is available


@dataclass(frozen=True, slots=True)
class Budget:
    """How a run uses what it may use."""

    memory_bytes: int
    workers: int
    batch_bytes: int
    worker_bytes: int  # what one worker may hold
    room: Room  # what of it is for text


def callers_memory() -> int:
    """Before a run: what this process holds beyond tokpress itself. It is the caller's, and none of the run's."""
    held: int = psutil.Process().memory_info().rss
    return max(held - IMPORT_BYTES, 0)


def run_memory(memory: int | None) -> int:
    """Bytes that a run may hold: `--memory`, or a share of what is available."""
    return memory or int(available_memory() * DEFAULT_SHARE)


def read_ahead_bytes(inputs: Sequence[Input]) -> int:
    """What a worker may hold of a remote input before it is asked for."""
    return READ_BYTES if any(source.is_remote for source in inputs) else 0


def check_memory(memory: int | None, footprint: int, memory_per_byte: int) -> tuple[int, int]:
    """Bytes of the whole run, and those that one worker needs; an error if the one is less than the other."""
    total = run_memory(memory)
    least = footprint + ORDINARY_BATCHES * (READ_COST + memory_per_byte) * MIN_BATCH_BYTES
    if total < PARENT_BYTES + least:
        raise UsageError(
            f"--memory {total // 10**6}MB is not enough: one worker with this tokenizer needs "
            f"{math.ceil((PARENT_BYTES + least) / 1e6)}MB. Give it that much."
        )
    return total, least


def plan_budget(
    memory: int | None, workers: int | None, footprint: int, units: int, memory_per_byte: int = 4
) -> Budget:
    """Workers and batches for a worker that holds `footprint` bytes before it has read anything, and takes
    `memory_per_byte` of text to encode it."""
    total, least = check_memory(memory, footprint, memory_per_byte)
    wanted = min(workers or usable_cores(), max(units, 1))
    cost = ORDINARY_BATCHES * (READ_COST + memory_per_byte)
    count = min(wanted, (total - PARENT_BYTES) // least)
    each = (total - PARENT_BYTES) // count
    batch = min(max((each - footprint) // ORDINARY_PART // cost, MIN_BATCH_BYTES), MAX_BATCH_BYTES)
    most = total - PARENT_BYTES - count * footprint - (count - 1) * cost * batch
    room = Room(ordinary=cost * batch, share=each - footprint, most=most, budget=total)
    return Budget(memory_bytes=total, workers=count, batch_bytes=batch, worker_bytes=each, room=room)
