"""From what was observed to faults and advice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tokpress.diagnose.findings import Diagnosis, diagnose
from tokpress.diagnose.observe import Observed, Watched, WatchedLine
from tokpress.diagnose.samples import Samples
from tokpress.metering.report import PHASES, PhaseTimes, StepReport

STEPS, SECONDS = 100, 10.0


def line(kind: str, *, share: float = 0.0, calls: int = STEPS, texts: int = 0, number: int = 1) -> WatchedLine:
    return WatchedLine(kind=kind, calls=calls, seconds=share * SECONDS, texts=texts, file="train.py", line=number)


def watched(*lines: WatchedLine, **changes: Any) -> Watched:
    values: dict[str, Any] = {"pid": 1, "rank": 0, "steps": STEPS, "seconds": SECONDS, "device": "cpu"}
    return Watched(**values | {"missed": [], "lines": list(lines), "beside": []} | changes)


def found(*processes: Watched, **changes: Any) -> Diagnosis:
    values: dict[str, Any] = {"exit_code": 0, "meter": None, "samples": None, "notes": []}
    return diagnose(Observed(watched=list(processes), **values | changes))


def meter(**shares: float) -> StepReport:
    phases = [
        PhaseTimes(phase=phase, mean_ms=shares.get(phase, 0) * 100, p50_ms=0, p99_ms=0, share=shares.get(phase, 0))
        for phase in (*PHASES, "other")
    ]
    return StepReport(steps=50, mean_ms=100, p50_ms=100, p99_ms=100, tokens_per_s=5000, phases=phases)


def parts(diagnosis: Diagnosis) -> dict[str, float]:
    return {part.phase: round(part.share, 6) for part in diagnosis.parts}


class TestParts:
    def test_without_samples_the_rest_is_one(self) -> None:
        diagnosis = found(watched(line("tokenize", share=0.3), line("sync", share=0.1)))
        assert parts(diagnosis) == {"tokenize": 0.3, "sync": 0.1, "rest": 0.6}
        assert [round(part.ms, 6) for part in diagnosis.parts] == [30, 10, 60]
        assert (diagnosis.source, diagnosis.steps, diagnosis.step_ms) == ("watch", 100, 100)

    def test_samples_split_what_the_watch_does_not_know(self) -> None:
        samples = Samples(10, {"compute": 6, "data": 1, "other": 1}, [("train.py", 7, 5), ("train.py", 8, 1)])
        diagnosis = found(watched(line("tokenize", share=0.2)), samples=samples)
        assert parts(diagnosis) == {"tokenize": 0.2, "data": 0.1, "compute": 0.6, "other": 0.1}
        assert diagnosis.source == "watch and samples"
        assert [(busy.where, busy.share) for busy in diagnosis.busiest] == [("train.py:7", 0.5), ("train.py:8", 0.1)]

    def test_a_meter_is_believed(self) -> None:
        diagnosis = found(watched(line("data", share=0.5)), meter=meter(data=0.02, compute=0.98))
        assert parts(diagnosis) == {"data": 0.02, "compute": 0.98}
        assert diagnosis.faults == []
        assert (diagnosis.source, diagnosis.steps, diagnosis.tokens_per_s) == ("StepMeter", 50, 5000)
        assert any("nothing to wait for" in note for note in diagnosis.notes)

    def test_of_several_ranks_are_those_of_the_first(self) -> None:
        others = watched(line("sync", share=0.9), rank=1)
        assert parts(found(others, watched(line("sync", share=0.1)))) == {"sync": 0.1, "rest": 0.9}
        assert found(others, watched()).ranks == 2


class TestFaults:
    def test_none(self) -> None:
        diagnosis = found(watched(line("data", share=0.04), line("tokenize", share=0.009), line("sync", calls=10)))
        assert diagnosis.faults == []

    @pytest.mark.parametrize(
        ("calls", "texts", "how"),
        [(800, 800, "one text a call, 8.0 calls a step"), (100, 800, "8 texts a call, 1.0 calls a step")],
    )
    def test_tokenizing_says_how(self, calls: int, texts: int, how: str) -> None:
        (fault,) = found(watched(line("tokenize", share=0.35, calls=calls, texts=texts))).faults
        assert fault.kind == "tokenize"
        assert fault.share == pytest.approx(0.35)
        assert fault.says == f"The loop tokenizes, {how}: 35.0% of the step."
        assert "tokpress build INPUTS" in fault.do

    def test_reading_in_every_step_is_one_however_cheap(self) -> None:
        (fault,) = found(watched(line("sync", share=0.00002, number=7), line("sync", calls=20, number=9))).faults
        assert fault.kind == "sync"
        assert "1.0 times a step: 0.0020% of the step. This run had no GPU" in fault.says
        assert [read.where for read in fault.lines] == ["train.py:7"]

    def test_reading_on_a_gpu_is_said_to_be_a_wait_for_its_work(self) -> None:
        (fault,) = found(watched(line("sync", share=0.8), device="cuda")).faults
        assert "80.0% of the step. While the host waits there the device is finishing" in fault.says

    def test_waiting_at_log_steps_is_none_however_long(self) -> None:
        """The host is ahead of the device, and waits for it: that is as it should be."""
        assert found(watched(line("sync", share=0.8, calls=10), device="cuda"), meter=meter(sync=0.8)).faults == []

    def test_waiting_for_data(self) -> None:
        (fault,) = found(watched(line("data", share=0.4))).faults
        assert fault.says == "The loop waits for its next batch 40.0% of the step."
        assert "Make batches ahead" in fault.do

    @pytest.mark.parametrize("where", ["worker", "thread"])
    def test_waiting_for_workers_that_tokenize(self, where: str) -> None:
        encodes = line("tokenize", share=0.6, texts=5000)
        worker = watched(encodes, pid=2, steps=0) if where == "worker" else watched(steps=0)
        trainer = watched(line("data", share=0.4), beside=[] if where == "worker" else [encodes])
        (fault,) = found(worker, trainer).faults
        assert "workers tokenize (5,000 texts, 6.0 s)" in fault.do

    def test_waiting_in_a_loop_that_tokenizes_itself_is_not_blamed_on_workers(self) -> None:
        tokenizing, waiting = found(watched(line("tokenize", share=0.3, texts=100), line("data", share=0.4))).faults
        assert (tokenizing.kind, waiting.kind) == ("tokenize", "data")
        assert "Make batches ahead" in waiting.do

    def test_of_a_meter(self) -> None:
        diagnosis = found(meter=meter(tokenize=0.2, data=0.3, copy=0.1, compute=0.4))
        assert [(fault.kind, fault.share) for fault in diagnosis.faults] == [
            ("tokenize", 0.2),
            ("data", 0.3),
            ("copy", 0.1),
        ]

    def test_of_a_meter_without_a_mark_around_the_tokenizer(self) -> None:
        (fault,) = found(watched(line("tokenize", share=0.3)), meter=meter(compute=1.0)).faults
        assert (fault.kind, fault.share) == ("tokenize", 0.3)

    def test_of_libraries_that_only_samples_know(self) -> None:
        samples = Samples(10, {"compute": 5, "data": 3, "tokenize": 2}, [])
        faults = found(watched(), samples=samples).faults
        assert [(fault.kind, fault.share) for fault in faults] == [("tokenize", 0.2), ("data", 0.3)]

    def test_show_the_code(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "train.py").write_text("import torch\n    losses.append(loss.item())\n")
        read = WatchedLine(kind="sync", calls=100, seconds=1, texts=0, file=str(tmp_path / "train.py"), line=2)
        (fault,) = found(watched(read)).faults
        assert [(each.where, each.code) for each in fault.lines] == [("train.py:2", "losses.append(loss.item())")]


class TestNotes:
    def test_without_steps(self) -> None:
        diagnosis = found(watched(line("tokenize", share=0.5, calls=7, texts=7), steps=0))
        assert any("calls a step are not known" in note for note in diagnosis.notes)
        assert diagnosis.faults[0].says == "The loop tokenizes, one text a call, 7 calls: 50.0% of the run."
        assert diagnosis.step_ms == 0

    def test_without_anything(self) -> None:
        diagnosis = found(exit_code=3)
        assert (diagnosis.exit_code, diagnosis.parts, diagnosis.source) == (3, [], "nothing")
        assert diagnosis.notes[0] == "The script ended with exit code 3."
        assert "ignores PYTHONPATH" in diagnosis.notes[1]

    def test_what_could_not_be_watched(self) -> None:
        assert "could not be watched: torch: gone" in found(watched(missed=["torch: gone"])).notes
