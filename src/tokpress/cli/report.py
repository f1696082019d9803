"""`tokpress report`: a store as one file to send to a colleague."""

from __future__ import annotations

from pathlib import Path

import click

_EPILOG = """
\b
Examples:
  tokpress report tokens --out report.html
  tokpress report tokens --out report.html --plots plots --seq-len 4096
"""


@click.command(epilog=_EPILOG)
@click.argument("store", type=click.Path())
@click.option("--out", required=True, type=click.Path(dir_okay=False), help="The page: one file that needs no other.")
@click.option("--plots", type=click.Path(file_okay=False), help="A directory for the plots as PNG.")
@click.option("--seq-len", type=click.IntRange(min=1), default=2048, show_default=True, help="For what packings waste.")
@click.option("--split", default="train", show_default=True, help="Which one to report on.")
def command(store: str, out: str, plots: str | None, seq_len: int, split: str) -> None:
    """Write what is in STORE as one page: totals, lengths, tokens, sources, packings, rejects, documents."""
    from tokpress.cli.show import err_console, print_fact, safe
    from tokpress.store.reader import open_store
    from tokpress.view.report import report_store

    report = report_store(open_store(store, split), seq_len=seq_len)
    Path(out).write_text(report.html(), "utf-8")
    console = err_console()
    print_fact(console, "report", safe(out))
    if plots is not None:
        Path(plots).mkdir(parents=True, exist_ok=True)
        for name, figure in report.plots():
            path = Path(plots) / f"{name}.png"
            figure.savefig(path, dpi=130)
            print_fact(console, "plot", safe(path))
