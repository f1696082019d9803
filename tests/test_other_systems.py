"""macOS does without what only Linux has; Windows is refused with a sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import tokpress
from tokpress import machine
from tokpress.cli import main
from tokpress.errors import UsageError
from tokpress.storage.local import LocalStorage

NO_LINUX = """
import os
for name in ("sched_getaffinity", "sched_setaffinity", "posix_fallocate", "memfd_create", "posix_fadvise"):
    if hasattr(os, name):
        delattr(os, name)
try:
    from pathlib import Path
    import tokpress.run.gate as gate
    gate._DESCRIPTORS = Path("/proc/no/such/thing")
except ImportError:
    pass
"""


class TestMacOS:
    @pytest.fixture(autouse=True)
    def no_affinity(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(os, "sched_getaffinity")

    def test_cores_are_the_physical_ones(self) -> None:
        assert machine.usable_cores() == (psutil.cpu_count(logical=False) or 1)

    def test_nothing_is_pinned_unasked(self) -> None:
        assert machine.cpu_sets("none") == []

    @pytest.mark.parametrize("pin", ["cores", "numa"])
    def test_pinning_is_refused_with_the_reason(self, pin: str) -> None:
        with pytest.raises(UsageError, match=f"--pin {pin} needs Linux.*Leave --pin out"):
            machine.cpu_sets(pin)

    @pytest.mark.parametrize("size", [1, 100, 3 * 2**20 + 5])
    def test_room_on_the_disk_is_taken_by_writing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
    ) -> None:
        monkeypatch.delattr(os, "posix_fallocate")
        LocalStorage(tmp_path).reserve("a", size)
        assert (tmp_path / "a").stat().st_size == size
        assert (tmp_path / "a").stat().st_blocks * 512 >= size  # no hole in it

    def test_a_store_is_the_same(self, tmp_path: Path) -> None:
        """Two worker processes and an export without any of the calls that macOS lacks."""
        (tmp_path / "site").mkdir()
        (tmp_path / "site" / "sitecustomize.py").write_text(NO_LINUX)
        text = tmp_path / "in.txt"
        text.write_text("".join(f"line {i} of this file\n" for i in range(2000)))
        script = """
import sys, tokpress
work, out = sys.argv[1:]
store = tokpress.build(work + "/in.txt", tokenizer="bytes", out=f"{out}/tokens", workers=2, format="lines",
                       unit_size="16kB", keep=[])
tokpress.export(store, to="npy", max_length=64, out=f"{out}/npy")
"""
        written = []
        for name, extra in (("linux", []), ("mac", [str(tmp_path / "site")])):
            (tmp_path / name).mkdir()
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*extra, *sys.path])}
            command = [sys.executable, "-c", script, str(tmp_path), str(tmp_path / name)]
            subprocess.run(command, check=True, env=environment)
            files = {path.relative_to(tmp_path / name) for path in (tmp_path / name).rglob("*") if path.is_file()}
            written.append({file: (tmp_path / name / file).read_bytes() for file in sorted(files) if _is_data(file)})
        assert written[0]
        assert written[0] == written[1]


def _is_data(file: Path) -> bool:
    return file.suffix in (".bin", ".ends", ".pos", ".npy")


class TestWindows:
    @pytest.fixture(autouse=True)
    def windows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "platform", "win32")

    def test_a_command_says_what_to_do(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(sys, "argv", ["tokpress", "build", "a.jsonl"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        assert "On Windows, use it inside WSL: run `wsl --install`" in capsys.readouterr().err

    @pytest.mark.parametrize("name", ["build", "Loader", "events"])
    def test_a_name_says_it_too(self, name: str) -> None:
        with pytest.raises(ImportError, match="inside WSL"):
            getattr(tokpress, name)

    def test_the_version_can_be_asked_for(self) -> None:
        assert tokpress.__version__
