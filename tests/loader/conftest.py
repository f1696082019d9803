"""Small stores with every token known, and the obvious, slow way to say what a loader should give."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from conftest import file_checksum

import tokpress
from tokpress.records import FileEntry
from tokpress.storage.local import LocalStorage
from tokpress.store.manifest import read_manifest, write_manifest

SEQ_LEN = 16


def build(directory: Path, texts: Sequence[str], **options: object) -> tokpress.Store:
    """A store of bytes: token = byte, each document ends with 256."""
    directory.mkdir(exist_ok=True)
    source = directory / "texts.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    defaults = {"tokenizer": "bytes", "out": directory / "store", "overwrite": True}
    return tokpress.build(source, **(defaults | options))  # type: ignore[arg-type]


def make_texts(count: int, seed: int, longest: int = 60) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices("abcdefghijklmnop", k=rng.randrange(longest))) for _ in range(count)]


def add_masks(directory: Path, seed: int = 0) -> dict[str, list[int]]:
    """Gives every shard but the first a random loss mask, as supervised data has one; returns them by shard."""
    manifest = read_manifest(LocalStorage(directory))
    split = manifest.splits["train"]
    rng = np.random.default_rng(seed)
    shards, masks = [], {}
    for number, receipt in enumerate(split.shards):
        mask = rng.integers(0, 2, receipt.tokens, dtype=np.uint8) if number else np.ones(receipt.tokens, np.uint8)
        masks[receipt.name] = mask.tolist()
        if number:
            path = directory / receipt.path("mask")
            path.write_bytes(mask.tobytes())
            entry = FileEntry(path.stat().st_size, file_checksum(path))
            receipt = msgspec.structs.replace(receipt, files=receipt.files | {"mask": entry})
        shards.append(receipt)
    changed = msgspec.structs.replace(split, shards=shards)
    write_manifest(
        LocalStorage(directory), msgspec.structs.replace(manifest, splits=manifest.splits | {"train": changed})
    )
    return masks


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> tokpress.Store:
    """Some hundred documents, empty ones among them, in many shards. Do not change it."""
    built = build(tmp_path_factory.mktemp("web"), ["", *make_texts(150, 1), ""], shard_size=500, unit_size=4000)
    assert len(built.manifest.splits["train"].shards) > 8
    return built


@pytest.fixture(scope="session")
def other_store(tmp_path_factory: pytest.TempPathFactory) -> tokpress.Store:
    return build(tmp_path_factory.mktemp("code"), make_texts(40, 2))


@pytest.fixture(scope="session")
def third_store(tmp_path_factory: pytest.TempPathFactory) -> tokpress.Store:
    return build(tmp_path_factory.mktemp("math"), make_texts(25, 3))


@pytest.fixture(scope="session")
def data(store: tokpress.Store) -> tokpress.PretokenizedDataset:
    return tokpress.PretokenizedDataset(store, seq_len=SEQ_LEN, output="numpy")


@pytest.fixture(scope="session")
def sources(
    data: tokpress.PretokenizedDataset, other_store: tokpress.Store, third_store: tokpress.Store
) -> dict[str, tokpress.PretokenizedDataset]:
    """Three sources of unequal size; rows of different sources differ."""
    code = tokpress.PretokenizedDataset(other_store, seq_len=SEQ_LEN, output="numpy")
    math = tokpress.PretokenizedDataset(third_store, seq_len=SEQ_LEN, output="numpy")
    return {"web": data, "code": code, "math": math}
