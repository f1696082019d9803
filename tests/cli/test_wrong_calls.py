"""Wrong calls: each answer names the thing and what to do next, has its exit code, and leaves nothing behind.

A row is a call that people make, its exit code, what the answer must name, and what it must tell them to do.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokpress

from .conftest import Cli

BUILD = ("build", "a.jsonl", "--tokenizer", "bytes", "--out", "out")


class Wrong(NamedTuple):
    call: tuple[str, ...]
    code: int
    names: str  # a regular expression that the answer must match: the thing
    next: str  # and another one: what to do


CALLS = {
    "a verb misspelt": Wrong(("biuld", "a.jsonl"), 2, "'biuld'", "Did you mean 'build'"),
    "a verb of another program": Wrong(("tokenize", "a.jsonl"), 2, "'tokenize'", "tokpress --help"),
    "an option misspelt": Wrong((*BUILD, "--worker", "2"), 2, "--worker", "--workers"),
    "an option of another program": Wrong((*BUILD, "--num_workers", "2"), 2, "--num_workers", "--help"),
    "no arguments": Wrong(("build",), 2, "--tokenizer|INPUTS", "--help"),
    "no --out": Wrong(("build", "a.jsonl", "--tokenizer", "bytes"), 2, "--out", "--help"),
    "no --tokenizer": Wrong(("build", "a.jsonl", "--out", "out"), 2, "--tokenizer", "--help"),
    "a file that is not there": Wrong(
        ("build", "b.jsonl", "--tokenizer", "bytes", "--out", "out"), 2, "b.jsonl", "a.jsonl|ls|path"
    ),
    "a glob that matches nothing": Wrong(
        ("build", "x/*.jsonl", "--tokenizer", "bytes", "--out", "out"), 2, r"x/\*\.jsonl", "quote|path|matches"
    ),
    "an empty directory": Wrong(
        ("build", "empty", "--tokenizer", "bytes", "--out", "out"),
        2,
        "empty",
        "is an empty directory.*put the inputs there",
    ),
    "a directory without text": Wrong(
        ("build", "pictures", "--tokenizer", "bytes", "--out", "out"), 2, "pictures", "--format|format"
    ),
    "a wrong text field": Wrong((*BUILD, "--text-field", "txet"), 3, "txet", "first record has: id, text"),
    "a wrong column": Wrong(
        ("build", "a.parquet", "--tokenizer", "bytes", "--out", "out", "--text-field", "body"), 1, "body", "content"
    ),
    "a line that is no JSON": Wrong(
        ("build", "bad.jsonl", "--tokenizer", "bytes", "--out", "out"), 3, "bad.jsonl|bad-json", "--format|rejects|JSON"
    ),
    "a .gz that is none": Wrong(
        ("build", "lie.jsonl.gz", "--tokenizer", "bytes", "--out", "out"), 3, "lie.jsonl.gz|damaged", "gz|file"
    ),
    "a .parquet that is none": Wrong(
        ("build", "lie.parquet", "--tokenizer", "bytes", "--out", "out"), 3, "lie.parquet", "Parquet|parquet"
    ),
    "an empty file": Wrong(
        ("build", "nothing.jsonl", "--tokenizer", "bytes", "--out", "out"),
        3,
        r"hold no record.*\(nothing\.jsonl\)",
        "--format",
    ),
    "all records too long": Wrong(
        (*BUILD, "--max-length", "1", "--overlong", "drop"), 3, "overlong|--max-length", "--"
    ),
    "a tokenizer that is not there": Wrong(
        ("build", "a.jsonl", "--tokenizer", "tok.json", "--out", "out"), 2, "tok.json", "path|tokenizer"
    ),
    "a tokenizer that is a text": Wrong(
        ("build", "a.jsonl", "--tokenizer", "a.jsonl", "--out", "out"),
        2,
        "a.jsonl is no tokenizer: it seems to be JSON lines",
        "tokpress train-tokenizer",
    ),
    "a tokenizer that is a configuration": Wrong(
        ("build", "a.jsonl", "--tokenizer", "config.json", "--out", "out"),
        2,
        "config.json is no tokenizer: it seems to be a model.s config",
        "tokenizer.json",
    ),
    "a directory without a tokenizer": Wrong(
        ("build", "a.jsonl", "--tokenizer", "empty", "--out", "out"), 2, "empty", "tokenizer.json"
    ),
    "too little memory": Wrong((*BUILD, "--memory", "1MB"), 2, "--memory", "GB|MB"),
    "memory that is no size": Wrong((*BUILD, "--memory", "lots"), 2, "lots", "4GB"),
    "no workers": Wrong((*BUILD, "--workers", "0"), 2, "--workers", "--help"),
    "workers that are no number": Wrong((*BUILD, "--workers", "many"), 2, "many", "--help"),
    "--out is a file": Wrong(
        ("build", "a.jsonl", "--tokenizer", "bytes", "--out", "a.jsonl"), 2, "a.jsonl", "--out|directory"
    ),
    "--out holds something else": Wrong(
        ("build", "a.jsonl", "--tokenizer", "bytes", "--out", "pictures"), 2, "pictures", "--out"
    ),
    "another store is there": Wrong(
        ("build", "a.jsonl", "--tokenizer", "bytes", "--out", "tokens", "--keep", "id"),
        2,
        "keep: was nothing, is id",
        "--overwrite",
    ),
    "keeping a field that is the text": Wrong((*BUILD, "--keep", "text"), 2, "--keep", "[Nn]ame"),
    "two ways to read a record": Wrong(
        (*BUILD, "--prompt-field", "p", "--messages-field", "m"), 2, "--prompt-field|--messages-field", "--|one"
    ),
    "a prompt without an answer": Wrong((*BUILD, "--prompt-field", "p"), 2, "--prompt-field|--completion-field", "--"),
    "a val fraction of everything": Wrong((*BUILD, "--val-fraction", "2"), 2, "--val-fraction", "--help|0"),
    "a config file that is not there": Wrong(("build", "--config", "no.toml"), 2, "no.toml", "--|path|such"),
    "a config file with an unknown key": Wrong(("build", "--config", "bad.toml"), 2, "worker", "workers"),
    "inspecting what is no store": Wrong(("inspect", "pictures"), 1, "pictures", "tokpress build"),
    "inspecting what is not there": Wrong(("inspect", "tokenz"), 1, "tokenz", "tokpress build|tokens"),
    "a document that is not there": Wrong(("inspect", "tokens", "--doc", "99"), 2, "99", "[0-9]"),
    "verifying text": Wrong(("verify", "a.jsonl"), 1, "a.jsonl", "tokpress build"),
    "a split that is not there": Wrong(("inspect", "tokens", "--split", "test"), 1, "test", "train"),
    "exporting to an unknown format": Wrong(
        ("export", "tokens", "--to", "parket", "--out", "e"), 2, "parket", "parquet"
    ),
    "exporting without a format": Wrong(("export", "tokens", "--out", "e"), 2, "--to", "--to parquet"),
    "rows without a length": Wrong(("export", "tokens", "--to", "pt", "--out", "e"), 2, "pt", "--seq-len"),
    "packing without a length": Wrong(("pack", "tokens"), 2, "--seq-len", "--help"),
    "packing in an unknown way": Wrong(
        ("pack", "tokens", "--seq-len", "16", "--method", "best-fit"), 2, "best-fit", "bestfit"
    ),
    "importing what is not there": Wrong(
        ("import", "no", "--from", "megatron", "--tokenizer", "bytes", "--out", "i"),
        2,
        "no",
        "\\.bin|\\.idx|path|prefix",
    ),
    "a loader without a plan": Wrong(
        ("bench", "loader", "tokens", "--method", "bestfit", "--seq-len", "16"), 1, "bestfit", "tokpress pack"
    ),
    "training a tokenizer over a file": Wrong(
        ("train-tokenizer", "a.jsonl", "--vocab-size", "300", "--out", "config.json"), 2, "config.json", "--overwrite"
    ),
    "diagnosing nothing": Wrong(("diagnose",), 2, "script|--tokenizer", "tokpress diagnose"),
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    records = [{"id": str(i), "text": f"text number {i}"} for i in range(10)]
    Path("a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    pq.write_table(pa.table({"content": ["some text"], "id": ["1"]}), "a.parquet")
    Path("bad.jsonl").write_text("this is no JSON\n")
    Path("lie.jsonl.gz").write_text("this is not compressed\n")
    Path("lie.parquet").write_text("this is no table\n")
    Path("nothing.jsonl").touch()
    Path("real.jsonl.gz").write_bytes(gzip.compress(b'{"text": "x"}\n'))
    Path("config.json").write_text('{"architectures": ["LlamaForCausalLM"], "hidden_size": 64}')
    Path("bad.toml").write_text('inputs = ["a.jsonl"]\ntokenizer = "bytes"\nout = "out"\nworker = 2\n')
    Path("empty").mkdir()
    Path("pictures").mkdir()
    Path("pictures/cat.png").write_bytes(b"\x89PNG")
    tokpress.build("a.jsonl", tokenizer="bytes", out="tokens")
    return tmp_path


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else b"" for path in directory.rglob("*")
    }


def test_there_are_forty_at_least() -> None:
    assert len(CALLS) >= 40


@pytest.mark.parametrize("name", CALLS)
def test_is_answered(name: str, cli: Cli, place: Path) -> None:
    wrong = CALLS[name]
    before = files(place)
    result = cli(*wrong.call)
    said = " ".join(result.err.split())
    assert "Traceback" not in said
    assert result.code == wrong.code, said
    assert re.search(wrong.names, said), said
    assert re.search(wrong.next, said), said
    assert result.out == ""
    assert files(place) == before


def test_a_corrected_command_is_not_in_the_way_of_the_wrong_one(cli: Cli, place: Path) -> None:
    for wrong in (("--memory", "1MB"), ("--text-field", "txet"), ("--workers", "0"), ("--max-rejects", "-1")):
        assert cli(*BUILD, *wrong).code != 0
    assert cli(*BUILD, "--keep", "id").code == 0
