"""Where an attack takes place: an empty directory, and ways to run tokpress in it."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NoReturn
from unittest.mock import patch

import pytest

import tokpress
from attack.table import Outcome
from tokpress.cli import main
from tokpress.errors import TokpressError

SECONDS = 60  # that any attack may take, on a busy machine
_FOREIGN = "not of any store, and of worth to somebody"
_FOREIGN_FILES = {"file", "deep/file", "file.json", "train-00000-000.bin", ".file.0123456789abcdef.tmp"}


class Scene:
    """`path` is empty but for the bystander's files; `out` is where a store would go."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.out = path / "store"
        self.to_remove: list[Path] = []  # what is not below `path`
        self.bystander = path / "bystander"
        for name in _FOREIGN_FILES:
            (self.bystander / name).parent.mkdir(parents=True, exist_ok=True)
            (self.bystander / name).write_text(_FOREIGN)

    @property
    def store(self) -> tokpress.Store:
        return tokpress.open(self.out)

    def close(self) -> None:
        for path in self.to_remove:
            shutil.rmtree(path, ignore_errors=True)

    def check_bystander(self) -> None:
        """Nobody wrote into what is not tokpress's."""
        found = {path.relative_to(self.bystander).as_posix() for path in self.bystander.rglob("*") if path.is_file()}
        assert found == _FOREIGN_FILES, found
        assert all((self.bystander / name).read_text() == _FOREIGN for name in found)

    def skip(self, why: str) -> NoReturn:
        """This machine has not what the case needs: said in one line."""
        pytest.skip(why)

    def corpus(self, docs: int = 50, name: str = "corpus.jsonl") -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps({"text": f"document {number} of {name}"}) + "\n" for number in range(docs)))
        return path

    def built(self, **options: object) -> tokpress.Store:
        """A finished store at `out`, of a small corpus, in several shards."""
        defaults = {"tokenizer": "bytes", "out": self.out, "shard_size": 500}
        return tokpress.build(self.corpus(), **(defaults | options))  # type: ignore[arg-type]

    def build(self, *arguments: object, process: bool = False, **how: object) -> Outcome:
        """`tokpress build ARGUMENTS` into `out` with plain bytes."""
        words = ["build", *arguments, "--tokenizer", "bytes", "--out", self.out]
        return self.process(*words, **how) if process else self.tokpress(*words)  # type: ignore[arg-type]

    def tokpress(self, *arguments: object) -> Outcome:
        """The command in this process: quick, for what can neither hang nor kill."""
        out, err = io.StringIO(), io.StringIO()
        words = ["tokpress", *map(str, arguments)]
        with patch.object(sys, "argv", words), redirect_stdout(out), redirect_stderr(err):
            try:
                main()
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else 1
            except BaseException:  # noqa: BLE001 - a user would see it as it is
                code = 1
                err.write(traceback.format_exc())
        return Outcome(code, out.getvalue(), err.getvalue())

    def process(
        self,
        *arguments: object,
        stdin: bytes | None = b"",
        before: Sequence[str] = (),
        cwd: Path | None = None,
        seconds: float = SECONDS,
        preexec: Callable[[], None] | None = None,
        **environment: str,
    ) -> Outcome:
        """The command in a process of its own, behind the words of `before`; one that hangs is a failure."""
        command = [*before, sys.executable, "-m", "tokpress", *map(str, arguments)]
        return self.shell(command, stdin=stdin, cwd=cwd, seconds=seconds, preexec=preexec, **environment)

    def shell(
        self,
        command: Sequence[str],
        *,
        stdin: bytes | None = b"",
        cwd: Path | None = None,
        seconds: float = SECONDS,
        preexec: Callable[[], None] | None = None,
        **environment: str,
    ) -> Outcome:
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd or self.path,
            env=os.environ | {"PYTHONFAULTHANDLER": "0"} | environment,
            preexec_fn=preexec,
        ) as child:
            try:
                out, err = child.communicate(stdin, timeout=seconds)
            except subprocess.TimeoutExpired:
                child.kill()
                _, err = child.communicate()
                pytest.fail(f"hangs: {' '.join(command)}\n{err.decode(errors='replace')}")
        return Outcome(child.returncode, out.decode(errors="replace"), err.decode(errors="replace"))

    def call(self, function: Callable[[], object]) -> Outcome:
        """What a caller of the Python API sees: an error of tokpress's own, or what was returned."""
        try:
            return Outcome(0, out=repr(function()))
        except TokpressError as error:
            return Outcome(error.exit_code, err=str(error))
        except OSError as error:
            return Outcome(1, err=str(error))
        except BaseException:  # noqa: BLE001 - a caller would have to know what it means
            return Outcome(1, err=traceback.format_exc())
