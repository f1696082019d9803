"""The page: files of `static`, read once when the server starts.

In: nothing. Out: bytes and types by path. A request names an entry of a table, never a file: there is nothing to traverse.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from tokpress.storage.base import checksum

_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
PAGE = "index.html"


class Asset(NamedTuple):
    data: bytes
    media_type: str
    tag: str  # changes with the bytes


def read_assets() -> dict[str, Asset]:
    return dict(_walk(files("tokpress.web") / "static", ""))


def _walk(directory: Traversable, prefix: str) -> Iterator[tuple[str, Asset]]:
    for entry in directory.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        elif kind := _TYPES.get(entry.name[entry.name.rfind(".") :]):
            data = entry.read_bytes()
            yield f"{prefix}{entry.name}", Asset(data, kind, f'"{checksum(data)}"')
