"""A bucket, or a part of one: `s3://bucket/prefix`, `gs://`, `az://container/prefix`; `https://host/path` to read from.

In: keys and bytes. Out: objects, put in one step and never renamed. An object's version is its ETag, and every read of an
opened object asks for that very version. `put(if_absent=True)` marks what it puts, so that a lost answer, after which the
store says "there is one already", is told from another writer's object.

Credentials, regions and endpoints are found as each cloud's own tools find them (AWS_*, GOOGLE_*, AZURE_*, instance roles,
AWS_ENDPOINT_URL for other servers that speak S3). None of them is ever part of a `url`, a record or an error.
"""

from __future__ import annotations

import errno
import secrets
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tokpress.errors import UsageError
from tokpress.storage import spool
from tokpress.storage.base import Stat, Storage, Upload
from tokpress.storage.copies import Copies, cache_directory, cache_limit
from tokpress.storage.credentials import azure_settings, gcs_settings, is_plain_http, s3_settings
from tokpress.storage.ranged import RANGE_BYTES, RANGES_AHEAD, RangedFile
from tokpress.storage.requests import ObjectChanged, library, request, request_timeout, requests_in_flight
from tokpress.threads import thread_pool

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az", "abfss": "az"}
READ_ONLY = ("http", "https")
_SETTINGS = {"s3": s3_settings, "gs": gcs_settings, "az": azure_settings}
_ATTEMPT = "tokpress_attempt"  # of whom an object is; Azure takes letters, digits and underscores only
_PUT_TRIES = 8
_RACERS = 8  # who try to create one object at once, to see that one does


def is_remote(place: str) -> bool:
    scheme, colon, _ = place.partition("://")
    return bool(colon) and (scheme.lower() in SCHEMES or scheme.lower() in READ_ONLY)


class ObjectStorage(Storage):
    def __init__(self, url: str, *, cache_dir: Path | None = None, cache_bytes: int | None = None) -> None:
        """The cache is for `local`, and shared with all who name the same directory."""
        self.url = _plain(url)
        parts = urlsplit(self.url)
        self.read_only = parts.scheme in READ_ONLY
        self._root = f"{parts.scheme}://{parts.netloc}"
        self._prefix = parts.path.strip("/")
        self.cache_dir, self.cache_bytes = cache_dir, cache_bytes
        self._known: dict[str, Stat] = {}  # of objects that nobody will change

    def __reduce__(self) -> tuple[object, ...]:
        return partial(ObjectStorage, cache_dir=self.cache_dir, cache_bytes=self.cache_bytes), (self.url,)

    @cached_property
    def _store(self) -> Any:
        stores = library().store
        scheme, bucket, *_ = urlsplit(self._root)
        timeout = timedelta(seconds=request_timeout())
        settings = _SETTINGS[scheme]() if scheme in _SETTINGS else {}
        options: dict[str, Any] = {
            "client_options": {
                "timeout": timeout,
                "connect_timeout": min(timeout, timedelta(seconds=10)),
                "pool_max_idle_per_host": str(requests_in_flight()),
                "allow_http": scheme == "http" or is_plain_http(settings),
            },
            "retry_config": {"max_retries": 0, "retry_timeout": timeout},  # `request` tries again, and counts
        }
        try:
            if self.read_only:
                return stores.HTTPStore(self._root, **options)
            kind = {"s3": stores.S3Store, "gs": stores.GCSStore, "az": stores.AzureStore}[scheme]
            return kind(bucket, config=settings, **options)
        except Exception as error:  # noqa: BLE001 - its text may hold what must not be shown
            raise UsageError(
                f"{self.url} cannot be opened ({type(error).__name__}): its account, region or endpoint is not known or not "
                "well formed. Set it up as for the cloud's own tools, see docs/remote.md."
            ) from None

    def _path(self, key: str) -> str:
        if key.startswith("/") or ".." in key.split("/"):
            raise ValueError(f"{key!r} is no key: it would lead out of {self.url}")
        return "/".join(part for part in (self._prefix, key) if part)

    def _writable(self) -> None:
        if self.read_only:
            raise UsageError(f"{self.url} is read-only: nothing can be written over http. Use s3://, gs:// or az://.")

    def below(self, prefix: str) -> ObjectStorage:
        self._path(prefix)
        return ObjectStorage(self.location(prefix), cache_dir=self.cache_dir, cache_bytes=self.cache_bytes)

    def present(self) -> bool:
        if self.read_only:
            return True

        def ask() -> bool:
            return any(len(chunk) for chunk in library().list(self._store, self._prefix, chunk_size=1))

        return bool(self._request("", ask))

    def stat(self, key: str) -> Stat | None:
        if key in self._known:
            return self._known[key]
        try:
            meta = self._request(key, lambda: library().head(self._store, self._path(key)))
        except FileNotFoundError:
            return None
        return Stat(int(meta["size"]), _version(meta))

    def finished(self, prefix: str) -> None:
        """The objects under a prefix will not change any more: what `stat` says of them is asked for once, for all."""
        if not self.read_only:
            self._known = dict(self.list_stats(prefix))

    def list(self, prefix: str = "") -> list[str]:
        return [key for key, _ in self.list_stats(prefix)]

    def list_stats(self, prefix: str = "") -> Sequence[tuple[str, Stat]]:
        """As `list`, with what `stat` would say of each."""
        if self.read_only:
            raise UsageError(f"{self.url} cannot be listed: name its files one by one.")
        inside = self._path(prefix)
        beginning = f"{self._prefix}/" if self._prefix else ""

        def ask() -> Sequence[Any]:
            return [meta for chunk in library().list(self._store, inside, chunk_size=1000) for meta in chunk]

        found = self._request(prefix, ask)
        return sorted(
            (str(meta["path"]).removeprefix(beginning), Stat(int(meta["size"]), _version(meta))) for meta in found
        )

    def children(self, prefix: str = "") -> Sequence[str]:
        inside = self._path(prefix)
        found = self._request(prefix, lambda: library().list_with_delimiter(self._store, inside))
        paths = [*found["common_prefixes"], *(meta["path"] for meta in found["objects"])]
        return sorted(str(path).rstrip("/").rpartition("/")[2] for path in paths)

    def open(self, key: str, *, version: str | None = None, ahead: int = RANGES_AHEAD) -> pa.NativeFile:
        """With a version: that one and no other, or an `ObjectChanged`."""
        import pyarrow as pa

        return pa.PythonFile(self.open_file(key, version=version, ahead=ahead), "r")

    def open_file(self, key: str, *, version: str | None = None, ahead: int = RANGES_AHEAD) -> RangedFile:
        """As `open`, as a Python file."""
        stat = self._must_exist(key)
        wanted = version or stat.version
        return RangedFile(lambda start, stop: self.read_range(key, start, stop, wanted), stat.size, ahead=ahead)

    def _must_exist(self, key: str) -> Stat:
        stat = self.stat(key)
        if stat is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such object", self.location(key))
        return stat

    def read_range(self, key: str, start: int, stop: int, version: str | None = None) -> Any:
        """The bytes [start, stop) of an object, of this version if one is named."""
        options: dict[str, Any] = {"range": (start, stop)}
        if version is not None and version.startswith('"'):
            options["if_match"] = version

        def ask() -> Any:
            answer = library().get(self._store, self._path(key), options=options)
            if version is not None and _version(answer.meta) != version:  # a server that does not heed conditions
                raise ObjectChanged(errno.ESTALE, "the object was changed since it was first looked at", key)
            data = answer.bytes()
            if len(data) != stop - start:
                raise OSError("a short answer")
            return data

        return self._request(key, ask) if stop > start else b""

    def read(self, key: str) -> bytes:
        return bytes(self._request(key, lambda: library().get(self._store, self._path(key)).bytes()))

    def create(self, key: str) -> Upload:
        self._writable()
        path = self._path(key)

        def put(data: Any) -> None:
            self._request(
                key, partial(_put_parts if len(data) > spool.MULTIPART_BYTES else _put, self._store, path, data)
            )

        def size_of() -> int | None:
            found = self.stat(key)
            return None if found is None else found.size

        return spool.SpooledUpload(path, self.location(key), put, size_of)

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        self._writable()
        path = self._path(key)
        if not if_absent:
            self._request(key, partial(_put, self._store, path, data))
            return
        mine = secrets.token_hex(8)

        def put_new() -> None:
            library().put(self._store, path, data, mode="create", use_multipart=False, attributes={_ATTEMPT: mine})

        for _ in range(_PUT_TRIES):
            try:
                request(self.location(key), put_new, creates=True)
            except FileExistsError:
                # There is one; or another was just being put, and failed (409); or it is ours, and the answer got lost.
                whose = self._attempt_of(key)
                if whose is None:
                    continue
                if whose != mine:
                    raise
            return
        raise FileExistsError(17, "there is such an object, says the store, but it has none", self.location(key))

    def _attempt_of(self, key: str) -> str | None:
        """None: there is no object."""
        try:
            found = self._request(key, lambda: library().get(self._store, self._path(key)).attributes)
        except FileNotFoundError:
            return None
        return str(found.get(_ATTEMPT, ""))

    def put_marked(self, key: str, data: Any, marks: dict[str, str], version: dict[str, Any] | None) -> None:
        """In the place of this very version, or of none: else raises ObjectChanged or FileExistsError."""
        self._writable()
        path, in_parts = self._path(key), len(data) > spool.MULTIPART_BYTES

        def put() -> None:
            if not in_parts:
                mode = "create" if version is None else version
                library().put(self._store, path, data, use_multipart=False, attributes=marks, mode=mode)
            elif version is None and self.exists(key):
                raise FileExistsError(errno.EEXIST, "there is such an object", self.location(key))
            elif version is not None and self.mark_of(key)[2] != version:
                raise ObjectChanged(errno.ESTALE, "the object was changed since it was first looked at", key)
            else:
                _put_parts(self._store, path, data, attributes=marks)

        request(self.location(key), put, creates=True)

    def mark_of(self, key: str) -> tuple[dict[str, str], int, dict[str, Any]]:
        """What an object was marked with, its size, and its version, to replace it."""
        found = self._request(key, lambda: library().get(self._store, self._path(key), options={"head": True}))
        version = {name: found.meta[name] for name in ("e_tag", "version") if found.meta[name]}
        return dict(found.attributes), int(found.meta["size"]), version

    def read_marked(self, key: str) -> tuple[bytes, dict[str, str]]:
        def ask() -> tuple[bytes, dict[str, str]]:
            answer = library().get(self._store, self._path(key))
            return bytes(answer.bytes()), dict(answer.attributes)

        data, marks = self._request(key, ask)
        return data, marks

    def keeps_conditions(self) -> bool:
        """Whether of those who create an object one succeeds. Some servers that speak S3 ignore the condition, and some look
        and put in two steps, so that of those who come at the same moment several do."""
        key = f".probe-{secrets.token_hex(8)}"
        try:
            with thread_pool(_RACERS, "probe") as pool:
                won = sum(pool.map(lambda _: self._creates(key), range(_RACERS)))
            return won == 1 and not self._creates(key)
        finally:
            self.delete(key)

    def _creates(self, key: str) -> bool:
        try:
            self.put(key, b"", if_absent=True)
        except FileExistsError:
            return False
        return True

    def delete(self, key: str) -> None:
        self._writable()
        try:
            self._request(key, lambda: library().delete(self._store, self._path(key)))
        except FileNotFoundError:
            return

    def delete_prefix(self, prefix: str) -> None:
        for key in self.list(prefix):
            self.delete(key)

    def local(self, key: str) -> Path:
        stat = self._must_exist(key)
        return self._copies.get(self.location(key), stat.version, stat.size, partial(self._parts, key, stat))

    def _parts(self, key: str, stat: Stat) -> Iterator[bytes]:
        with RangedFile(lambda start, stop: self.read_range(key, start, stop, stat.version), stat.size) as file:
            while part := file.read(RANGE_BYTES):
                yield part

    @cached_property
    def _copies(self) -> Copies:
        limit = cache_limit() if self.cache_bytes is None else self.cache_bytes
        return Copies((self.cache_dir or cache_directory()) / "objects", limit)

    def _request(self, key: str, call: Any) -> Any:
        return request(self.location(key), call)


def _put(store: Any, path: str, data: Any) -> None:
    library().put(store, path, data, use_multipart=False)


def _put_parts(store: Any, path: str, data: Any, **more: Any) -> None:
    view = memoryview(data)
    parts = (view[start : start + spool.PART_BYTES] for start in range(0, len(view), spool.PART_BYTES))
    options = {"chunk_size": spool.PART_BYTES, "max_concurrency": spool.PARTS_AT_ONCE}
    library().put(store, path, parts, use_multipart=True, **options, **more)


def _plain(url: str) -> str:
    """Without what may be secret: a user's name and password, a signature."""
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    if parts.username or parts.password:
        raise UsageError(
            f"an address that begins with {scheme}:// has a name or a password in it. Leave them out: credentials are found "
            "as the cloud's own tools find them, see docs/remote.md."
        )
    if not parts.netloc:
        raise UsageError(f"{url} names no bucket. Write {scheme}://BUCKET/PREFIX.")
    path = "/".join(part for part in parts.path.split("/") if part)
    return f"{SCHEMES.get(scheme, scheme)}://{parts.netloc}" + (f"/{path}" if path else "")


def _version(meta: Any) -> str:
    tag = meta.get("e_tag")
    if tag and not tag.startswith(('"', "W/")):  # as Azure lists them
        tag = f'"{tag}"'
    return str(tag or meta.get("version") or f"{meta['last_modified'].isoformat()} {meta['size']}")
