"""A server of the page in this process, on loopback, and a client that has its token."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

from tokpress.web.server import ViewServer
from tokpress.web.session import Session


@contextmanager
def serving(session: Session, port: int = 0) -> Iterator[ViewServer]:
    server = ViewServer(session, port=port)
    ready = threading.Event()
    thread = threading.Thread(target=server.run, args=(ready.set,), daemon=True)
    thread.start()
    assert ready.wait(20)
    try:
        yield server
    finally:
        server.server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


def token_of(server: ViewServer) -> str:
    return parse_qs(urlsplit(server.address).query)["token"][0]


def client_of(server: ViewServer) -> httpx.Client:
    client = httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False, timeout=60)
    client.headers["Authorization"] = f"Bearer {token_of(server)}"
    return client


@contextmanager
def client(stores: Sequence[str | Path], **session: Any) -> Iterator[httpx.Client]:
    with serving(Session([str(store) for store in stores], **session)) as server, client_of(server) as opened:
        yield opened
