"""The routes of all views, put together.

In: a session, a token and the port it is served on. Out: an ASGI application: `/api/...` for views, `/static/...` for the
page's files, and the page itself for every address that it makes, so that each can be opened again.
"""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tokpress.web.answering import Answer, Answering, Endpoint, Reply
from tokpress.web.assets import PAGE, read_assets
from tokpress.web.parameters import Parameters
from tokpress.web.routes import compare, document, run, sequence, step, store, training
from tokpress.web.security import API, Guard
from tokpress.web.session import Session

# Addresses that the page's own script takes apart.
PAGES = ("/", "/store", "/document", "/sequence", "/step", "/compare", "/run", "/training")
_VIEWS = (store, document, sequence, step, compare, run, training)


def make_app(session: Session, *, token: str, port: int) -> ASGIApp:
    answering = Answering(session)
    quick: dict[str, Answer] = {"contents": _contents}
    scans: dict[str, Answer] = {}
    for view in _VIEWS:
        quick |= view.QUICK
        scans |= view.SCANS
    routes = [Route(API + path, answering.endpoint(answer)) for path, answer in quick.items()]
    routes += [Route(API + path, answering.endpoint(answer, scans=True)) for path, answer in scans.items()]
    routes.append(Route(f"{API}run/stream", run.stream(session)))
    asset, page = _assets()
    routes += [Route(path, page) for path in PAGES]
    routes.append(Route("/static/{path:path}", asset))
    return Guard(Starlette(routes=routes), token=token, port=port)


def _contents(session: Session, parameters: Parameters) -> Reply:  # noqa: ARG001 - an `Answer`
    return Reply(view=session.contents())


def _assets() -> tuple[Endpoint, Endpoint]:
    assets = read_assets()

    async def asset(request: Request) -> Response:
        found = assets.get(request.path_params["path"])
        if found is None:
            return Response("there is no such file", 404, media_type="text/plain")
        headers = {"ETag": found.tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == found.tag:
            return Response(status_code=304, headers=headers)
        return Response(found.data, headers=headers, media_type=found.media_type)

    async def page(request: Request) -> Response:  # noqa: ARG001 - an `Endpoint`
        return Response(assets[PAGE].data, media_type=assets[PAGE].media_type)

    return asset, page
