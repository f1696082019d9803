"""Where losses of power are acted out."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 256 * 10**6


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """`tmp_path`, in memory where that can be: hundreds of stores are made there, and what a disk would lose is worked out
    by the test."""
    if not _MEMORY.is_dir() or shutil.disk_usage(_MEMORY).free < _ROOM_BYTES:
        yield tmp_path
        return
    directory = Path(tempfile.mkdtemp(prefix="tokpress-crash-", dir=_MEMORY))
    yield directory
    shutil.rmtree(directory)
