"""A script that is observed: its exit code, its signals, its samples."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tokpress.diagnose import observe as observe_module
from tokpress.diagnose.observe import observe
from tokpress.errors import UsageError

from .conftest import Run

# A first step, told by the watch itself, without an optimizer that would need torch.
STEPS = """
import sys, time
watch = next(finder._watch for finder in sys.meta_path if hasattr(finder, "_watch"))
watch.stepped(watch)
time.sleep(0.3)  # several looks of the one that observes
"""


class TestExitCode:
    @pytest.mark.parametrize(
        ("script", "code"),
        [("", 0), ("raise SystemExit(42)", 42), ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137)],
    )
    def test_is_the_script_s(self, run: Run, script: str, code: int) -> None:
        assert run(script).exit_code == code

    def test_of_a_command_that_is_not_there(self) -> None:
        with pytest.raises(UsageError, match="cannot run 'no-such-program': No such file"):
            observe(["no-such-program"])


def test_a_script_finds_the_modules_of_its_own_pythonpath(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "my_model.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "mine"), prepend=os.pathsep)
    assert run("import my_model").exit_code == 0


class TestSamples:
    def test_are_of_the_loop_alone(self, run: Run) -> None:
        """Neither imports nor what comes before the first step."""
        script = """
import time, torch
def before(): time.sleep(0.5)
def loop():
    end = time.perf_counter() + 0.8
    while time.perf_counter() < end:
        sum(range(1000))
before()
w = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([w], lr=0.1)
for step in range(2):
    w.grad = torch.ones(3)
    optimizer.step()
    loop()
"""
        observed = run(script)
        assert observed.samples is not None, observed.notes
        assert observed.samples.total > 20
        assert {line for _, line, _ in observed.samples.lines} <= {5, 6, 7, 12, 13, 14}
        assert observed.samples.kinds.get("other", 0) > 20
        assert observed.notes == []

    def test_without_py_spy_say_how_to_get_it(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(observe_module, "_py_spy", lambda: None)
        observed = run(STEPS)
        assert observed.samples is None
        assert observed.notes[0].endswith("Install it: pip install 'tokpress[diagnose]'")

    def test_that_cannot_be_taken_say_why(self, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        refusing = tmp_path / "py-spy"
        refusing.write_text("#!/bin/sh\necho 'Error: Permission Denied' >&2\nexit 1\n")
        refusing.chmod(0o755)
        monkeypatch.setattr(observe_module, "_py_spy", lambda: str(refusing))
        observed = run(STEPS)
        assert observed.samples is None
        assert observed.notes == ["py-spy took no samples (Error: Permission Denied)."]

    @pytest.mark.parametrize("reason", ["meter", "rank"])
    def test_are_not_taken_where_nobody_wants_them(
        self, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reason: str
    ) -> None:
        monkeypatch.setattr(observe_module, "_py_spy", lambda: pytest.fail("it was sampled"))
        monkeypatch.setenv("RANK", "1" if reason == "rank" else "0")
        observed = run(("import tokpress.metering.meter\n" if reason == "meter" else "") + STEPS)
        assert (observed.samples, observed.notes) == (None, [])


OBSERVED = """
import sys
from tokpress.diagnose.observe import observe
observed = observe([sys.executable, "-c", '''
import signal, sys, time, tokenizers
tokenizers.Tokenizer(tokenizers.models.BPE()).encode("")
try:
    print("ready", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    print("script: interrupted", flush=True)
    sys.exit(5)
'''])
print("observed", observed.exit_code, len(observed.watched), flush=True)
"""


class TestSignals:
    def start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", OBSERVED], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def test_ctrl_c_is_the_script_s_and_it_is_still_reported_on(self) -> None:
        process = self.start()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
        said, _ = process.communicate(timeout=60)
        assert said.splitlines() == ["script: interrupted", "observed 5 1"]
        assert process.returncode == 0

    def test_what_a_scheduler_sends_is_passed_on(self) -> None:
        process = self.start()
        process.terminate()  # this one alone
        said, _ = process.communicate(timeout=60)
        assert said.splitlines() == [f"observed {128 + signal.SIGTERM} 0"]
