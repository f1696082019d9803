"""A server of the page, on this machine alone.

In: a session. Out: a server on a port of 127.0.0.1 that runs until it is stopped, and its address with the token.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress

import uvicorn

from tokpress.errors import UsageError
from tokpress.web.app import make_app
from tokpress.web.parameters import MOST_CHARS
from tokpress.web.security import new_token
from tokpress.web.session import Session

HOST = "127.0.0.1"
TOKEN_VARIABLE = "TOKPRESS_VIEW_TOKEN"  # the same for a server that is started again: its pages go on
_LEAST_TOKEN_CHARS = 16
_MOST_CONNECTIONS = 200
_HEADER_BYTES = 16 * MOST_CHARS  # an address with a text in it: a character may take 12 bytes


class ViewServer:
    """`address` can be opened as soon as it is made; `run` answers."""

    def __init__(self, session: Session, *, port: int = 0) -> None:
        self._session = session
        self._token = _token()
        self._socket = _bound(port)
        self.port: int = self._socket.getsockname()[1]
        app = make_app(session, token=self._token, port=self.port)
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="off",
            access_log=False,
            log_level="error",
            server_header=False,
            date_header=False,
            proxy_headers=False,
            limit_concurrency=_MOST_CONNECTIONS,
            h11_max_incomplete_event_size=_HEADER_BYTES,
            timeout_graceful_shutdown=1,
        )
        self.server = uvicorn.Server(config)

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}/?token={self._token}"

    def run(self, ready: Callable[[], None] | None = None) -> None:
        """Until Ctrl-C. `ready` is called when it listens: the socket does so from here on."""
        self._socket.listen(128)
        threading.Thread(target=self._session.warm, daemon=True).start()
        if ready is not None:
            ready()
        try:
            with suppress(KeyboardInterrupt):
                self.server.run(sockets=[self._socket])
        finally:
            self.close()

    def close(self) -> None:
        self._socket.close()


def open_browser(address: str) -> bool:
    """Whether there is one."""
    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False


def _bound(port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((HOST, port))
    except OSError as error:
        bound.close()
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        raise UsageError(
            f"--port {port}: {error.strerror}. Choose another, or leave it out: a free one is found."
        ) from error
    return bound


def _token() -> str:
    given = os.environ.get(TOKEN_VARIABLE)
    if given is None:
        return new_token()
    if len(given) < _LEAST_TOKEN_CHARS or not given.isascii() or not given.replace("-", "").replace("_", "").isalnum():
        raise UsageError(
            f"{TOKEN_VARIABLE} has to be {_LEAST_TOKEN_CHARS} letters, digits, - and _ at least: it is all that keeps "
            "others on this machine out. Unset it: then one is made."
        )
    return given
