"""`tokpress bench`: measure on this machine, with your own text and tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tokpress.cli.flags import read_options

if TYPE_CHECKING:
    from rich.table import Table

    from tokpress.loader.rates import LoaderRate
    from tokpress.run.measure import EncoderRate, WorkersRate

_EPILOG = """
\b
Examples:
  tokpress bench tokenizer corpus.jsonl --tokenizer tokenizer.json
  tokpress bench workers 'data/*.jsonl' --tokenizer tokenizer.json --up-to 16 --plot workers.png
  tokpress bench loader tokens --seq-len 2048 --batch-size 16
"""


@click.group(epilog=_EPILOG)
def command() -> None:
    """Measure tokenizers, worker counts or loaders on your own data."""


@command.command(epilog=_EPILOG)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUTS...")
@click.option("--tokenizer", required=True, metavar="SPEC", help="As for `tokpress build`.")
@read_options
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON on standard output.")
def tokenizer(inputs: tuple[str, ...], tokenizer: str, as_json: bool, **options: Any) -> None:
    """Compare ways to encode a sample of INPUTS: one by one, in batches, as one long string, with each engine."""
    import msgspec

    from tokpress.cli.show import err_console
    from tokpress.run.measure import encoder_rates

    console = err_console()
    with console.status("encoding a sample in every way"):
        rates = encoder_rates(list(inputs), tokenizer, options)
    console.print(_encoder_table(rates))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(rates), indent=1))


@command.command(epilog=_EPILOG)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUTS...")
@click.option("--tokenizer", required=True, metavar="SPEC", help="As for `tokpress build`.")
@click.option("--up-to", type=click.IntRange(min=1), help="Most workers to try. Default: one for each physical core.")
@click.option(
    "--scratch", type=click.Path(file_okay=False), help="Where to build, on the disk you mean. Default: temporary."
)
@click.option("--plot", type=click.Path(dir_okay=False), help="Write a PNG.")
@read_options
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
    """Build INPUTS with 1, 2, ... workers; show rate, CPU use and memory of each."""
    import msgspec

    from tokpress.cli.show import err_console
    from tokpress.run.measure import plot_rates, worker_rates

    console = err_console()
    rates = []
    for measured in worker_rates(list(inputs), tokenizer, up_to, scratch, options):
        rates.append(measured)
        console.print(f"[dim]{measured.workers} done: {measured.input_mb_per_s:,.1f} MB/s[/]")
    console.print(_workers_table(rates))
    if plot:
        plot_rates(rates, plot)
        console.print(f"Plot written to [bold]{plot}[/]")
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(rates), indent=1))


@command.command(epilog=_EPILOG)
@click.argument("store", type=click.Path())
@click.option("--seq-len", type=click.IntRange(min=1), default=2048, show_default=True)
@click.option("--method", default="concat", show_default=True, help="concat, pad, or bestfit with a plan.")
@click.option("--batch-size", type=click.IntRange(min=1), default=16, show_default=True)
@click.option("--split", default="train", show_default=True)
@click.option(
    "--seconds", type=click.FloatRange(min=0, min_open=True), default=2.0, show_default=True, help="For each row."
)
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON on standard output.")
def loader(store: str, as_json: bool, **options: Any) -> None:
    """Read STORE as a training run would, shuffled; show tokens a second for several numbers of threads."""
    import msgspec

    from tokpress.cli.show import err_console
    from tokpress.loader.rates import loader_rates

    console = err_console()
    with console.status("reading batches"):
        rates = list(loader_rates(store, **options))
    console.print(_loader_table(rates))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(rates), indent=1))


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
            f"{rate.input_mb_per_s / rates[0].input_mb_per_s:.2f}x",
            f"{rate.cpu_use:.0%}",
            size(rate.peak_memory_bytes),
        )
    return table
