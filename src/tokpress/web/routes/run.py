"""A build under way: once, or again and again as it goes on (server-sent events).

Each message is the whole state, made from the events that are in the file: a page that was away, and a server that was
started again, are right with the next one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tokpress.errors import TokpressError
from tokpress.web.answering import Answer, Endpoint, Failure, Reply
from tokpress.web.parameters import Parameters
from tokpress.web.session import Session

SECONDS = 0.5  # between two looks
_STILL_SECONDS = 5.0  # after which the same is told again: the page sees that the server is there
_MOST_STREAMS = 32


def run(session: Session, parameters: Parameters) -> Reply:
    follower = session.follower(parameters.integer("run", 0))
    return Reply(view=follower.look(), python="")


def stream(session: Session) -> Endpoint:
    """Made for each server: `open_streams` are its own."""
    open_streams = 0

    async def respond(request: Request) -> Response:
        nonlocal open_streams
        try:
            follower = session.follower(Parameters(request.query_params).integer("run", 0))
        except TokpressError as error:
            return Response(msgspec.json.encode(Failure(error=str(error))), 400, media_type="application/json")
        if open_streams >= _MOST_STREAMS:
            return Response(msgspec.json.encode(Failure(error="too many pages follow runs already.")), 503)

        async def messages() -> AsyncIterator[bytes]:
            nonlocal open_streams
            open_streams += 1
            try:
                told, still = b"", 0.0
                yield b"retry: 1000\n\n"
                while True:
                    found = await anyio.to_thread.run_sync(follower.look)
                    now = msgspec.json.encode(msgspec.structs.replace(found, now=0.0))
                    if now != told or still >= _STILL_SECONDS:
                        told, still = now, 0.0
                        yield b"data: " + msgspec.json.encode(found) + b"\n\n"
                    await anyio.sleep(SECONDS)
                    still += SECONDS
            finally:
                open_streams -= 1

        return StreamingResponse(messages(), media_type="text/event-stream")

    return respond


QUICK: dict[str, Answer] = {"run": run}
SCANS: dict[str, Answer] = {}
