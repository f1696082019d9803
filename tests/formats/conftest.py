"""Stores to export."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tokpress

from .stores import Lengths, furnish, template

MakeStore = Callable[..., tokpress.Store]


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return template(tmp_path_factory.mktemp("formats") / "template")


@pytest.fixture
def make_store(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> MakeStore:
    """A store with documents of these lengths, split by split and shard by shard; a new one at every call."""

    def make(lengths: Lengths, **options: Any) -> tokpress.Store:
        directory = tmp_path_factory.mktemp("store") / "store"
        shutil.copytree(empty_store, directory)
        return tokpress.open(furnish(directory, lengths, **options), next(iter(lengths)))

    return make


LENGTHS = {"train": [[3, 0, 7, 50], [2], [], [1, 1, 300]], "val": [[5, 5]]}
