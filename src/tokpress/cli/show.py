"""What people see: sizes, bars, summaries. All of it on standard error, so that standard output can be piped."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from tokpress.engines.base import TokenizerInfo
from tokpress.engines.framing import Frame
from tokpress.engines.parity import Parity
from tokpress.run.progress import FirstDocument, Reporter
from tokpress.sources.base import Input
from tokpress.store.manifest import Manifest

_LINE_SECONDS = 10.0


def err_console(*, quiet: bool = False) -> Console:
    return Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)


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


class ByteProgress:
    """A bar by bytes on a terminal; elsewhere a line every ten seconds. Nothing for what takes less than two."""

    def __init__(self, console: Console, what: str, total: int) -> None:
        self._console = console
        self._what = what
        self._total = total
        self._done = 0
        self._began = self._last_line = monotonic()
        self._details = ""
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def advance(self, count: int, details: str = "") -> None:
        self._done += count
        self._details = details or self._details
        elapsed = monotonic() - self._began
        rate = f"{size(self._done / max(elapsed, 1e-9))}/s"
        if self._console.is_terminal:
            if self._bar is None and elapsed > 0.5:
                self._bar = Progress(
                    SpinnerColumn(),
                    TextColumn("{task.description}"),
                    BarColumn(),
                    TextColumn("{task.percentage:>3.0f}%"),
                    TextColumn("{task.fields[details]}"),
                    TimeRemainingColumn(),
                    console=self._console,
                    transient=True,
                )
                self._task = self._bar.add_task(self._what, total=self._total or None, details="")
                self._bar.start()
            if self._bar is not None and self._task is not None:
                shown = f"{size(self._done)} · {rate} {self._details}"
                self._bar.update(self._task, completed=self._done, details=shown)
        elif monotonic() - self._last_line > _LINE_SECONDS:
            self._last_line = monotonic()
            share = f"{self._done / self._total:.0%}" if self._total else size(self._done)
            self._console.print(f"{self._what}: {share} · {rate} {self._details}")

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


class ConsoleReporter(Reporter):
    """A build as a person follows it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: ByteProgress | None = None
        self._docs = self._tokens = self._rejects = 0
        self._began = monotonic()

    def prepared(self, inputs: Sequence[Input], info: TokenizerInfo, frame: Frame) -> None:
        kinds = sorted({source.format + (f".{source.compression}" if source.compression else "") for source in inputs})
        total = sum(source.size for source in inputs)
        self._line(
            "inputs", f"{len(inputs):,} {'file' if len(inputs) == 1 else 'files'}, {size(total)} of {', '.join(kinds)}"
        )
        names = {token: name for name, token in info.special_tokens.items()}
        bos = f"BOS {names[frame.bos_id]}" if frame.bos_id is not None else "no BOS"
        eos = f"EOS {names[frame.eos_id]}" if frame.eos_id is not None else "no EOS"
        self._line("tokenizer", f"{info.kind}, {info.vocab_size:,} tokens, stored as {frame.dtype.name}, {bos}, {eos}")

    def proved(self, parity: Parity) -> None:
        self._line("engine", parity_line(parity))
        if parity.difference is not None:
            self._line("", f"[yellow]first difference[/] {escape(str(parity.difference))}")

    def first_document(self, document: FirstDocument) -> None:
        shown = f"[cyan]{escape(repr(document.head)[1:-1])}[/]"
        if document.tail:
            shown += f" [dim]…[/] [cyan]{escape(repr(document.tail)[1:-1])}[/]"
        self._line("first doc", shown)

    def started(self, total_bytes: int) -> None:
        self._began = monotonic()
        self._progress = ByteProgress(self._console, "encoding", total_bytes)

    def advanced(self, *, input_bytes: int, docs: int, tokens: int, rejects: int) -> None:
        self._docs += docs
        self._tokens += tokens
        self._rejects += rejects
        if self._progress is not None:
            elapsed = max(monotonic() - self._began, 1e-9)
            details = f"· {number(self._docs / elapsed)} docs/s · {number(self._tokens / elapsed)} tokens/s"
            self._progress.advance(input_bytes, details + (f" · {self._rejects:,} rejected" if self._rejects else ""))

    def stopped(self) -> None:
        if self._progress is not None:
            self._progress.close()

    def _line(self, label: str, text: str) -> None:
        self._console.print(f"[dim]{label:>10}[/]  {text}")


def parity_line(parity: Parity) -> str:
    compared = f"{parity.docs:,} documents ({size(parity.bytes)})"
    match parity.outcome:
        case "equal":
            return f"{parity.engine}, [green]proved equal[/] to {parity.reference} on {compared}"
        case "different":
            return f"{parity.engine} [yellow](gigatoken differs from it and is not used)[/]"
        case "unsupported":
            return f"{parity.engine} [dim]({escape(parity.detail)})[/]"
    return f"{parity.engine}, the reference itself"


def summary_table(manifest: Manifest) -> Table:
    """A finished build, for people."""
    run = manifest.run
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", justify="right")
    table.add_column()
    totals = manifest.totals
    tokens = sum(split.tokens for split in manifest.splits.values())
    table.add_row("documents", f"{totals.written:,} written + {totals.rejected:,} rejected = {totals.read:,} read")
    for reason, count in manifest.rejects.items():
        table.add_row("", f"[yellow]{count:,} {reason}[/]")
    table.add_row("tokens", f"{tokens:,} ({manifest.dtype})")
    table.add_row(
        "rate", f"{run['input_mb_per_s']:,.1f} MB/s, {run['tokens_per_s']:,} tokens/s, {run['seconds']:.1f} s in all"
    )
    stages = {stage: spent for stage, spent in run["stage_seconds"].items() if spent > 0}
    spent = sum(stages.values()) or 1.0
    shares = ", ".join(f"{stage} {seconds / spent:.0%}" for stage, seconds in stages.items())
    table.add_row("time in", shares)
    table.add_row("memory", f"{size(run['peak_memory_bytes'])} at most")
    table.add_row("engine", parity_line(manifest.parity))
    if manifest.audit.rate:
        table.add_row("audit", f"{manifest.audit.docs:,} documents encoded twice during the run, [green]all equal[/]")
    return table
