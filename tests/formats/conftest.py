"""Stores to export."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tokpress
from tokpress.formats import raw

from .stores import Lengths, furnish, template

MakeStore = Callable[..., tokpress.Store]


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return template(tmp_path_factory.mktemp("formats") / "template")


@pytest.fixture(scope="module", autouse=True)
def small_files() -> Iterator[None]:
    """The shards of these tests hold a few tokens: each is a file of its own all the same, unless a test is about that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(raw, "LEAST_TOKENS", 1)
        yield


@pytest.fixture
def make_store(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> MakeStore:
    """A store with documents of these lengths, split by split and shard by shard; a new one at every call."""

    def make(lengths: Lengths, **options: Any) -> tokpress.Store:
        directory = tmp_path_factory.mktemp("store") / "store"
        shutil.copytree(empty_store, directory)
        return tokpress.open(furnish(directory, lengths, **options), next(iter(lengths)))

    return make


LENGTHS = {"train": [[3, 0, 7, 50], [2], [], [1, 1, 300]], "val": [[5, 5]]}
