"""Who may ask, and the headers of every answer.

In: requests. Out: those that carry the token, name this server as their host and come from its own page. A name that
somebody points at 127.0.0.1 (DNS rebinding) is no host of ours; a page of another origin is refused before a route is
looked up, whether it has a cookie or not. Only GET and HEAD are known: there is nothing to write.

The token stands in the first address that is opened. It is moved into a cookie at once, which scripts cannot read, so that
no address that is copied or shown carries it.
"""

from __future__ import annotations

import hmac
import secrets
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

API = "/api/"
_METHODS = ("GET", "HEAD")
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cache-Control": "no-store",
}
_NO_TOKEN = """<!doctype html><html lang="en"><meta charset="utf-8"><title>tokpress view</title>
<h1>This page needs the token of its server</h1>
<p>Open the address that <code>tokpress view</code> printed when it was started. A server that was started again has another
one, unless <code>TOKPRESS_VIEW_TOKEN</code> is set for both.</p></html>"""


def new_token() -> str:
    return secrets.token_urlsafe(24)


class Guard:
    """Stands before the whole application."""

    def __init__(self, app: ASGIApp, *, token: str, port: int) -> None:
        self._app = app
        self._token = token
        self._cookie = f"tokpress-view-{port}"  # cookies do not know ports, and two servers may run
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._origins = {f"http://{host}" for host in self._hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        answer = self._refusal(scope) or self._admission(scope) or self._app
        await answer(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope) -> Response | None:
        """Whatever is wrong before the token is looked at."""
        headers = Headers(scope=scope)
        if headers.getlist("host") != [headers.get("host")] or headers["host"] not in self._hosts:
            return _refused(421, "this server answers only under its own address on this machine.")
        if scope["method"] not in _METHODS:
            return _refused(405, "this server only reads.", {"Allow": ", ".join(_METHODS)})
        if headers.get("origin") not in (None, *self._origins):
            return _refused(403, "requests of other pages are refused.")
        opened = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        from_outside = headers.get("sec-fetch-site") not in (None, "same-origin", "none")
        if from_outside and (scope["path"].startswith(API) or not opened):
            return _refused(403, "requests of other pages are refused.")
        return None

    def _admission(self, scope: Scope) -> Response | None:
        """None: the request has the token. An address with the token becomes one without, and a cookie."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if given and not scope["path"].startswith(API):
            if not self._is_token(given[-1]):
                return HTMLResponse(_NO_TOKEN, 403)
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            response = RedirectResponse(_own_path(scope["path"]) + (f"?{rest}" if rest else ""), 303)
            response.set_cookie(self._cookie, self._token, httponly=True, samesite="lax", path="/")
            return response
        headers = Headers(scope=scope)
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        cookie = cookie_parser(headers.get("cookie", "")).get(self._cookie, "")
        if self._is_token(cookie) or (scheme.lower() == "bearer" and self._is_token(bearer)):
            return None
        if scope["path"].startswith(API):
            return _refused(403, "the token is missing. Open the address that tokpress view printed.")
        return HTMLResponse(_NO_TOKEN, 403)

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "replace"), self._token.encode())


def _own_path(path: str) -> str:
    """Never another host: //elsewhere is one."""
    return "/" + path.lstrip("/\\")


def _refused(status: int, why: str, headers: dict[str, str] | None = None) -> Response:
    return Response(f'{{"error": "{why}"}}', status, headers, media_type="application/json")


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
