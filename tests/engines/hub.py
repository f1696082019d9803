"""A hub of our own on 127.0.0.1: the few requests that downloading a tokenizer takes."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
GATED, BROKEN = "secret/model", "broken/model"  # repositories that are never served

Repositories = Mapping[str, Mapping[str, bytes]]


@contextmanager
def serve(repositories: Repositories) -> Iterator[str]:
    """Its address, as for HF_ENDPOINT."""

    class Handler(_Handler):
        served = repositories

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    served: Repositories

    def do_GET(self) -> None:
        self._answer(urlsplit(self.path).path.strip("/").split("/"))

    do_HEAD = do_GET  # noqa: N815

    def _answer(self, parts: list[str]) -> None:
        api = parts[:2] == ["api", "models"]
        owner, name, verb, _, *rest = (parts[2:] if api else parts) + [""] * 4
        repo = f"{owner}/{name}"
        if repo == GATED:
            return self._refuse(403, "GatedRepo")
        if repo == BROKEN:
            return self._refuse(500, "")
        if repo not in self.served:
            return self._refuse(404, "RepoNotFound")
        files = self.served[repo]
        if api and verb == "revision":
            return self._send(
                json.dumps({"id": repo, "sha": COMMIT, "siblings": [{"rfilename": file} for file in files]}).encode()
            )
        if api and verb == "tree":
            tree = [
                {"type": "file", "path": file, "size": len(data), "oid": _etag(data)} for file, data in files.items()
            ]
            return self._send(json.dumps(tree).encode())
        if verb == "resolve" and rest[0] in files:
            return self._send(files[rest[0]])
        return self._refuse(404, "EntryNotFound")

    def _send(self, data: bytes) -> None:
        self.send_response(200)
        self.send_header("ETag", f'"{_etag(data)}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


def _etag(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()
