"""`tokpress bench`: measure on this machine, with your own text and tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tokpress.cli.flags import GroupedCommand, flags, read_options
from tokpress.cli.printable import print_json

if TYPE_CHECKING:
    from rich.table import Table

    from tokpress.loader.rates import LoaderRate
    from tokpress.run.measure import EncoderRate, WorkersRate

_EPILOG = """
\b
Examples:
  tokpress bench tokenizer corpus.jsonl --tokenizer tokenizer.json --plot tokenizer.png
  tokpress bench workers 'data/*.jsonl' --tokenizer tokenizer.json --up-to 16 --plot workers.png
  tokpress bench workers qa.jsonl --prompt-field question --completion-field answer --tokenizer tokenizer.json
  tokpress bench loader tokens --seq-len 2048 --batch-size 16 --plot loader.png
"""


_plot = click.option("--plot", type=click.Path(dir_okay=False), metavar="FILE", help="Write a PNG.")


def _draw(path: str, title: str, unit: str, values: dict[str, float]) -> None:
    from tokpress.cli.show import err_console, safe
    from tokpress.figure import plot_bars

    plot_bars(path, title, unit, values)
    err_console().print(f"Plot written to [bold]{safe(path)}[/]")


@click.group(epilog=_EPILOG)
def command() -> None:
    """Measure tokenizers, worker counts or loaders on your own data."""


@command.command(epilog=_EPILOG)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUTS...")
@click.option("--tokenizer", required=True, metavar="SPEC", help="As for `tokpress build`.")
@_plot
@read_options
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON on standard output.")
def tokenizer(inputs: tuple[str, ...], tokenizer: str, plot: str | None, as_json: bool, **options: Any) -> None:
    """Compare ways to encode a sample of INPUTS: one by one, in batches, as one long string, with each engine."""
    from tokpress.cli.show import err_console
    from tokpress.run.measure import encoder_rates

    console = err_console()
    with console.status("encoding a sample in every way"):
        rates = encoder_rates(list(inputs), tokenizer, options)
    console.print(_encoder_table(rates))
    if plot:
        _draw(plot, "Ways to encode this text, one process", "MB of text a second", {r.way: r.mb_per_s for r in rates})
    if as_json:
        print_json(rates)


@command.command(cls=GroupedCommand, epilog=_EPILOG)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUTS...")
@click.option("--tokenizer", required=True, metavar="SPEC", help="As for `tokpress build`.")
@click.option("--up-to", type=click.IntRange(min=1), help="Most workers to try. Default: one for each physical core.")
@click.option(
    "--scratch", type=click.Path(file_okay=False), help="Where to build, on the disk you mean. Default: temporary."
)
@_plot
@flags(without=["workers", "dataset", "split"])
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON on standard output.")
def workers(
    inputs: tuple[str, ...],
    tokenizer: str,
    up_to: int | None,
    scratch: str | None,
    plot: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Build INPUTS with 1, 2, ... workers; show rate, CPU use and memory of each.

    The options are those of the build that is to be measured.
    """
    from tokpress.cli.show import err_console, safe
    from tokpress.run.measure import plot_rates, too_small, worker_rates

    console = err_console()
    rates = []
    for measured in worker_rates(list(inputs), tokenizer, up_to, scratch, options):
        rates.append(measured)
        console.print(f"[dim]{measured.workers} done: {measured.input_mb_per_s:,.1f} MB/s[/]")
    console.print(_workers_table(rates))
    for note in too_small(rates):
        console.print(f"[yellow]note[/]: {note}")
    if plot:
        plot_rates(rates, plot)
        console.print(f"Plot written to [bold]{safe(plot)}[/]")
    if as_json:
        print_json(rates)


@command.command(epilog=_EPILOG)
@click.argument("store", type=click.Path())
@click.option("--seq-len", type=click.IntRange(min=1), default=2048, show_default=True)
@click.option("--method", default="concat", show_default=True, help="concat, pad, or bestfit with a plan.")
@click.option("--batch-size", type=click.IntRange(min=1), default=16, show_default=True)
@click.option("--split", default="train", show_default=True)
@click.option(
    "--seconds", type=click.FloatRange(min=0, min_open=True), default=2.0, show_default=True, help="For each row."
)
@_plot
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON on standard output.")
def loader(store: str, plot: str | None, as_json: bool, **options: Any) -> None:
    """Read STORE as a training run would, shuffled; show tokens a second for several numbers of threads."""
    from tokpress.cli.show import err_console
    from tokpress.loader.rates import loader_rates

    console = err_console()
    with console.status("reading batches"):
        rates = list(loader_rates(store, **options))
    console.print(_loader_table(rates))
    if plot:
        title = f"Shuffled batches of {options['batch_size']} x {options['seq_len']} tokens"
        _draw(plot, title, "million tokens a second", {rate.way: rate.tokens_per_s / 1e6 for rate in rates})
    if as_json:
        print_json(rates)


def _loader_table(rates: list[LoaderRate]) -> Table:
    from rich.table import Table

    table = Table("way", "M tokens/s", "batches/s", "first batch", box=None)
    for rate in rates:
        first = f"{rate.first_batch_ms:,.1f} ms"
        table.add_row(rate.way, f"{rate.tokens_per_s / 1e6:,.1f}", f"{rate.batches_per_s:,.0f}", first)
    return table


def _encoder_table(rates: list[EncoderRate]) -> Table:
    from rich.table import Table

    table = Table("way", "MB/s", "tokens/s", "against the first", "ids", box=None)
    for rate in rates:
        same = "[green]equal[/]" if rate.equal else "[yellow]different[/]"
        ratio = rate.mb_per_s / rates[0].mb_per_s
        table.add_row(rate.way, f"{rate.mb_per_s:,.1f}", f"{rate.tokens_per_s:,.0f}", f"{ratio:,.1f}x", same)
    return table


def _workers_table(rates: list[WorkersRate]) -> Table:
    from rich.table import Table

    from tokpress.cli.show import size

    table = Table("workers", "MB/s", "tokens/s", "against one", "CPU use", "memory", box=None)
    for rate in rates:
        table.add_row(
            str(rate.workers),
            f"{rate.input_mb_per_s:,.1f}",
            f"{rate.tokens_per_s:,}",
            f"{rate.tokens_per_s / max(rates[0].tokens_per_s, 1):.2f}x",
            f"{rate.cpu_use:.0%}",
            size(rate.peak_memory_bytes),
        )
    return table
