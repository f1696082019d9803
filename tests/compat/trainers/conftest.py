"""Which of these tests run, and that none of the trainers calls home."""

from __future__ import annotations

import os
import random

import pytest

if os.environ.get("TOKPRESS_COMPAT") == "1":  # elsewhere they are only collected; other tests have a Hub
    os.environ |= {"DO_NOT_TRACK": "1", "AXOLOTL_DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """TOKPRESS_TRAINERS=N: those of N files, chosen by a seed; 0 or nothing: all of them."""
    number = int(os.environ.get("TOKPRESS_TRAINERS") or 0)
    mine = [item for item in items if item.path.parent.name == "trainers"]
    files = sorted({item.path.name for item in mine})
    if not number or number >= len(files):
        return
    seed = os.environ.get("TOKPRESS_TRAINERS_SEED", "")
    chosen = random.Random(seed).sample(files, number)
    left_out = [item for item in mine if item.path.name not in chosen]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
    print(f"\ntrainers of seed {seed!r}: {', '.join(sorted(chosen))}")
