"""`tokpress pack`: what sequences of some length cost, and the plan where one is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tokpress.cli.options import packing_options
from tokpress.cli.printable import print_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tokpress.packing.waste import Waste

_EPILOG = """
\b
Examples:
  tokpress pack tokens --seq-len 2048
  tokpress pack tokens --seq-len 8192 --method bestfit --plot waste.png
  tokpress pack tokens --seq-len 2048 --method bestfit --long-docs truncate
  tokpress pack tokens --seq-len 512 --method pad --padding-side left
  tokpress pack tokens --seq-len 2049 --overlap 1 --json | jq .docs_cut
"""


@click.command(epilog=_EPILOG)
@click.argument("store", type=click.Path())
@click.option("--seq-len", type=int, required=True, metavar="N", help="Tokens in a sequence. Any length, any time.")
@click.option(
    "--method",
    type=click.Choice(["concat", "bestfit", "pad"]),
    default="concat",
    show_default=True,
    help="concat: documents end to end, cut every N tokens. bestfit: no document that fits is cut; writes a plan into "
    "STORE/packs. pad: a document a sequence.",
)
@click.option("--split", default="train", show_default=True)
@packing_options
@click.option("--plot", type=click.Path(dir_okay=False), help="Write the report as a PNG, too.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON on standard output.")
def command(store: str, seq_len: int, method: str, split: str, plot: str | None, as_json: bool, **options: Any) -> None:
    """Report what packing STORE into sequences of N tokens wastes, and write a plan for it where one is needed.

    Tokens are not written again: a packing is an index, and a store can have any number of them.
    """
    from tokpress.cli.show import err_console, out_console, safe
    from tokpress.packing.waste import new_plot, plot_waste

    figure = new_plot() if plot else None  # says what is missing before the work is done, not after
    console = err_console()
    chosen = {name: value for name, value in options.items() if value is not None}
    waste = _packed(store, console, seq_len=seq_len, method=method, split=split, **chosen)
    if as_json:
        print_json(waste.facts())
    else:
        out_console().print(_table(waste))
    if figure is not None and plot:
        plot_waste(waste, figure)
        figure.savefig(plot, dpi=150)
        console.print(f"Plot written to [bold]{safe(plot)}[/]")


def _packed(store: str, console: Console, **options: Any) -> Waste:
    from tokpress.packing.pack import pack

    with console.status("reading document lengths") as status:
        return pack(store, progress=lambda stage, share: status.update(f"{stage} {share:.0%}"), **options)


def _table(waste: Waste) -> Table:
    from rich.table import Table

    from tokpress.cli.show import safe

    table = Table(f"{waste.method}, split {safe(waste.split)}", "", "", box=None)
    table.columns[1].justify = "right"
    rows = [
        ("sequences", waste.sequences, f"of {waste.seq_len:,} tokens"),
        ("tokens in them", waste.positions - waste.padding, f"{waste.efficiency:.2%} of all positions"),
        ("padding", waste.padding, f"{waste.padding_share:.2%} of all positions"),
        ("tokens left out", waste.truncated_tokens, f"{_share(waste.truncated_tokens, waste.tokens)} of all tokens"),
        ("documents cut", waste.docs_cut, f"{_share(waste.docs_cut, waste.docs)} of all documents"),
        ("though they fit", waste.docs_cut_that_fit, f"{_share(waste.docs_cut_that_fit, waste.docs)} of all documents"),
    ]
    if waste.repeated_tokens:
        more = f"{_share(waste.repeated_tokens, waste.tokens)} of all tokens"
        rows.insert(2, ("of these repeated", waste.repeated_tokens, more))
    for what, count, share in rows:
        table.add_row(what, f"{count:,}", share)
    return table


def _share(part: int, whole: int) -> str:
    return f"{part / whole if whole else 0:.2%}"
