"""`--overwrite` says what it deletes; at a terminal it asks first."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import tokpress
from cli.conftest import Cli


def at_a_terminal(answer: str, *arguments: object) -> tuple[int, str]:
    """Runs a command whose streams are a terminal, at which somebody types an answer."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tokpress", *map(str, arguments)]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        os.write(ours, answer.encode())
        said = b""
        try:
            while chunk := os.read(ours, 65536):
                said += chunk
        except OSError:  # how Linux says that the other side is closed
            pass
    os.close(ours)
    return process.returncode, " ".join(said.decode().split())


@pytest.fixture
def words(store: Path, source: Path) -> list[object]:
    return ["build", source, "--tokenizer", "bytes", "--out", store, "--no-eos", "--overwrite"]


class TestAtATerminal:
    def test_no_deletes_nothing(self, words: list[object], store: Path) -> None:
        before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
        code, said = at_a_terminal("n\n", *words)
        assert code == 2
        assert f"--overwrite deletes the finished store {store}: 5 documents, " in said
        assert "nothing was deleted" in said
        assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before

    def test_yes_replaces_it(self, words: list[object], store: Path) -> None:
        fingerprint = tokpress.open(store).fingerprint
        code, said = at_a_terminal("y\n", *words)
        assert code == 0, said
        assert tokpress.open(store).fingerprint != fingerprint

    def test_an_import_asks_too(self, store: Path, tmp_path: Path) -> None:
        tokpress.export(store, to="nanogpt", out=tmp_path / "exported")
        tokens = tmp_path / "exported" / "train.bin"
        options = ["--from", "nanogpt", "--tokenizer", "bytes", "--out", store, "--overwrite"]
        code, said = at_a_terminal("n\n", "import", tokens, *options)
        assert code == 2
        assert "nothing was deleted" in said

    def test_where_there_is_nothing_nobody_is_asked(self, source: Path, tmp_path: Path) -> None:
        new = tmp_path / "new"
        code, said = at_a_terminal("", "build", source, "--tokenizer", "bytes", "--out", new, "--overwrite")
        assert code == 0, said


class TestInAScript:
    def test_it_is_said_and_done(self, cli: Cli, words: list[object], store: Path) -> None:
        result = cli(*words)
        assert result.code == 0
        assert f"deletes the finished store {store}: 5 documents" in result.err

    def test_of_an_unfinished_one_too(self, cli: Cli, words: list[object], store: Path) -> None:
        (store / "manifest.json").unlink()
        assert f"deletes the unfinished store {store}" in cli(*words).err

    def test_what_is_no_store_is_refused(self, cli: Cli, words: list[object], store: Path) -> None:
        for name in ("manifest.json", "plan.json"):
            (store / name).write_text("mine")
        result = cli(*words)
        assert result.code == 2
        assert "not empty and not a store" in result.err

    def test_a_build_that_cannot_begin_deletes_nothing(self, cli: Cli, words: list[object], store: Path) -> None:
        fingerprint = tokpress.open(store).fingerprint
        for bad in (["--tokenizer", "nowhere.json"], ["--bos", "--bos-token", "<none>"]):
            assert cli(*words, *bad).code != 0
            assert tokpress.open(store).fingerprint == fingerprint
            assert tokpress.open(store).verify().ok
