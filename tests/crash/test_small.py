"""Small inputs and standard input are watched like large ones: from the first byte of the sample on."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import tokpress
from crash.building import command, finish, start
from crash.poison import poisoned

KINDS = {
    "segfault": "crashed-tokenizer",
    "exit": "crashed-tokenizer",
    "hang": "hung-tokenizer",
    "memory": "out-of-memory",
    "panic": "crashed-tokenizer",
    "refused": "cannot-encode",
}
OPTIONS = ["--doc-timeout", "1.5", "--memory", "700MB"]


def lines(kind: str) -> list[str]:
    """A document that is looked at in the sample, too, among others."""
    return [f"document {i}" for i in range(5)] + [f"!!{kind}"] + [f"document {i}" for i in range(5, 40)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_document_that_the_tokenizer_does_not_survive_is_set_aside_alone(kind: str, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    data = "".join(json.dumps({"text": text}) + "\n" for text in lines(kind))
    corpus.write_text(data)
    patience = ["--doc-timeout", "20"] if kind == "memory" else []
    code, errors = finish(start([corpus], tmp_path / "store", *OPTIONS, *patience, **poisoned(tmp_path)))
    assert code == 0, errors
    assert "Traceback" not in errors
    store = tokpress.open(tmp_path / "store")
    assert [store.text(i) for i in range(len(store))] == [text for text in lines(kind) if "!!" not in text]
    [reject] = store.rejects()
    assert (reject.reason, reject.position) == (KINDS[kind], len(data.partition("!!")[0]) - len('{"text": "'))


@pytest.mark.parametrize("kind", ["hang", "segfault"])
def test_of_standard_input_it_is_an_error_that_says_what_to_do(kind: str, tmp_path: Path) -> None:
    data = "".join(json.dumps({"text": text}) + "\n" for text in lines(kind))
    run = command([Path("-")], tmp_path / "store", *OPTIONS)
    environment = os.environ | poisoned(tmp_path)
    done = subprocess.run(run, input=data, text=True, capture_output=True, timeout=120, check=False, env=environment)
    assert done.returncode == 1, done.stderr
    assert "standard input has ended" in done.stderr
    assert "Write the input to a file" in done.stderr.replace("\n", " ")


def test_standard_input_is_read_by_the_worker(tmp_path: Path) -> None:
    texts = [f"document {i}" for i in range(50)]
    data = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    run = command([Path("-")], tmp_path / "store", *OPTIONS)
    done = subprocess.run(run, input=data, text=True, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    store = tokpress.open(tmp_path / "store")
    assert [store.text(i) for i in range(len(store))] == texts
