"""A store with a little of everything in it, and copies of it to break."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import tokpress

GOOD = ["one", "", "two words", "three little words", "ümlaut", "", "a longer document, to fill a shard", "end"]


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As small as one can be: every byte, the end, a few merges."""
    directory = tmp_path_factory.mktemp("tokenizer")
    source = _write(directory / "texts.jsonl", GOOD)
    return tokpress.train_tokenizer(source, out=directory / "tokenizer.json", vocab_size=260, special_tokens=["<end>"])


@pytest.fixture(scope="session")
def sound_store(tmp_path_factory: pytest.TempPathFactory, tokenizer: Path) -> Path:
    """Several units and shards, empty documents, rejects, a unit of rejects alone. Do not change it."""
    directory = tmp_path_factory.mktemp("sound")
    inputs = [
        _write(directory / "a.jsonl", [*GOOD[:3], b"not json", 5, *GOOD[3:]]),
        _write(directory / "b.jsonl", [f"document {i}" for i in range(7)]),
        _write(directory / "c.jsonl", [b"{}"] * 3),
    ]
    return tokpress.build(inputs, tokenizer=tokenizer, out=directory / "store", unit_size=150, shard_size=64).path


@pytest.fixture
def store_copy(sound_store: Path, tmp_path: Path) -> Path:
    """One to break."""
    return Path(shutil.copytree(sound_store, tmp_path / "store"))


@pytest.fixture
def tiny_store(tmp_path: Path, tokenizer: Path) -> Path:
    """One to break very often: two shards and a reject."""
    source = _write(tmp_path / "a.jsonl", ["one", "", "two words", b"not json"])
    return tokpress.build(source, tokenizer=tokenizer, out=tmp_path / "store", shard_size=8).path


def _write(path: Path, records: list[Any]) -> Path:
    """JSON lines, one for each text (or whatever else is to stand there); bytes are lines as they are."""
    lines = [record if isinstance(record, bytes) else json.dumps({"text": record}).encode() for record in records]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path
