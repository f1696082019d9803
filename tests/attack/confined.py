"""Ways to run a command with less than it is used to: another user, limits, mounts, cgroups, clocks.

Each says in one line why a case is skipped where the machine does not let us.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from attack.scene import Scene
from attack.table import Outcome

NOBODY = 65534
Limits = dict[int, int]


def is_root() -> bool:
    return os.geteuid() == 0


# A Python that lies in root's home is put before the other user's eyes: in mounts that nobody else sees.
_AS_NOBODY = """
set -e
python=$1 closed=$2 umask=$3; shift 3
if [ -n "$closed" ]; then
  mount --bind $python /mnt
  mount -t tmpfs -o mode=755 tmpfs $closed
  mkdir -p $python
  mount --move /mnt $python
fi
umask $umask
exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
"""


def as_nobody(scene: Scene, umask: str = "022") -> list[str]:
    """Words before a command that is to run without any rights; none, if we have none ourselves."""
    if not is_root():
        return []
    prefix = Path(sys.executable).resolve().parents[1]
    closed = [str(parent) for parent in prefix.parents if not parent.stat().st_mode & 0o001]
    words = ["unshare", "-m", "sh", "-c", _AS_NOBODY, "sh", str(prefix), "".join(closed[-1:]), umask]
    probe = [*words, sys.executable, "-c", "import tokpress"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        scene.skip("needs a Python and a tokpress that other users may run, and unshare -m")
    return words


def limited(limits: Limits) -> Callable[[], None]:
    def limit() -> None:
        for what, most in limits.items():
            resource.setrlimit(what, (most, most))

    return limit


def in_public(scene: Scene) -> Path:
    """A directory that another user may use; the scene's store will be there. pytest's own are closed to others."""
    place = Path(tempfile.mkdtemp(prefix="tokpress-attack-"))
    scene.to_remove.append(place)
    place.chmod(0o755)
    if is_root():
        os.chown(place, NOBODY, NOBODY)
    scene.out = place / "store"
    return place


def mounted(scene: Scene, script: str, *arguments: object) -> Outcome:
    """A shell with mounts of its own, which nobody else sees and which end with it. `$TOKPRESS` is the command."""
    if not is_root() or subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        scene.skip("needs mounts of its own: run as root, where unshare -m is allowed")
    words = ["unshare", "-m", "sh", "-c", script, "sh", *map(str, arguments)]
    return scene.shell(words, TOKPRESS=f"{sys.executable} -m tokpress")


@contextmanager
def without_links(scene: Scene) -> Iterator[Path]:
    """A file system that has no links of either kind: exFAT, from a file."""
    if not is_root() or not shutil.which("mkfs.exfat") or not shutil.which("mount.exfat-fuse"):
        scene.skip("needs a file system without links: run as root, after apt-get install exfat-fuse exfatprogs")
    image, place = scene.path / "image", scene.path / "mounted"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(64 * 1024**2)
    subprocess.run(["mkfs.exfat", str(image)], check=True, capture_output=True)
    found = subprocess.run(["losetup", "-f", "--show", str(image)], check=False, capture_output=True, text=True)
    device = found.stdout.strip()
    if not device:
        scene.skip(f"needs a loop device: {found.stderr.strip()}")
    try:
        done = subprocess.run(
            ["mount.exfat-fuse", device, str(place)], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        if done.returncode:
            scene.skip("needs FUSE: mount.exfat-fuse is not allowed here")
        try:
            yield place
        finally:
            subprocess.run(["umount", str(place)], check=True)
    finally:
        subprocess.run(["losetup", "-d", device], check=True)


class Cgroup:
    """One of our own, of version 1 or 2, with a limit. Removed at the end, when its processes are gone."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def enter(self) -> None:
        """For a process that is about to start."""
        (self._path / "cgroup.procs").write_text(str(os.getpid()))

    @property
    def oom_kills(self) -> int:
        name = "memory.oom_control" if (self._path / "memory.oom_control").exists() else "memory.events"
        lines = (line.split() for line in (self._path / name).read_text().splitlines())
        return next(int(count) for word, count in lines if word == "oom_kill")


@contextmanager
def cgroup(scene: Scene, controller: str, **limits: int) -> Iterator[Cgroup]:
    """`limits` by the names of version 2; None of it where nothing can be made."""
    old = Path("/sys/fs/cgroup") / controller
    root, of_old = (old, True) if old.is_dir() else (Path("/sys/fs/cgroup"), False)
    names = {"memory_max": "memory.limit_in_bytes" if of_old else "memory.max", "pids_max": "pids.max"}
    path = root / f"tokpress-attack-{os.getpid()}-{threading.get_ident()}"
    try:
        path.mkdir()
        for name, most in limits.items():
            (path / names[name]).write_text(str(most))
    except OSError as error:
        if path.exists():
            path.rmdir()
        scene.skip(f"needs a cgroup of its own: {error}")
    try:
        yield Cgroup(path)
    finally:
        path.rmdir()


def faketime(scene: Scene) -> dict[str, str]:
    """The environment of a process whose calendar is ours. Its other clock goes on: that one cannot jump in earnest."""
    library = next((found for found in Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), None)
    if library is None:
        scene.skip("needs libfaketime: apt-get install faketime")
    return {"LD_PRELOAD": str(library), "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_NO_CACHE": "1"}


@contextmanager
def jumping_clock(path: Path, times: Sequence[str]) -> Iterator[None]:
    """Writes one of these after the other into the file that a process has its calendar from."""
    path.write_text(times[0])
    stop = threading.Event()

    def jump() -> None:
        number = 0
        while not stop.wait(0.05):
            number += 1
            new = path.with_name("clock.new")
            new.write_text(times[number % len(times)])
            new.replace(path)

    thread = threading.Thread(target=jump)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
