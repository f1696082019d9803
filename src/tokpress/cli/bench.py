"""`tokpress bench`: measure on this machine, with your own text and tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tokpress.cli.options import read_options, unescape

if TYPE_CHECKING:
    from rich.table import Table

    from tokpress.run.measure import EncoderRate, WorkersRate

_EPILOG = """
\b
Examples:
  tokpress bench tokenizer corpus.jsonl --tokenizer tokenizer.json
  tokpress bench workers 'data/*.jsonl' --tokenizer tokenizer.json --up-to 16 --plot workers.png
"""


@click.group(epilog=_EPILOG)
def command() -> None:
    """Measure tokenizers or worker counts on your own data."""


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

    options["separator"] = unescape(options["separator"])
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

    options["separator"] = unescape(options["separator"])
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
