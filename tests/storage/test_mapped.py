from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import page_cache
import pytest

from tokpress.storage.mapped import map_bytes

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.bin"
    with path.open("wb") as out:
        out.write(os.urandom(1_000_003))
        out.flush()
        os.fsync(out.fileno())
    return path


def test_its_bytes(file: Path) -> None:
    assert map_bytes(file).tobytes() == file.read_bytes()


def test_nothing_has_no_map(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert len(map_bytes(tmp_path / "empty")) == 0


def test_nobody_can_change_it(file: Path) -> None:
    data = map_bytes(file)
    with pytest.raises(ValueError, match="read-only"):
        data[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        data.flags.writeable = True


def test_what_is_not_there_or_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        map_bytes(tmp_path / "missing")
    with pytest.raises(IsADirectoryError):
        map_bytes(tmp_path)


@on_linux
def test_what_the_system_refuses() -> None:
    described_by_the_kernel = Path("/sys/devices/system/cpu/online")  # has a size, but no pages
    with pytest.raises(OSError, match=r"No such device.*online"):
        map_bytes(described_by_the_kernel)


@on_linux
def test_no_handle_stays_open(file: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    maps = [map_bytes(file) for _ in range(50)]
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert all((data == maps[0]).all() for data in maps)


@on_linux
def test_memory_is_let_go_with_the_last_view(file: Path) -> None:
    def mapped() -> bool:
        return str(file) in Path("/proc/self/maps").read_text()

    numbers = map_bytes(file)[:1_000_000].view(np.uint32)
    part = numbers[5:10]
    del numbers
    assert mapped()
    assert part.tobytes() == file.read_bytes()[20:40]
    del part
    assert not mapped()


@on_linux
def test_nothing_is_read_before_it_is_touched(file: Path) -> None:
    page_cache.drop(file)
    data = map_bytes(file)
    assert page_cache.resident_pages(file) == 0
    data.max()
    assert page_cache.resident_pages(file) == -(-len(data) // os.sysconf("SC_PAGESIZE"))
