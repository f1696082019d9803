"""A function of parameters -> an endpoint of the server.

In: functions that give a `Reply`. Out: endpoints that run them in threads, at most so many at once, and give JSON: the view,
or an error in our own words. Requests that scan wait for each other and not for quick ones; where too many wait, more are
refused at once and told so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tokpress.errors import TokpressError
from tokpress.web.parameters import Parameters
from tokpress.web.session import Session

_QUICK, _SCANS = 8, 2  # threads
_MOST_WAITING = 64


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What the page gets."""

    view: object
    python: str = ""  # what gives the same in Python


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    error: str


Answer = Callable[[Session, Parameters], Reply]
Endpoint = Callable[[Request], Awaitable[Response]]


class Answering:
    """Makes endpoints for one server, which share its threads."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._quick: anyio.CapacityLimiter | None = None  # made inside the event loop
        self._scans: anyio.CapacityLimiter | None = None
        self._waiting = 0

    def endpoint(self, answer: Answer, *, scans: bool = False) -> Endpoint:
        async def respond(request: Request) -> Response:
            if self._waiting >= _MOST_WAITING:
                return _json(503, msgspec.json.encode(Failure(error="too many requests at once. Try again.")))
            self._waiting += 1
            try:
                return await anyio.to_thread.run_sync(
                    partial(self._answer, answer, Parameters(request.query_params)), limiter=self._limiter(scans)
                )
            finally:
                self._waiting -= 1

        return respond

    def _limiter(self, scans: bool) -> anyio.CapacityLimiter:
        if self._quick is None or self._scans is None:
            self._quick, self._scans = anyio.CapacityLimiter(_QUICK), anyio.CapacityLimiter(_SCANS)
        return self._scans if scans else self._quick

    def _answer(self, answer: Answer, parameters: Parameters) -> Response:
        """In a thread: what is found is made into bytes there, too."""
        try:
            return _json(200, msgspec.json.encode(answer(self._session, parameters)))
        except IndexError as error:
            return _json(404, msgspec.json.encode(Failure(error=str(error))))
        except (TokpressError, OSError) as error:
            return _json(400, msgspec.json.encode(Failure(error=str(error))))
        finally:
            self._session.let_go()


def _json(status: int, data: bytes) -> Response:
    return Response(data, status, media_type="application/json")
