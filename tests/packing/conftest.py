"""Stores to pack."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import tokpress

from .stores import template, write_shards

MakeStore = Callable[..., tokpress.Store]


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return template(tmp_path_factory.mktemp("packing") / "template")


@pytest.fixture
def make_store(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> MakeStore:
    """A store whose shards hold documents of these lengths; a new one at every call."""

    def make(lengths: Sequence[Sequence[int]], split: str = "train") -> tokpress.Store:
        directory = tmp_path_factory.mktemp("store") / "store"
        shutil.copytree(empty_store, directory)
        return write_shards(directory, lengths, split)

    return make
