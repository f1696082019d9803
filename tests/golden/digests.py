"""Digests of what tokpress makes: stores, packs, exports, batches.

In: a directory, or batches. Out: name -> the first 16 digits of a sha256. Compared as they are, but for what may differ
between two equal builds:

    plan.json, manifest.json  by field, without how the run went (`run`), the manifest's own `checksum` and its entry for
                              `plan.json`. Fields that were not known when the digests were recorded are left out: a later
                              version may add some. It may not change or remove one.
    metadata.json of exports  without the version that made it, and without sizes that depend on the next two
    train.txt of Megatron     without the directory, which it names by its absolute path
    .metadata of datatrove    without the directory that the tokenizer's path begins with
    *.csv.gz of dolma         unpacked: how well ISA-L compresses depends on the processor's instructions
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tokpress

Digests = dict[str, Any]  # name -> digest, or such a table of a part
Fields = dict[str, dict[str, list[str]]]  # file -> place in it -> the names of the fields there

_MAPS = {  # places whose keys are data, not names of fields
    "plan.json": {"tokenizer.special_tokens"},
    "manifest.json": {
        *("tokenizer.special_tokens", "splits", "rejects", "files"),
        *("splits.*.shards[].files", "splits.*.shards[].rejects"),
    },
}
_RUN_FACTS = {"plan.json": (), "manifest.json": ("run", "checksum")}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def store_digests(store: Path, fields: Fields, leave_out: Sequence[str] = ()) -> Digests:
    """Every file of a store but its packs; `leave_out` names fields of the manifest."""
    found: Digests = {}
    for name, path in sorted(_files(store), key=lambda file: file[0] in _MAPS):  # what they speak of comes first
        if name in _MAPS:
            known = _known(_record(path), fields[name], _MAPS[name])
            found |= {
                f"{name}: {field}": _json_digest(value) for field, value in known.items() if field not in leave_out
            }
        elif not name.startswith("packs/"):
            found[name] = digest(path.read_bytes())
    return found


def pack_digests(store: Path) -> Digests:
    return {name: digest(path.read_bytes()) for name, path in _files(store) if name.startswith("packs/")}


def export_digests(export: Path) -> Digests:
    return {name: digest(_lasting_bytes(path, export)) for name, path in _files(export)}


def documents_digest(store: tokpress.Store) -> str:
    """All that a store says of its documents: ids, masks, text, where they come from, kept fields."""
    found = hashlib.sha256()
    for i in range(store.num_docs):
        mask = store.mask(i)
        parts = (
            store.doc(i).tolist(),
            None if mask is None else mask.tolist(),
            store.text(i),
            store.where(i),
            store.kept(i),
        )
        found.update(json.dumps(parts).encode())
    return found.hexdigest()[:16]


def batches_digest(batches: Iterable[Mapping[str, Any]]) -> str:
    """The fields of all batches: names, types, shapes and values, whether they are arrays or tensors."""
    found = hashlib.sha256()
    for batch in batches:
        for name, values in batch.items():
            array = np.ascontiguousarray(np.asarray(values))
            found.update(f"{name} {array.dtype.str} {array.shape}".encode())
            found.update(array.tobytes())
    return found.hexdigest()[:16]


def first_difference(recorded: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """The first name whose digest is another, is new or is missing; nothing if all are the same."""
    for name in [*recorded, *(name for name in found if name not in recorded)]:
        before, now = recorded.get(name), found.get(name)
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            inner = first_difference(before, now)
            if inner:
                return f"{name}: {inner}"
        elif before != now:
            return f"{name} was {_said(before)}, is {_said(now)}"
    return ""


def collect_fields(stores: Iterable[Path]) -> Fields:
    """The names of all fields that stand in the plans and manifests of these stores."""
    found: dict[str, dict[str, set[str]]] = {name: {} for name in _MAPS}
    for store in stores:
        for name, places in found.items():
            _collect(_record(store / name), places, _MAPS[name], "")
    return {name: {place: sorted(keys) for place, keys in sorted(places.items())} for name, places in found.items()}


def _files(directory: Path) -> list[tuple[str, Path]]:
    paths = ((path.relative_to(directory).as_posix(), path) for path in directory.rglob("*") if path.is_file())
    return sorted(paths)


def _record(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(path.read_bytes())
    for fact in _RUN_FACTS[path.name]:
        del record[fact]
    if path.name == "manifest.json":
        del record["files"]["plan.json"]  # has another size with every field that is added to it
    return record


def _collect(value: Any, places: dict[str, set[str]], maps: set[str], place: str) -> None:
    if isinstance(value, list):
        for item in value:
            _collect(item, places, maps, f"{place}[]")
    elif isinstance(value, dict):
        if place not in maps:
            places.setdefault(place, set()).update(value)
        for key, item in value.items():
            _collect(item, places, maps, _inside(place, key, maps))


def _known(value: Any, fields: Mapping[str, Sequence[str]], maps: set[str], place: str = "") -> Any:
    """The same without fields that were not there when the digests were recorded."""
    if isinstance(value, list):
        return [_known(item, fields, maps, f"{place}[]") for item in value]
    if isinstance(value, dict):
        keys = [key for key in value if place in maps or key in fields.get(place, ())]
        return {key: _known(value[key], fields, maps, _inside(place, key, maps)) for key in keys}
    return value


def _inside(place: str, key: str, maps: set[str]) -> str:
    return ".".join(filter(None, [place, "*" if place in maps else key]))


def _json_digest(value: Any) -> str:
    return digest(json.dumps(value).encode())


def _lasting_bytes(path: Path, export: Path) -> bytes:
    data = path.read_bytes()
    if path.name.endswith(".csv.gz"):
        return gzip.decompress(data)
    if path.suffix == ".txt":
        return data.replace(os.fsencode(export.absolute()), b"OUT")
    if path.suffix == ".metadata":
        return data.replace(os.fsencode(Path.cwd()), b"HERE")
    if path.name != "metadata.json" or path.parent != export:
        return data
    metadata = json.loads(data)
    del metadata["made_with"], metadata["written_bytes"]
    for added in ("losses", "pad_id"):  # since the digests were recorded
        metadata.pop(added, None)
    metadata["files"] = {
        name: None if name.endswith((".csv.gz", ".txt", ".metadata")) else size
        for name, size in metadata["files"].items()
    }
    return json.dumps(metadata).encode()


def _said(value: Any) -> str:
    return "not there" if value is None else f"a table of {len(value)}" if isinstance(value, Mapping) else str(value)
