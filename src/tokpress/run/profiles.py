"""`--profile FILE`: what each process of a run spent its time on, joined into one file."""

from __future__ import annotations

import cProfile
import os
import pstats
from pathlib import Path

_PART = ".part-"  # each process writes its own


def write_part(profile: cProfile.Profile, file: str) -> None:
    profile.dump_stats(f"{file}{_PART}{os.getpid()}")


def join_profiles(file: str) -> None:
    path = Path(file)
    parts = [str(part) for part in path.parent.glob(f"{path.name}{_PART}*")]
    if parts:
        pstats.Stats(*parts).dump_stats(path)
    for part in parts:
        Path(part).unlink()
