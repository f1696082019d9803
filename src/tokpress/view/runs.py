"""A build as its events tell it: how far it is, how fast, and how it ended.

In: events, one after the other. Out: `RunView` at any moment. It is made from the events alone, so that whoever reads a file
of them from its start sees the same, however often the build or the reader was stopped.
"""

from __future__ import annotations

from collections import Counter, deque

import msgspec

from tokpress.records import Reject, RunFacts
from tokpress.run import events
from tokpress.run.events import Event, WorkerView

_MOST_POINTS = 240
_RECENT_SECONDS = 15.0
_REJECTS_SHOWN = 20


class RatePoint(msgspec.Struct, frozen=True, kw_only=True):
    """A moment of a run: sums since it began."""

    time: float  # seconds since the run began
    input_bytes: int
    tokens: int
    docs: int
    memory_bytes: int  # of all workers


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """`state`: waiting (nothing was told), preparing, running, stopped (encoding is over), finished, failed."""

    state: str = "waiting"
    store: str = ""
    version: str = ""
    runs: int = 0  # that this store had so far: one more for each time the build went on
    started_at: float = 0.0  # of this run, seconds since 1970
    heard_at: float = 0.0  # of the last event
    files: int = 0
    file_bytes: int = 0
    formats: list[str] = []
    tokenizer: str = ""
    engine: str = ""
    parity: str = ""
    first_document: list[str] = []  # its head and tail
    units: int = 0  # in all
    units_done: int = 0  # with those of earlier runs
    docs_before: int = 0  # stored by earlier runs
    bytes_left: int = 0  # when this run began
    input_bytes: int = 0  # read by this run
    docs: int = 0
    tokens: int = 0
    rejects: int = 0
    tokens_per_s: float = 0.0  # of late
    bytes_per_s: float = 0.0
    eta_seconds: float | None = None
    workers: list[WorkerView] = []
    worker_tokens: dict[int, int] = {}
    memory_bytes: int = 0
    memory_budget: int | None = None
    points: list[RatePoint] = []
    examples: list[Reject] = []  # the latest bad records
    notes: list[str] = []  # what had to be done otherwise: fewer workers, shards written again
    rejects_by_reason: dict[str, int] = {}  # of a finished store
    facts: RunFacts | None = None  # of a finished store: stages, bottleneck
    error: str = ""
    message: str = ""


class RunFold:
    """Hears events, and says where the run is."""

    def __init__(self) -> None:
        self._view = RunView()
        self._points: list[RatePoint] = []
        self._latest: deque[RatePoint] = deque()
        self._worker_tokens: Counter[int] = Counter()
        self._step = 0.0  # seconds between two points

    def on(self, event: Event) -> None:
        changes = self._changes(event)
        heard = self._view.started_at + event.time if not isinstance(event, events.Began) else event.started_at
        self._view = msgspec.structs.replace(self._view, heard_at=heard, **changes)
        if isinstance(event, events.Advanced | events.Workers):
            self._note_point(event.time)

    def _changes(self, event: Event) -> dict[str, object]:
        view = self._view
        match event:
            case events.Began():
                self._points, self._latest, self._worker_tokens, self._step = [], deque(), Counter(), 0.0
                self._view = RunView(
                    state="preparing",
                    store=event.store,
                    version=event.version,
                    started_at=event.started_at,
                    runs=view.runs + 1,
                )
            case events.InputsFound():
                return {"files": event.files, "file_bytes": event.bytes, "formats": event.formats}
            case events.TokenizerLoaded():
                return {"tokenizer": f"{event.kind}, {event.vocab_size:,} tokens, stored as {event.dtype}"}
            case events.Proved():
                return {"engine": event.engine, "parity": event.outcome}
            case events.FirstDocument():
                return {"first_document": [event.head, event.tail]}
            case events.Resuming():
                return {"units": event.units, "units_done": event.units - event.units_left, "docs_before": event.docs}
            case events.ShardsLost():
                return {"notes": [*view.notes, f"{len(event.shards):,} finished shards are gone, and written again"]}
            case events.Started():
                return {
                    "state": "running",
                    "units": view.units or event.units,
                    "bytes_left": event.bytes,
                    "memory_budget": event.memory_bytes,
                }
            case events.FewerWorkers():
                return {"notes": [*view.notes, f"going on with {event.workers} workers: {event.why}"]}
            case events.NoConditions():
                return {"notes": [*view.notes, f"{event.store} ignores conditions: write to it from one machine only"]}
            case events.Advanced():
                self._worker_tokens[event.worker] += event.tokens
                return {
                    "input_bytes": view.input_bytes + event.input_bytes,
                    "docs": view.docs + event.docs,
                    "tokens": view.tokens + event.tokens,
                    "rejects": view.rejects + event.rejects,
                }
            case events.Rejected():
                return {"examples": [*view.examples, *event.examples][-_REJECTS_SHOWN:]}
            case events.Workers():
                return {"workers": event.workers, "memory_bytes": sum(each.memory_bytes for each in event.workers)}
            case events.UnitDone():
                return {"units_done": view.units_done + 1}
            case events.Stopped():
                return {"state": "stopped", "workers": []}
            case events.AlreadyFinished():
                return {"state": "finished"}
            case events.Finished():
                return {
                    "state": "finished",
                    "workers": [],
                    "units_done": view.units,
                    "rejects_by_reason": event.rejects,
                    "facts": event.run,
                }
            case events.Failed():
                return {"state": "failed", "workers": [], "error": event.error, "message": event.message}
        return {}

    def _note_point(self, time: float) -> None:
        """A point for the curves; where there are too many, every second one goes and fewer are taken from then on."""
        view = self._view
        point = RatePoint(
            time=time,
            input_bytes=view.input_bytes,
            tokens=view.tokens,
            docs=view.docs,
            memory_bytes=view.memory_bytes,
        )
        self._latest.append(point)
        while time - self._latest[0].time > _RECENT_SECONDS and len(self._latest) > 2:
            self._latest.popleft()
        if not self._points or time - self._points[-1].time >= self._step:
            self._points.append(point)
        if len(self._points) > _MOST_POINTS:
            self._points = self._points[::2]
            self._step = max(self._step * 2, (self._points[-1].time - self._points[0].time) / (_MOST_POINTS / 2))

    def view(self) -> RunView:
        view = self._view
        rates = {"tokens_per_s": 0.0, "bytes_per_s": 0.0}
        eta = None
        if view.state == "running" and len(self._latest) > 1:
            first, last = self._latest[0], self._latest[-1]
            spent = max(last.time - first.time, 1e-9)
            rates["tokens_per_s"] = max((last.tokens - first.tokens) / spent, 0.0)
            rates["bytes_per_s"] = max((last.input_bytes - first.input_bytes) / spent, 0.0)
            left = view.bytes_left - view.input_bytes
            eta = left / rates["bytes_per_s"] if rates["bytes_per_s"] and left >= 0 else None
        points = self._points + ([self._latest[-1]] if self._latest else [])
        return msgspec.structs.replace(
            view, points=points, worker_tokens=dict(self._worker_tokens), eta_seconds=eta, **rates
        )
