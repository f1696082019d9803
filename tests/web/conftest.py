"""One server for the tests that only read from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tokpress.web.server import ViewServer
from tokpress.web.session import Session

from . import corpora
from .serving import client_of, serving


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory, bpe: Path) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("web")
    return {"plain": corpora.plain(directory, bpe), "masked": corpora.masked(directory, bpe)}


@pytest.fixture(scope="session")
def server(places: dict[str, Path]) -> Iterator[ViewServer]:
    with serving(Session([str(place) for place in places.values()])) as running:
        yield running


@pytest.fixture
def client(server: ViewServer) -> Iterator[httpx.Client]:
    with client_of(server) as opened:
        yield opened
