"""What people see: sizes, bars, summaries. All of it on standard error, so that standard output can be piped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.status import Status
from rich.table import Table
from rich.text import Text

from tokpress.cli.printable import printable
from tokpress.records import Parity, RunFacts
from tokpress.run import events
from tokpress.run.event_log import EventLog
from tokpress.run.events import BaseEvent, Event, Reporter, join
from tokpress.store.summary import StoreSummary

_LABEL_WIDTH = 10
_BAR_SECONDS = 0.5
_LINE_SECONDS = 10.0


def err_console(*, quiet: bool = False) -> Console:
    """At a terminal lines are broken between words; in a file or a pipe they are left whole."""
    console = Console(stderr=True, quiet=quiet, highlight=False)
    console.soft_wrap = not console.is_terminal
    return console


def out_console() -> Console:
    """For what was asked for. The same: it may go into a pipe."""
    console = Console(highlight=False)
    console.soft_wrap = not console.is_terminal
    return console


def safe(text: object) -> str:
    """Text from anywhere (a path, a token, a library's message) that is neither markup nor a terminal's command."""
    return escape(printable(str(text)))


def print_fact(console: Console, label: str, text: str) -> None:
    """A label and what is said of it; at a terminal what does not fit stands below its beginning."""
    if not console.is_terminal or console.width < 2 * _LABEL_WIDTH:
        console.print(f"[dim]{label:>{_LABEL_WIDTH}}[/]  {text}")
        return
    lines = Text.from_markup(text).wrap(console, console.width - _LABEL_WIDTH - 2)
    for number, line in enumerate(lines):
        shown = Text(f"{'' if number else label:>{_LABEL_WIDTH}}  ", style="dim")
        console.print(shown.append_text(line), no_wrap=True, overflow="ignore", crop=False)


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} TB"


def number(count: float) -> str:
    for unit in ("", "k", "M", "G"):
        if count < 1000:
            return f"{count:.0f}" if unit == "" else f"{count:.1f}{unit}"
        count /= 1000
    return f"{count:.2f}T"


class _Bar(Progress):
    """A bar with room for a table below it."""

    below: Table | None = None

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self.below is not None:
            yield self.below


class ByteProgress:
    """A bar by bytes on a terminal; elsewhere a line every ten seconds. Nothing for what is soon done."""

    def __init__(self, console: Console, what: str, total: int = 0) -> None:
        self.total = total  # 0: not known
        self._console = console
        self._what = what
        self._done = 0
        self._began = self._last_line = monotonic()
        self._bar: _Bar | None = None
        self._task: TaskID | None = None

    def advance(self, count: int, details: str = "") -> None:
        self._done += count
        now = monotonic()
        elapsed = max(now - self._began, 1e-9)
        share = f"{self._done / self.total:.0%}" if self.total else size(self._done)
        status = f"{share} · {size(self._done / elapsed)}/s {details}".rstrip()
        if self._console.is_terminal:
            if elapsed > _BAR_SECONDS:
                self._draw(status)
        elif now - self._last_line > _LINE_SECONDS:
            self._last_line = now
            self._console.print(f"{self._what}: {status}")

    def _draw(self, status: str) -> None:
        if self._bar is None or self._task is None:
            columns = (SpinnerColumn(), TextColumn(self._what), BarColumn(), TextColumn("{task.description}"))
            self._bar = _Bar(*columns, TimeRemainingColumn(), console=self._console, transient=True)
            self._task = self._bar.add_task(status, total=self.total or None)
            self._bar.start()
        self._bar.update(self._task, completed=self._done, description=status)

    def show_below(self, table: Table) -> None:
        if self._bar is not None:
            self._bar.below = table

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


_WAITING: dict[type[BaseEvent], str] = {  # after these nothing may be heard for a while
    events.InputsFound: "reading a sample and proving the engine",
    events.Started: "encoding",
}


class ConsoleReporter:
    """A build as a person follows it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.progress: ByteProgress | None = None
        self._docs = self._tokens = self._rejects = 0
        self._began = 0.0
        self._waiting: Status | None = None

    def _wait(self, what: str | None) -> None:
        """Shows at a terminal that something is done of which nothing is heard yet."""
        if self._waiting is not None:
            self._waiting.stop()
        self._waiting = self._console.status(what) if what and self._console.is_terminal else None
        if self._waiting is not None:
            self._waiting.start()

    def on(self, event: Event) -> None:
        if not isinstance(event, events.Workers):  # who works says nothing of what was done
            self._wait(_WAITING.get(type(event)))
        match event:
            case events.InputsFound():
                files = [f"{plural(event.files, 'file')}, {size(event.bytes)}"] if event.files else []
                parts = files + (["standard input"] if event.stdin else [])
                self._line("inputs", f"{' and '.join(parts)} of {', '.join(event.formats)}")
            case events.TokenizerLoaded():
                bos = "no BOS" if event.bos is None else f"BOS {safe(event.bos)}"
                eos = "no EOS" if event.eos is None else f"EOS {safe(event.eos)}"
                kind = f"{event.kind}, {event.vocab_size:,} tokens"
                self._line("tokenizer", f"{kind}, stored as {event.dtype}, {bos}, {eos}")
            case events.Proved():
                self._line("engine", parity_line(event))
                if event.difference is not None:
                    self._line("", f"[yellow]first difference[/] {safe(event.difference)}")
            case events.FirstDocument(head=head, tail=tail):
                shown = f"[cyan]{safe(head)}[/]"
                self._line("first doc", shown + (f" [dim]…[/] [cyan]{safe(tail)}[/]" if tail else ""))
            case events.Resuming(units=units, units_left=left, docs=docs):
                done = f"{units - left:,} of {plural(units, 'unit')} and {plural(docs, 'document')} are done already"
                self._line("resuming", f"{done}, {plural(left, 'unit')} left")
            case events.ShardsLost(shards=shards):
                some = ", ".join(shards[:3]) + (" ..." if len(shards) > 3 else "")
                what = f"{plural(len(shards), 'finished shard')} are gone or changed, and written again"
                self._line("lost", f"[yellow]{what}[/]: {safe(some)}")
            case events.FewerWorkers(workers=workers, why=why):
                need = why.partition(". ")[0]
                self._line("memory", f"{safe(need)}: going on with {plural(workers, 'worker')}")
            case events.NoConditions(store=store):
                self._line("store", f"[yellow]{safe(store)} ignores conditions[/]: write to it from one machine only")
            case events.AlreadyFinished(store=store):
                self._line("finished", f"{safe(store)} holds this very store already: nothing to do")
            case events.Started():
                self._docs = self._tokens = self._rejects = 0
                self._began = event.time
                self.progress = ByteProgress(self._console, "encoding", event.bytes)
            case events.Advanced():
                self.advance(event)
            case events.Stopped() if self.progress is not None:
                self.progress.close()

    def advance(self, event: events.Advanced) -> None:
        self._docs += event.docs
        self._tokens += event.tokens
        self._rejects += event.rejects
        if self.progress is not None:
            self.progress.advance(event.input_bytes, f"· {self._status(event.time)}")

    def _status(self, time: float) -> str:
        elapsed = max(time - self._began, 1e-9)
        rates = f"{number(self._docs / elapsed)} docs/s · {number(self._tokens / elapsed)} tokens/s"
        return rates + (f" · {self._rejects:,} rejected" if self._rejects else "")

    def _line(self, label: str, text: str) -> None:
        print_fact(self._console, label, text)


@contextmanager
def telling(console: Console, reporter: Reporter, path: str | None) -> Iterator[Reporter]:
    """A reporter that also writes to a file (--events), where one is named."""
    if path is None:
        yield reporter
        return
    with EventLog(path) as log:
        yield join(log, reporter)
    if log.failure is not None:
        console.print(f"[yellow]{safe(path)} is not complete:[/] {safe(log.failure.strerror)}")


def parity_line(parity: Parity | events.Proved) -> str:
    compared = f"{plural(parity.docs, 'document')} ({size(parity.bytes)})"
    match parity.outcome:
        case "equal":
            return f"{parity.engine}, [green]proved equal[/] to {parity.reference} on {compared}"
        case "different":
            names = ", ".join(parity.refusals) or "gigatoken"  # which a store written before did not have to say
            return f"{parity.engine} [yellow]({safe(names)} differs from it and is not used)[/]"
        case "unsupported":
            return f"{parity.engine} [dim]({safe(parity.detail)})[/]"
    return f"{parity.engine}, the reference itself"


def _print_splits(console: Console, summary: StoreSummary) -> None:
    """What supervised data and splits add to a summary."""
    splits = summary.splits.values()
    if (loss_tokens := summary.all_loss_tokens) is not None:
        share = loss_tokens / max(summary.all_tokens, 1)
        print_fact(console, "loss tokens", f"{plural(loss_tokens, 'token')}, {share:.0%} of them")
    if truncated := sum(split.truncated for split in splits):
        print_fact(console, "", f"{plural(truncated, 'record')} truncated to --max-length")
    if continued := sum(split.continued for split in splits):
        print_fact(
            console,
            "",
            f"{plural(continued, 'document')} more, of records that make several (--per-turn, --overlong split)",
        )
    if len(summary.splits) > 1:
        shares = (f"{safe(name)} {plural(split.docs, 'document')}" for name, split in summary.splits.items())
        print_fact(console, "splits", ", ".join(shares))


def print_summary(console: Console, summary: StoreSummary) -> None:
    """A finished build, for people."""
    counts = f"{summary.written:,} written + {summary.rejected:,} rejected = {summary.read:,} read"
    print_fact(console, "documents", counts)
    for reason, count in summary.rejects.items():
        print_fact(console, "", f"[yellow]{count:,} {safe(reason)}[/]")
    print_fact(console, "tokens", f"{summary.all_tokens:,} ({summary.dtype})")
    _print_splits(console, summary)
    if not summary.run.is_import:
        _print_run(console, summary.run)
    if summary.audited_docs:
        audited = plural(summary.audited_docs, "document")
        print_fact(console, "audit", f"{audited} encoded twice during the run, [green]all equal[/]")


def _print_run(console: Console, run: RunFacts) -> None:
    rates = f"{run.text_bytes / 1e6 / run.seconds:,.1f} MB/s of text, {run.tokens_per_s:,} tokens/s"
    print_fact(console, "rate", f"{rates}, {run.seconds:.1f} s in all")
    if run.input_bytes < run.text_bytes:
        print_fact(console, "", f"{size(run.text_bytes)} of text, compressed to {size(run.input_bytes)}")
    stages = {stage: spent for stage, spent in run.stage_seconds.items() if spent > 0}
    spent = sum(stages.values())
    if spent:
        shares = ", ".join(f"{stage} {part / spent:.0%}" for stage, part in stages.items())
        print_fact(console, "time in", f"{shares}: the bottleneck is {run.bottleneck}")
    used = f"{plural(run.workers, 'worker')}, {run.cpu_use:.0%} of their cores used"
    print_fact(console, "used", f"{used}, {size(run.peak_memory_bytes)} of memory at most")
