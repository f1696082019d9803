"""The command as a user runs it, and stores to run it on."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import tokpress
from tokpress.cli import main


class Result(NamedTuple):
    code: int
    out: str
    err: str


Cli = Callable[..., Result]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Cli:
    """Runs `tokpress ARGUMENTS...` in this process."""

    def run(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["tokpress", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        assert isinstance(stop.value.code, int)
        return Result(stop.value.code, *capfd.readouterr())

    return run


TEXTS = [
    "Hello, world.",
    "",
    "zwei Wörter\nin Zeilen\t!",
    "\x1b[31mred\x1b[0m \x07bell \u202eright to left",
    "word " * 300,
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return path


@pytest.fixture(scope="session")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("cli")
    (directory / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS) + "not json\n")
    return tokpress.build(directory / "texts.jsonl", tokenizer="bytes", out=directory / "store", shard_size=50).path


@pytest.fixture
def store(shared_store: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(shared_store, tmp_path / "store"))
