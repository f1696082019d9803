"""A Hub of our own on 127.0.0.1: datasets with commits, to read and to write.

In: commits, each a set of files, and the head of a README; or what `huggingface_hub` sends: a new repository, large files
(LFS), commits. Out: answers as the Hub gives them: what a revision is, what stands in a commit, ranges of a file. It can be
told to be busy, to want a token, to take so many large files and then no more, and to lose a byte of one.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

LARGE = 1000  # bytes; larger files are kept by their sha-256


@dataclass
class Dataset:
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    card: dict[str, Any] = field(default_factory=dict)

    def commit(self, files: dict[str, bytes], branch: str = "main") -> str:
        sha = hashlib.sha1(repr(sorted(files)).encode() + str(len(self.commits)).encode()).hexdigest()
        self.commits[sha] = files
        self.branches[branch] = sha
        return sha


class HubServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.datasets: dict[str, Dataset] = {}
        self.token: str | None = None
        self.busy = 0  # so many requests from now on are answered with 429
        self.requests: list[str] = []
        self.large: dict[str, bytes] = {}  # by sha-256: what was sent, whether or not a commit names it
        self.uploads_left: int | None = None  # so many large files are taken, then none
        self.damages = False  # what arrives is changed
        self.sent = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HubServer

    def log_message(self, *arguments: Any) -> None: ...

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.requests.append(f"{self.command} {path}")
        if self.server.busy > 0:
            self.server.busy -= 1
            return self._answer(429, b"slow down", {"Retry-After": "0"})
        if self.server.token and self.headers.get("Authorization") != f"Bearer {self.server.token}":
            return self._answer(401, b"who are you", {})
        if self.command in ("POST", "PUT") and self._written(path):
            return None
        found = re.fullmatch(r"(/api)?/datasets/([^/]+/[^/]+)(?:/(revision|tree|paths-info|resolve)/(.+))?", path)
        dataset = self.server.datasets.get(found[2]) if found else None
        if found is None or dataset is None:
            return self._answer(404, b"", {"X-Error-Code": "RepoNotFound"})
        revision, _, rest = (found[4] or "main").partition("/")
        if revision == "refs":
            one, two, rest = (*rest.split("/", 2), "", "")[:3]
            revision = f"refs/{one}/{two}"
        sha = dataset.branches.get(revision, revision)
        files = dataset.commits.get(sha)
        if files is None:
            return self._answer(404, b"", {"X-Error-Code": "RevisionNotFound"})
        if found[3] == "resolve":
            return self._file(files, rest)
        if found[3] == "tree":
            below = [name for name in files if not rest or name.startswith(f"{rest}/")]
            return self._json([_entry(name, files[name]) for name in sorted(below)])
        if found[3] == "paths-info":
            asked = re.findall(r"[^&=]+=([^&]*)", self.rfile.read(int(self.headers["Content-Length"])).decode())
            names = [unquote(name.replace("+", " ")) for name in asked]
            return self._json([_entry(name, files[name]) for name in names if name in files])
        siblings = [{"rfilename": name} for name in files]
        return self._json({"id": found[2], "sha": sha, "siblings": siblings, "cardData": dataset.card})

    do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815

    def _written(self, path: str) -> bool:
        """Whether it was a request to write, which is answered then."""
        server = self.server
        if path == "/api/repos/create":
            asked = json.loads(self._body())
            name = "/".join(part for part in (asked.get("organization"), asked["name"]) if part)
            if name in server.datasets:
                there = {"error": "there is one", "url": f"{server.endpoint}/datasets/{name}"}
                self._json(there, 409)
                return True
            server.datasets[name] = Dataset()
            server.datasets[name].commit({".gitattributes": b""})
            self._json({"url": f"{server.endpoint}/datasets/{name}", "name": name})
        elif path == "/api/validate-yaml":
            self._body()
            self._json({"errors": [], "warnings": []})
        elif re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/preupload/.+", path):
            files = json.loads(self._body())["files"]
            modes = [("lfs" if file["size"] > LARGE else "regular", file["path"]) for file in files]
            self._json({"files": [{"path": name, "uploadMode": mode, "shouldIgnore": False} for mode, name in modes]})
        elif re.fullmatch(r"/datasets/([^/]+/[^/]+)\.git/info/lfs/objects/batch", path):
            objects = json.loads(self._body())["objects"]
            for item in objects:
                if item["oid"] not in server.large:
                    item["actions"] = {"upload": {"href": f"{server.endpoint}/large/{item['oid']}"}}
            self._json({"transfer": "basic", "objects": objects})
        elif found := re.fullmatch(r"/large/([0-9a-f]{64})", path):
            self._large(found[1], self._body())
        elif found := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/commit/(.+)", path):
            self._commit(server.datasets[found[1]], found[2])
        else:
            return False
        return True

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data = b""
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def _large(self, oid: str, data: bytes) -> None:
        server = self.server
        if server.uploads_left == 0 or hashlib.sha256(data).hexdigest() != oid:
            self._answer(403, b"", {})
            return
        if server.uploads_left is not None:
            server.uploads_left -= 1
        server.large[oid] = data[:-1] + b"?" if server.damages else data
        self._answer(200, b"", {})

    def _commit(self, dataset: Dataset, branch: str) -> None:
        lines = [json.loads(line) for line in self._body().splitlines()]
        files = dict(dataset.commits[dataset.branches[branch]])
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.large[value["oid"]]
        sha = dataset.commit(files, branch)
        self._json(
            {"commitUrl": f"{self.server.endpoint}/datasets/x/y/commit/{sha}", "commitOid": sha, "hookOutput": ""}
        )

    def _file(self, files: dict[str, bytes], name: str) -> None:
        data = files.get(name)
        if data is None:
            return self._answer(404, b"", {"X-Error-Code": "EntryNotFound"})
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        first, last = (int(wanted[1]), min(int(wanted[2]), len(data) - 1)) if wanted else (0, len(data) - 1)
        headers = {"Content-Range": f"bytes {first}-{last}/{len(data)}"} if wanted else {}
        self.server.sent += last + 1 - first
        return self._answer(206 if wanted else 200, data[first : last + 1], headers)

    def _json(self, value: Any, status: int = 200) -> None:
        self._answer(status, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _entry(name: str, data: bytes) -> dict[str, Any]:
    blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    entry: dict[str, Any] = {"type": "file", "path": name, "size": len(data), "oid": blob}
    if len(data) > LARGE:
        entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
    return entry


@contextmanager
def serve_hub() -> Iterator[HubServer]:
    server = HubServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
