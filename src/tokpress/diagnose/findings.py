"""What was observed -> shares of a step, faults, advice.

In: `Observed`. Out: `Diagnosis`. A fault is something that the user can mend, with the line that causes it and the share of
the step that was measured for it. Time in which the host waits for the device at a log step is none: the device works then.
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from tokpress.diagnose.observe import Observed, Watched, WatchedLine
from tokpress.metering.report import NAMES, REST, StepReport

_TOKENIZE_SHARE = 0.01  # from here on it is worth a word
_DATA_SHARE = 0.05
_COPY_SHARE = 0.05
_READS_A_STEP = 0.5  # a log every few steps is no fault
_MOST_LINES = 3
_LINE_SHARE = 0.05

_TOKENIZE_ADVICE = (
    "Tokenize once: tokpress build INPUTS --tokenizer T --out tokens; then read tokpress.Loader in the loop. To keep the "
    "loop, hand whole batches to tokpress.ParallelTokenizer. What each brings here: "
    "tokpress diagnose --tokenizer T --inputs INPUTS"
)
_SYNC_ADVICE = "Add up loss.detach() in the loop, and read the sum with .item() at log steps alone."
_DATA_ADVICE = "Make batches ahead of time: tokpress.Loader does, with threads=2 for many small fields."
_WORKERS_ADVICE = (
    "The loader's own workers tokenize ({texts:,} texts, {seconds:.1f} s) and do not keep up. Tokenize once: "
    "tokpress build INPUTS --tokenizer T --out tokens; then read tokpress.Loader."
)
_COPY_ADVICE = "Copy beside the step: tokpress.Loader(device='cuda'), or pinned memory and .to(..., non_blocking=True)."
_CPU_READS = (
    "This run had no GPU, where a read waits for nothing. On a GPU the host stops there until the device has done all that "
    "it was given, and the device then waits for the host: the share will be larger."
)
_GPU_READS = (
    "While the host waits there the device is finishing its work; what is lost is the head start of the next step."
)


class Part(msgspec.Struct, frozen=True, kw_only=True):
    phase: str
    share: float
    ms: float  # of a step; of the whole run if no steps were seen


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the user's own code."""

    where: str  # file:line
    code: str
    share: float
    calls_per_step: float = 0.0


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    kind: str  # tokenize, data, copy or sync
    share: float
    says: str
    do: str
    lines: list[Line] = []


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    exit_code: int
    source: str  # "StepMeter", "watch", "watch and samples" or "nothing"
    steps: int
    step_ms: float
    tokens_per_s: float
    ranks: int
    device: str
    parts: list[Part]
    faults: list[Fault]
    busiest: list[Line]  # where samples were taken
    notes: list[str]


def diagnose(observed: Observed) -> Diagnosis:
    trainers = [watched for watched in observed.watched if watched.steps]
    main = min(trainers or observed.watched, key=lambda watched: (-watched.steps, watched.rank), default=None)
    meter = observed.meter
    notes = list(observed.notes)
    if observed.exit_code:
        notes.append(f"The script ended with exit code {observed.exit_code}.")
    if main is not None:
        notes += [f"could not be watched: {missed}" for missed in main.missed]
    if main is None and meter is None:
        notes.append(
            "No Python process that trains or tokenizes was seen: it did not start, was killed, or ignores PYTHONPATH "
            "(python -I and -E do)."
        )
    elif meter is None and not trainers:
        notes.append(
            "No torch optimizer made two steps: shares are of the whole run, its start included, and calls a step are "
            "not known."
        )
    if meter is not None:
        notes.append(meter.note)
    parts = _meter_parts(meter) if meter else _parts(main, observed) if main else []
    return Diagnosis(
        exit_code=observed.exit_code,
        source=_source(observed, main),
        steps=meter.steps if meter else main.steps if main else 0,
        step_ms=meter.mean_ms if meter else main.seconds / main.steps * 1e3 if main and main.steps else 0.0,
        tokens_per_s=meter.tokens_per_s if meter else 0.0,
        ranks=meter.ranks if meter else max(len(trainers), 1),
        device=meter.device if meter else main.device if main else "cpu",
        parts=parts,
        faults=_faults(parts, main, observed.watched),
        busiest=_busiest(observed),
        notes=notes,
    )


def _source(observed: Observed, main: Watched | None) -> str:
    if observed.meter:
        return "StepMeter"
    if main is None:
        return "nothing"
    return "watch and samples" if observed.samples and observed.samples.kinds else "watch"


def _meter_parts(meter: StepReport) -> list[Part]:
    return [Part(phase=times.phase, share=times.share, ms=times.mean_ms) for times in meter.phases if times.mean_ms]


def _parts(main: Watched, observed: Observed) -> list[Part]:
    """The watch's own shares; what is left is split as the samples say."""
    shares = {kind: _share(main, kind) for kind in ("tokenize", "data", "sync")}
    rest = max(1 - sum(shares.values()), 0.0)
    kinds = observed.samples.kinds if observed.samples else {}
    sampled = sum(kinds.values())
    for kind, count in (kinds if sampled else {REST: 1}).items():
        shares[kind] = shares.get(kind, 0.0) + rest * count / max(sampled, 1)
    each_ms = main.seconds * 1e3 / max(main.steps, 1)
    return [
        Part(phase=phase, share=shares[phase], ms=shares[phase] * each_ms)
        for phase in NAMES
        if shares.get(phase, 0.0) > 0
    ]


def _share(main: Watched, kind: str) -> float:
    return sum(line.seconds for line in main.lines if line.kind == kind) / main.seconds if main.seconds else 0.0


def _faults(parts: list[Part], main: Watched | None, watched: list[Watched]) -> list[Fault]:
    seen = dict.fromkeys(NAMES, 0.0) | {part.phase: part.share for part in parts}
    if main is not None:  # a loop may have a meter and no mark around its tokenizer
        seen["tokenize"] = max(seen["tokenize"], _share(main, "tokenize"))
    faults = []
    if seen["tokenize"] >= _TOKENIZE_SHARE:
        faults.append(_tokenizing(main, seen["tokenize"]))
    if seen["data"] >= _DATA_SHARE:
        says = f"The loop waits for its next batch {seen['data']:.1%} of the step."
        faults.append(Fault(kind="data", share=seen["data"], says=says, do=_data_advice(main, watched)))
    if seen["copy"] >= _COPY_SHARE:
        says = f"The host spends {seen['copy']:.1%} of the step on copies to the device."
        faults.append(Fault(kind="copy", share=seen["copy"], says=says, do=_COPY_ADVICE))
    if main is not None and main.steps:
        reads = [line for line in main.lines if line.kind == "sync" and line.calls / main.steps >= _READS_A_STEP]
        if reads:
            faults.append(_reading(main, reads))
    return faults


def _tokenizing(main: Watched | None, share: float) -> Fault:
    lines = [line for line in main.lines if line.kind == "tokenize"] if main else []
    calls, texts = sum(line.calls for line in lines), sum(line.texts for line in lines)
    how = ""
    if main is not None and calls:
        each = "one text a call" if texts < 2 * calls else f"{texts / calls:.0f} texts a call"
        how = f", {each}" + (f", {calls / main.steps:.1f} calls a step" if main.steps else f", {calls:,} calls")
    whole = "step" if main is None or main.steps else "run"
    says = f"The loop tokenizes{how}: {percent(share)} of the {whole}."
    return Fault(kind="tokenize", share=share, says=says, do=_TOKENIZE_ADVICE, lines=_lines(main, lines))


def _reading(main: Watched, reads: list[WatchedLine]) -> Fault:
    share = sum(line.seconds for line in reads) / main.seconds
    each = sum(line.calls for line in reads) / main.steps
    honest = _CPU_READS if main.device == "cpu" else _GPU_READS
    says = f"The loop reads a result from the device {each:.1f} times a step: {percent(share)} of the step. {honest}"
    return Fault(kind="sync", share=share, says=says, do=_SYNC_ADVICE, lines=_lines(main, reads))


def _data_advice(main: Watched | None, watched: list[Watched]) -> str:
    """Who tokenizes in the background is told so."""
    workers = [line for process in watched if process is not main for line in process.lines if line.kind == "tokenize"]
    workers += [line for line in (main.beside if main else []) if line.kind == "tokenize"]
    if not workers:
        return _DATA_ADVICE
    return _WORKERS_ADVICE.format(
        texts=sum(line.texts for line in workers), seconds=sum(line.seconds for line in workers)
    )


def _lines(main: Watched | None, lines: Iterable[WatchedLine]) -> list[Line]:
    if main is None:
        return []
    return [
        Line(
            where=_where(line.file, line.line),
            code=_code(line.file, line.line),
            share=line.seconds / main.seconds,
            calls_per_step=line.calls / main.steps if main.steps else 0.0,
        )
        for line in sorted(lines, key=lambda line: -line.seconds)[:_MOST_LINES]
    ]


def _busiest(observed: Observed) -> list[Line]:
    if observed.samples is None:
        return []
    shares = [(file, line, count / observed.samples.total) for file, line, count in observed.samples.lines]
    return [
        Line(where=_where(file, line), code=_code(file, line), share=share)
        for file, line, share in shares[:_MOST_LINES]
        if share >= _LINE_SHARE
    ]


def percent(share: float) -> str:
    """Measured, however small."""
    return f"{share:.1%}" if share >= 0.001 else f"{share:.4%}"


def _where(file: str, line: int) -> str:
    path = Path(file)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{os.fspath(shown)}:{line}"


def _code(file: str, line: int) -> str:
    return linecache.getline(file, line).strip()
