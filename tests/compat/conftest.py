"""The peers' own readers and writers: run by `make compat`, in an environment that has them; skipped elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from formats.conftest import empty_store, make_store, small_files  # noqa: F401 - fixtures

Peer = Callable[[str], Any]


@pytest.fixture
def peer() -> Peer:
    """A module of a peer, or the test is skipped."""

    def find(name: str) -> ModuleType:
        try:
            return import_module(name)
        except ImportError as error:
            if os.environ.get("TOKPRESS_COMPAT") == "1":  # `make compat`: here they must be
                raise
            pytest.skip(f"needs {name.partition('.')[0]} ({error}); `make compat` installs it")

    return find


@pytest.fixture
def stood_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For peers that import packages of pictures and clouds, which are not here and not used for tokens."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "bench"))
    from standins import stand_in

    with stand_in():
        yield
