"""A small S3 server that misbehaves when told to.

In: requests, and faults: what goes wrong with which requests, how often. Out: answers as S3 gives them, and a list of the
faults that have fired. It keeps objects in a dict and checks no signature. Google's XML interface is the same but for the
names of some headers, so it stands in for that, too.
"""

from __future__ import annotations

import hashlib
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

KINDS = ("403", "409", "429", "503", "lost", "reset", "stall", "torn")


@dataclass
class Fault:
    """`kind` befalls requests of these methods whose key matches, `left` times, after `skip` of them."""

    kind: str
    methods: str = "GET|PUT|POST|HEAD|DELETE|LIST"
    key: str = ""
    left: int = 1
    skip: int = 0


@dataclass
class Bucket:
    objects: dict[str, tuple[bytes, dict[str, str]]] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    marks: dict[str, dict[str, str]] = field(default_factory=dict)  # of what is put in parts


class S3Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *, ignore_conditions: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bucket = Bucket()
        self.lock = threading.Lock()
        self.faults: list[Fault] = []
        self.fired: list[tuple[str, str, str]] = []  # kind, method, key
        self.requests: list[tuple[str, str]] = []
        self.sent = 0  # bytes of objects
        self.ignore_conditions = ignore_conditions
        self.released = threading.Event()
        self.before: Callable[[str, str], object] = lambda method, key: None  # called with every request

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def contents(self, prefix: str = "") -> dict[str, bytes]:
        with self.lock:
            return {key: data for key, (data, _) in self.bucket.objects.items() if key.startswith(prefix)}

    def fault_for(self, method: str, key: str) -> Fault | None:
        with self.lock:
            self.requests.append((method, key))
            for fault in self.faults:
                if fault.left and re.fullmatch(fault.methods, method) and re.search(fault.key, key):
                    if fault.skip:
                        fault.skip -= 1
                        continue
                    fault.left -= 1
                    self.fired.append((fault.kind, method, key))
                    return fault
        return None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: S3Server

    def log_message(self, *arguments: Any) -> None: ...

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def handle_one_request(self) -> None:
        self.body_left = 0
        super().handle_one_request()

    def _begin(self, method: str) -> tuple[str, dict[str, str], str | None]:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        key = unquote(parts.path).split("/", 2)[2] if parts.path.count("/") > 1 else ""
        if method == "GET" and "list-type" in query:
            method, key = "LIST", query.get("prefix", "")
        self.server.before(method, key)
        fault = self.server.fault_for(method, key)
        kind = fault.kind if fault else None
        if kind in ("503", "429", "409", "403"):
            self._body()
            self._answer(
                int(kind), b"<Error><Code>SlowDown</Code></Error>", {"Retry-After": "1"} if kind == "429" else {}
            )
            raise _Answered
        if kind == "stall":
            self._body()
            self.server.released.wait(30)
            raise _HangUp
        if kind == "reset" and method in ("PUT", "POST", "DELETE"):
            self.rfile.read(int(self.headers.get("Content-Length") or 0) // 2)
            raise _HangUp
        return key, query, kind

    def _body(self) -> bytes:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            raise NotImplementedError("chunked bodies")
        return data

    def _answer(
        self, status: int, data: bytes = b"", headers: dict[str, str] | None = None, *, cut: bool = False
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if "Content-Length" not in (headers or {}):
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[: len(data) // 2] if cut else data)
        if cut:
            self.wfile.flush()
            raise _HangUp

    def _serve(self, method: str) -> None:
        try:
            key, query, kind = self._begin(method)
            getattr(self, f"_{method.lower()}")(key, query, kind)
        except _Answered:
            pass
        except _HangUp:
            self.close_connection = True
            with_reset = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, with_reset)
            self.connection.close()

    def do_GET(self) -> None:
        self._serve("GET")

    def do_HEAD(self) -> None:
        self._serve("HEAD")

    def do_PUT(self) -> None:
        self._serve("PUT")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def _get(self, key: str, query: dict[str, str], kind: str | None) -> None:
        if "list-type" in query:
            self._list(query, cut=kind in ("reset", "lost"))
            return
        with self.server.lock:
            found = self.server.bucket.objects.get(key)
        if found is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        data, metadata = found
        headers = {"ETag": etag(data), "Last-Modified": _DATE, "Accept-Ranges": "bytes", **metadata}
        wanted = self.headers.get("If-Match")
        if wanted is not None and wanted != etag(data):
            self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            return
        status = 200
        if self.command == "HEAD":
            self._answer(200, b"", {**headers, "Content-Length": str(len(data))})
            return
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked:
            start, stop = int(asked[1]), min(int(asked[2] or len(data) - 1) + 1, len(data))
            if start >= len(data):
                self._answer(416)
                return
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
            data, status = data[start:stop], 206
        with self.server.lock:
            self.server.sent += len(data)
        self._answer(status, data, headers, cut=kind in ("reset", "lost", "torn"))

    _head = _get

    def _list(self, query: dict[str, str], *, cut: bool) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        most = int(query.get("max-keys", 1000))
        with self.server.lock:
            keys = sorted(key for key in self.server.bucket.objects if key.startswith(prefix) and key > after)
            sizes = {key: self.server.bucket.objects[key][0] for key in keys}
        prefixes = set()
        if delimiter:
            prefixes = {
                prefix + key[len(prefix) :].split(delimiter)[0] + delimiter
                for key in keys
                if delimiter in key[len(prefix) :]
            }
            keys = [key for key in keys if delimiter not in key[len(prefix) :]]
        page, rest = keys[:most], keys[most:]
        items = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>{escape(etag(sizes[key]))}</ETag><Size>{len(sizes[key])}</Size></Contents>"
            for key in page
        ) + "".join(f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in sorted(prefixes))
        more = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if rest else ""
        truncated = "true" if rest else "false"
        text = f"<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{more}{items}</ListBucketResult>"
        self._answer(200, text.encode(), {"Content-Type": "application/xml"}, cut=cut)

    def _put(self, key: str, query: dict[str, str], kind: str | None) -> None:
        data = self._body()
        if "uploadId" in query:
            with self.server.lock:
                self.server.bucket.uploads[query["uploadId"]][int(query["partNumber"])] = data
        else:
            metadata = self._metadata()
            asked = self.headers.get("If-None-Match") == "*" or self.headers.get("x-goog-if-generation-match") == "0"
            conditional = asked and not self.server.ignore_conditions
            version = self.headers.get("If-Match")
            with self.server.lock:
                there = self.server.bucket.objects.get(key)
                changed = version is not None and (there is None or etag(there[0]) != version)
                taken = (conditional and there is not None) or (changed and not self.server.ignore_conditions)
                if not taken:
                    self.server.bucket.objects[key] = (data, metadata)
            if taken:
                self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
                return
        if kind == "lost":
            raise _HangUp
        self._answer(200, b"", {"ETag": etag(data)})

    def _metadata(self) -> dict[str, str]:
        return {name: value for name, value in self.headers.items() if name.lower().startswith(_METADATA)}

    def _post(self, key: str, query: dict[str, str], kind: str | None) -> None:
        body = self._body()
        server = self.server
        if "uploads" in query:
            number = f"{key}-{time.monotonic_ns()}"
            with server.lock:
                server.bucket.uploads[number] = {}
                server.bucket.marks[number] = self._metadata()
            text = (
                f"<InitiateMultipartUploadResult><UploadId>{escape(number)}</UploadId></InitiateMultipartUploadResult>"
            )
        else:
            numbers = [int(number) for number in re.findall(rb"<PartNumber>(\d+)</PartNumber>", body)]
            with server.lock:
                parts = server.bucket.uploads.pop(query["uploadId"])
                if kind == "torn":
                    numbers = numbers[:-1]
                data = b"".join(parts[number] for number in numbers)
                server.bucket.objects[key] = (data, server.bucket.marks.pop(query["uploadId"]))
            text = f"<CompleteMultipartUploadResult><ETag>{escape(etag(data))}</ETag></CompleteMultipartUploadResult>"
        if kind == "lost":
            raise _HangUp
        self._answer(200, text.encode())

    def _delete(self, key: str, query: dict[str, str], kind: str | None) -> None:
        with self.server.lock:
            if "uploadId" in query:
                self.server.bucket.uploads.pop(query["uploadId"], None)
            else:
                self.server.bucket.objects.pop(key, None)
        if kind == "lost":
            raise _HangUp
        self._answer(204)


class _Answered(Exception):  # noqa: N818
    pass


class _HangUp(Exception):  # noqa: N818
    pass


_METADATA = ("x-amz-meta-", "x-goog-meta-")
_DATE = "Thu, 01 Jan 2026 00:00:00 GMT"


@lru_cache(1024)  # asked for with every range of an object
def etag(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'


ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


@contextmanager
def serve(*, ignore_conditions: bool = False) -> Iterator[S3Server]:
    server = S3Server(ignore_conditions=ignore_conditions)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
