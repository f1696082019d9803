"""Documents that kill, hang or exhaust the tokenizer are set aside, each alone; nothing else is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tokpress
from crash.building import finish, start
from crash.poison import poisoned

KINDS = {
    "segfault": "crashed-tokenizer",
    "abort": "crashed-tokenizer",
    "exit": "crashed-tokenizer",
    "hang": "hung-tokenizer",
    "memory": "out-of-memory",
}
DOCS = 100_000
POISON = {DOCS // 20 * i + 17: list(KINDS)[i % len(KINDS)] for i in range(20)}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    with path.open("w") as file:
        for i in range(DOCS):
            text = f"!!{POISON[i]} {i}" if i in POISON else f"document {i}"
            file.write(json.dumps({"text": text}) + "\n")
    return path


@pytest.mark.timeout(1800)  # it takes a minute, and several on a busy machine
def test_twenty_poisonous_documents_among_a_hundred_thousand(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "store"
    options = ["--workers", "2", "--doc-timeout", "10", "--memory", "1.2GB", "--unit-size", "600kB"]
    code, errors = finish(start([corpus], out, *options, **poisoned(tmp_path)), 1700)
    assert code == 0, errors
    store = tokpress.open(out)
    assert store.verify().ok
    texts = [f"document {i}" for i in range(DOCS) if i not in POISON]
    assert [store.text(i) for i in range(len(store))] == texts
    files = sorted((out / "rejects").iterdir())
    rejects = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    found = {int(reject["preview"].split()[1]): reject["reason"] for reject in rejects}
    assert found == {i: KINDS[kind] for i, kind in POISON.items()}
    assert {reject["position"] for reject in rejects} == set(_offsets(corpus, POISON))


def _offsets(path: Path, lines: dict[int, str]) -> list[int]:
    offsets, offset = [], 0
    for i, line in enumerate(path.read_bytes().splitlines(keepends=True)):
        if i in lines:
            offsets.append(offset)
        offset += len(line)
    return offsets
