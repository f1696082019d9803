"""Runs of several machines: how they begin."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from run import jobs
from run.jobs import write_texts
from tokpress.records import PLAN, Parity
from tokpress.run.shared import find_run, join_run
from tokpress.storage.local import LocalStorage
from tokpress.store import unfinished

_CHANGES = ("unlink", "mkdir", "rmdir", "link", "replace")


def dies_after(changes: int, run: Callable[[], None]) -> bool:
    """Runs in a process of its own, which is gone before one more change of the directory; whether it came to its end."""
    pid = os.fork()
    if pid == 0:
        left = changes

        def counted(change: Any) -> Any:
            def wrapped(*arguments: Any, **options: Any) -> Any:
                nonlocal left
                if left == 0:
                    os._exit(9)
                left -= 1
                return change(*arguments, **options)

            return wrapped

        for name in _CHANGES:
            setattr(os, name, counted(getattr(os, name)))
        code = 1
        try:
            run()
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, 9)
    return code == 0


class TestBegin:
    @pytest.mark.parametrize("overwrite", [False, True])
    def test_killed_anywhere_the_same_command_goes_on(self, tmp_path: Path, overwrite: bool) -> None:
        """Before there is a plan, too: what is there then must not be taken for somebody's directory."""
        job, plan = jobs.begin(tmp_path / "other", [write_texts(tmp_path / "a.jsonl", 40)])
        parity = Parity(outcome="not-needed", engine="bytes", reference="bytes")

        def run(storage: LocalStorage) -> None:
            if overwrite:
                unfinished.clear(storage)
                storage.delete(PLAN)
            join_run(storage, plan, parity, job.files)

        changes, ended = 0, False
        while not ended:
            storage = LocalStorage(tmp_path / f"store-{changes}")
            if overwrite:
                join_run(storage, plan, parity, job.files)
            ended = dies_after(changes, lambda storage=storage: run(storage))  # type: ignore[misc]
            unfinished.check_output(storage)
            run(storage)
            assert unfinished.stored_plan(storage) == plan
            assert find_run(storage) is not None
            changes += 1
        assert changes > 5
