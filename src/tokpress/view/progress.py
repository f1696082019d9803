"""A build's progress for who calls `tokpress.build` from Python: a line in scripts, a bar in notebooks.

In: events. Out: numbers only, none of the corpus's own text. A terminal has one line that is written over; a log file gets a
line every ten seconds; what is soon done says nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import monotonic
from typing import Any, Literal, Protocol, TextIO

from tokpress.drawing import facts, notebook
from tokpress.run.events import Event, Reporter
from tokpress.view.runs import RunFold, RunView

Progress = bool | Literal["auto"]
_AFTER_SECONDS = 0.5
_TERMINAL_SECONDS = 0.2
_LOG_SECONDS = 10.0


class Shown(Protocol):
    """What can be shown anew: the handle that IPython gives for a display."""

    def update(self, obj: Any) -> None: ...


def build_progress(progress: Progress, *, has_reporter: bool) -> Reporter | None:
    """ "auto": wherever nobody else hears the events."""
    if progress is False or (progress == "auto" and has_reporter):
        return None
    display = _notebook_display()
    return ScriptProgress(sys.stderr) if display is None else NotebookProgress(display)


class ScriptProgress:
    """One line at a time on a stream."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._terminal = stream.isatty()
        self._fold = RunFold()
        self._began = self._told = clock()
        self._open = False  # a line that is not ended

    def on(self, event: Event) -> None:
        self._fold.on(event)
        view = self._fold.view()
        now = self._clock()
        if view.state in ("finished", "failed"):
            if self._open or now - self._began > _LOG_SECONDS:
                self._tell(f"{_counts(view)}, {view.state} after {now - self._began:.1f} s", last=True)
        elif self._terminal:
            if now - self._began > _AFTER_SECONDS and now - self._told > _TERMINAL_SECONDS:
                self._tell(_line(view))
                self._told = now
        elif now - self._told > _LOG_SECONDS:
            self._tell(_line(view))
            self._told = now

    def _tell(self, text: str, *, last: bool = False) -> None:
        if self._terminal:
            self._stream.write(f"\r\x1b[2K{text}" + ("\n" if last else ""))
            self._open = not last
        else:
            self._stream.write(f"{text}\n")
        self._stream.flush()


class NotebookProgress:
    """A bar under the cell, which stays as a line when the build is over."""

    def __init__(self, display: Callable[[str], Shown], clock: Callable[[], float] = monotonic) -> None:
        self._display = display
        self._clock = clock
        self._fold = RunFold()
        self._shown: Shown | None = None
        self._told = 0.0

    def on(self, event: Event) -> None:
        self._fold.on(event)
        view = self._fold.view()
        now = self._clock()
        if view.state not in ("finished", "failed") and now - self._told < _AFTER_SECONDS:
            return
        self._told = now
        drawn = Markup(_bar(view))
        if self._shown is None:
            self._shown = self._display(drawn._repr_html_())
        else:
            self._shown.update(drawn)


class Markup:
    """HTML that a notebook shows as it is."""

    def __init__(self, text: str) -> None:
        self._text = text

    def _repr_html_(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "tokpress.build"


def _share(view: RunView) -> float:
    if view.state == "finished":
        return 1.0
    return min(max(view.input_bytes / view.bytes_left, 0.0), 1.0) if view.bytes_left else 0.0


def _counts(view: RunView) -> str:
    rejects = f", {view.rejects:,} rejected" if view.rejects else ""
    return f"tokpress: {view.docs:,} documents, {view.tokens:,} tokens{rejects}"


def _line(view: RunView) -> str:
    if view.state != "running":
        return f"tokpress: {view.state}"
    left = "" if view.eta_seconds is None else f", {view.eta_seconds:.0f} s left"
    return f"{_counts(view)}, {_share(view):.0%}, {view.tokens_per_s / 1e6:.1f} M tokens/s{left}"


def _bar(view: RunView) -> str:
    share = _share(view)
    bar = f'<progress max="1" value="{share:.4f}" style="width:100%"></progress>'
    left = "" if view.eta_seconds is None else f"about {view.eta_seconds:.0f} s left"
    rows = [("documents", f"{view.docs:,}"), ("tokens", f"{view.tokens:,}"), ("rejected", f"{view.rejects:,}")]
    return notebook(f"tokpress.build: {view.state}, {share:.0%} {left}".rstrip(), bar, facts(rows))


def _notebook_display() -> Callable[[str], Shown] | None:
    """None: this is no notebook. Whoever is in one has IPython imported already."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None

    def display(html: str) -> Shown:
        from IPython.display import display as show

        shown: Shown = show(Markup(html), display_id=True)
        return shown

    return display
