"""At a terminal of 80 or 100 columns no line is broken inside a word, a number or a path; in a pipe lines stay whole."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from rich.console import Console

import tokpress
from tokpress.cli.printable import between_words
from tokpress.cli.show import print_fact

LONG = "huggingface, 1,000 tokens, stored as uint16, no BOS, EOS <|endoftext|>, and some more of what is said here"


def at_terminal(*arguments: str, columns: int, cwd: Path) -> list[str]:
    """What a person sees, line by line, without colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm"}
    environment = {name: value for name, value in environment.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    command = [sys.executable, "-m", "tokpress", *arguments]
    process = subprocess.Popen(command, cwd=cwd, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b""
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        said += chunk
    os.close(ours)
    process.wait()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode())
    return [line.rpartition("\r")[2] for line in text.replace("\r\n", "\n").split("\n")]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    records = [{"id": str(i), "text": f"number {i} " * 20} for i in range(200)]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return tmp_path


@pytest.mark.parametrize("columns", [80, 100])
def test_a_build_fits(place: Path, columns: int) -> None:
    lines = at_terminal(
        "build", "corpus.jsonl", "--tokenizer", "bytes", "--keep", "id", "--out", "tokens", columns=columns, cwd=place
    )
    assert max(map(len, lines)) <= columns
    said = " ".join(" ".join(lines).split())
    assert "200 written + 0 rejected = 200 read" in said
    assert "tokpress inspect tokens" in said


@pytest.mark.parametrize("columns", [80, 100])
def test_an_error_fits(place: Path, columns: int) -> None:
    lines = at_terminal(
        *("build", "corpus.jsonl", "--tokenizer", "bytes", "--text-field", "some.rather.long.name.of.a.field"),
        *("--out", "tokens"),
        columns=columns,
        cwd=place,
    )
    assert max(map(len, lines)) <= columns
    said = " ".join(" ".join(lines).split())
    assert "'some.rather.long.name.of.a.field'" in said
    assert "choose one with --text-field" in said


@pytest.mark.parametrize("columns", [80, 100])
@pytest.mark.parametrize("verb", ["inspect", "verify", "status", "pack", "export"])
def test_every_verb_fits(place: Path, monkeypatch: pytest.MonkeyPatch, verb: str, columns: int) -> None:
    monkeypatch.chdir(place)
    tokpress.build("corpus.jsonl", tokenizer="bytes", out="tokens")
    more = {"pack": ["--seq-len", "64"], "export": ["--to", "megatron", "--out", "exported"]}
    lines = at_terminal(verb, "tokens", *more.get(verb, []), columns=columns, cwd=place)
    assert any(lines)
    text = [line for line in lines if not line.startswith("number ")]  # a document's own text is shown as it is
    assert max(map(len, text)) <= columns


class TestFacts:
    def test_are_broken_between_words_below_their_beginning(self) -> None:
        shown = io.StringIO()
        print_fact(Console(file=shown, force_terminal=True, width=80, no_color=True), "tokenizer", LONG)
        lines = [re.sub(r"\x1b\[\d*m", "", line) for line in shown.getvalue().splitlines()]
        assert len(lines) == 2
        assert all(len(line) <= 80 for line in lines)
        assert lines[1].startswith(" " * 12)
        assert " ".join(" ".join(lines).split()) == f"tokenizer {LONG}"

    def test_stay_whole_in_a_pipe(self) -> None:
        shown = io.StringIO()
        print_fact(Console(file=shown, width=80, soft_wrap=True), "tokenizer", LONG)
        assert shown.getvalue() == f" tokenizer  {LONG}\n"


class TestErrors:
    def test_are_broken_between_words(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", "40")
        line = "error: a/path/that-is-longer/than/the/whole/line/of/this/terminal.jsonl is not there, or not to be read"
        lines = between_words(line).splitlines()
        assert " ".join(" ".join(lines).split()) == line
        assert all(len(part) <= 40 for part in lines if "/" not in part)

    def test_stay_whole_in_a_pipe(self) -> None:
        assert between_words("word " * 50) == "word " * 50
