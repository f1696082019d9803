"""Exit codes and errors: one line, the cause, the next step; and no traceback when a user or a pipe has had enough."""

from __future__ import annotations

import os
import pty
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tokpress.cli import inspect as inspect_verb

from .conftest import Cli

COMMAND = [sys.executable, "-m", "tokpress"]


class TestErrors:
    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["buld", "a"], "No such command 'buld'. Did you mean 'build'? See: tokpress --help"),
            (["build", "no-such.jsonl", "--tokenizer", "bytes", "--out", "x"], "no-such.jsonl. Check the path"),
            (
                ["build", "--tokenizer", "bytes", "--out", "x"],
                "Missing argument 'INPUTS...', or a --dataset. See: tokpress build --help",
            ),
            (["build", "a", "--out", "x"], "Missing option '--tokenizer'. See: tokpress build --help"),
            (["build", "a", "--tokenizer", "no/such.json", "--out", "x"], "no such file"),
            (["build", "a", "--tokenizer", "bytes", "--out", "x", "--shard-size", "big"], "Write it like 4GB"),
            (["build", "a", "--tokenizer", "bytes", "--out", "x", "--audit-rate", "7"], "'--audit-rate'"),
            (["build", "a", "--tokenizer", "bytes", "--out", "x", "--special-token", "x"], "<|endoftext|>=100257"),
            (["build", "a", "--tokeniser", "bytes"], "--tokenizer"),
            (["bild"], "No such command 'bild'"),
            (["inspect"], "Missing argument 'STORE'"),
            (["inspect", "x", "--doc", "one"], "'one' is not a valid integer"),
            (["train-tokenizer", "a", "--vocab-size", "5", "--out", "x"], "'--vocab-size'"),
        ],
    )
    def test_wrong_usage_is_one_line_and_exit_code_2(
        self, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
    ) -> None:
        monkeypatch.chdir(tmp_path)
        result = cli(*arguments)
        assert result.code == 2
        assert result.out == ""
        assert result.err.startswith("error: ")
        assert result.err.count("\n") == 1
        assert said in result.err
        assert list(tmp_path.iterdir()) == []

    def test_a_store_that_is_not_there_is_exit_code_1(self, cli: Cli, tmp_path: Path) -> None:
        for verb in ("inspect", "verify"):
            result = cli(verb, tmp_path / "nowhere")
            assert (result.code, result.out) == (1, "")
            assert result.err == (
                f"error: no store at {tmp_path / 'nowhere'}: there is no such directory. Make one: tokpress build --help\n"
            )

    def test_what_the_system_refuses_is_one_line(self, cli: Cli, source: Path, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        result = cli("build", source, "--tokenizer", "bytes", "--out", tmp_path / "file" / "store")
        assert result.code == 1
        assert result.err.splitlines()[-1].startswith(f"error: {tmp_path / 'file'}")
        assert "Traceback" not in result.err

    def test_a_message_cannot_command_the_terminal(self, cli: Cli) -> None:
        result = cli("build", "\x1b[31mevil\n.jsonl", "--tokenizer", "bytes", "--out", "x")
        assert result.code == 2
        assert "\\x1b[31mevil" in result.err
        assert "\x1b" not in result.err

    def test_a_bug_is_not_hidden(self, cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(*args: Any) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(inspect_verb, "_print_store", broken)
        with pytest.raises(ZeroDivisionError):
            cli("inspect", store)


class TestInterrupt:
    def test_ctrl_c_in_the_middle_of_a_build_leaves_no_store_and_no_traceback(self, tmp_path: Path) -> None:
        out = tmp_path / "store"
        arguments = ["build", "-", "--tokenizer", "bytes", "--out", str(out), "--shard-size", "1MB"]
        line = b'{"text": "' + b"word " * 200 + b'"}\n'
        with subprocess.Popen([*COMMAND, *arguments], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdin is not None
            # More than two batches and what a pipe holds: when all is written the first batch has been dealt with, and
            # the process waits for more.
            process.stdin.write(line * (13_000_000 // len(line)))
            process.send_signal(signal.SIGINT)
            _, err = process.communicate()
        assert process.returncode == 130, err.decode()
        assert "interrupted. What was read from standard input is gone" in err.decode().splitlines()[-1]
        assert b"Traceback" not in err
        assert not (out / "manifest.json").exists()
        assert list((out / "shards").glob("*.json"))
        assert not list(out.rglob("*.tmp"))

    def test_says_how_to_go_on(self, tmp_path: Path) -> None:
        (tmp_path / "a b.jsonl").write_text('{"text": "some words"}\n' * 3_000_000)
        out = tmp_path / "store"
        arguments = [
            "build",
            str(tmp_path / "a b.jsonl"),
            "--tokenizer",
            "bytes",
            "--out",
            str(out),
            "--unit-size",
            "1MB",
        ]
        with subprocess.Popen([*COMMAND, *arguments, "--overwrite"], stderr=subprocess.PIPE) as process:
            while not list(out.glob("shards/*.json")):
                assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate()
        assert process.returncode == 130, err.decode()
        said, command = err.decode().splitlines()[-2:]
        assert said.startswith("interrupted. What is finished is kept")
        assert command == f"  {shlex.join(['tokpress', *arguments])}"
        assert not list(out.rglob("*.tmp"))
        assert subprocess.run([*COMMAND, *arguments, "--quiet"], check=True).returncode == 0

    @pytest.mark.parametrize("verb", ["inspect", "verify"])
    def test_ctrl_c_elsewhere(self, cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
        def interrupted(path: Path, *args: Any, **kwargs: Any) -> bytes:
            raise KeyboardInterrupt

        monkeypatch.setattr(Path, "read_bytes", interrupted)
        result = cli(verb, store)
        assert result.code == 130
        assert "interrupted" in result.err


class TestPipes:
    @pytest.mark.parametrize(
        "arguments", [["inspect"], ["inspect", "--json"], ["inspect", "--doc", "4"], ["verify"], ["verify", "--json"]]
    )
    def test_a_reader_that_goes_away_is_no_error(self, shared_store: Path, arguments: list[str]) -> None:
        """As in `tokpress inspect tokens | head -1`."""
        command = [*COMMAND, arguments[0], str(shared_store), *arguments[1:]]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.close()  # before a byte is written
            assert process.stderr is not None
            err = process.stderr.read()
        assert err == b""

    def test_a_pipe_gets_plain_text(self, shared_store: Path) -> None:
        for verb in ("inspect", "verify"):
            result = subprocess.run([*COMMAND, verb, str(shared_store)], capture_output=True, check=True)
            assert b"\x1b" not in result.stdout + result.stderr

    def test_a_terminal_gets_colours(self, shared_store: Path) -> None:
        terminal, child = pty.openpty()
        environment = {**os.environ, "TERM": "xterm-256color"}
        environment.pop("NO_COLOR", None)
        command = [*COMMAND, "inspect", str(shared_store), "--doc", "0"]
        with subprocess.Popen(command, stdout=child, env=environment) as process:
            os.close(child)
            shown = b"".join(iter(lambda: _read(terminal), b""))
        os.close(terminal)
        assert process.returncode == 0
        assert b"\x1b[" in shown
        assert b"H\x1b[0m" in shown  # a token of its own

    @pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
    def test_a_stream_that_is_closed_is_no_error(self, closed: str) -> None:
        """As cron and some launchers start a program."""
        command = f"{shlex.quote(sys.executable)} -m tokpress --version {closed}"
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
        assert done.returncode == 0
        assert "Traceback" not in done.stderr


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other end is closed
        return b""
