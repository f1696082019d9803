"""Which files of a dataset on the Hub are a config's and a split's.

In: the names of all files of a repository, and the head of its README. Out: configs with their splits, each a list of
globs or files. Where the README lists `configs`, these hold. Else the Hub's conventions do, in this order: files like
`data/SPLIT-00000-of-00005.parquet`; a directory that has a split's name in its own; a file that has; else all is `train`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from tokpress.sources.extensions import format_and_compression

TRAIN = "train"
DEFAULT = "default"
_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_NO_DATA = re.compile(
    r"(^|/)(\.|readme|license|licence|dataset_infos?\.json|dataset_dict\.json|state\.json|requirements)", re.I
)
_SHARDED = re.compile(r"data/(\w+(?:\.\w+)*)-\d{5}-of-\d{5}[^/]*")
_CODE = (".py", ".md", ".rst")  # loading scripts and descriptions, wherever else they are read as text

Splits = dict[str, list[str]]  # split -> globs or files


def data_files(names: Sequence[str]) -> list[str]:
    """Those that hold records, all of the format that most of them have."""
    formats = {}
    for name in names:
        kind = format_and_compression(name)[0]
        if kind is not None and not _NO_DATA.search(name) and PurePosixPath(name).suffix not in _CODE:
            formats[name] = kind
    if not formats:
        return []
    [(most, _)] = Counter(formats.values()).most_common(1)
    return sorted(name for name, kind in formats.items() if kind == most)


def configs_of(card: Mapping[str, Any]) -> dict[str, Splits]:
    """As the README lists them; none if it does not, or not as the Hub writes it."""
    listed = card.get("configs")
    found: dict[str, Splits] = {}
    for entry in listed if isinstance(listed, list) else []:
        if not isinstance(entry, dict) or not isinstance(entry.get("config_name", DEFAULT), str):
            continue
        folder = entry.get("data_dir")
        splits = _splits(entry.get("data_files"), folder if isinstance(folder, str) else "")
        if splits:
            found[entry.get("config_name", DEFAULT)] = splits
    return found


def default_config(card: Mapping[str, Any], configs: Mapping[str, Splits]) -> str | None:
    """The one that is meant where none is named. None: one has to be."""
    listed = [entry for entry in card.get("configs", []) if isinstance(entry, dict)]
    marked = [entry.get("config_name") for entry in listed if entry.get("default") is True]
    for name in (*marked, DEFAULT, *(configs if len(configs) == 1 else ())):
        if name in configs:
            return str(name)
    return None


def _splits(listed: Any, folder: str) -> Splits:
    if listed is None:
        return {TRAIN: [f"{folder}/**"]} if folder else {}
    entries = listed if isinstance(listed, list) else [listed]
    found: Splits = {}
    for entry in entries:
        split, paths = (entry.get("split", TRAIN), entry.get("path")) if isinstance(entry, dict) else (TRAIN, entry)
        for path in paths if isinstance(paths, list) else [paths]:
            if isinstance(path, str) and isinstance(split, str):
                found.setdefault(split, []).append("/".join(part for part in (folder.strip("/"), path) if part))
    return found


def splits_by_name(names: Sequence[str]) -> Splits:
    """By the Hub's conventions. What none of the splits' files is, is left out, as it is by the Hub's own viewer."""
    sharded: Splits = {}
    for name in names:
        if found := _SHARDED.fullmatch(name):
            sharded.setdefault(found[1], []).append(name)
    folders = _by_word(names, lambda name: name.rpartition("/")[0])
    files = _by_word(names, lambda name: name.rpartition("/")[2])
    return sharded or folders or files or ({TRAIN: list(names)} if names else {})


def _by_word(names: Sequence[str], part_of: Any) -> Splits:
    found: Splits = {}
    for name in names:
        words = set(re.split(r"[^A-Za-z]+", part_of(name).lower()))
        for split, known in _WORDS.items():
            if words & set(known):
                found.setdefault(split, []).append(name)
                break
    return found
