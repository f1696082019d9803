"""`tokpress verify`: is a store what its manifest says?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from tokpress.cli.printable import between_words, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from tokpress.store.verify import Report

_EPILOG = """
\b
Examples:
  tokpress verify tokens
  tokpress verify tokens --deep
  tokpress verify tokens --json | jq .problems
"""


@click.command(epilog=_EPILOG)
@click.argument("store", type=click.Path())
@click.option("--deep", is_flag=True, help="Also read a sample of the sources again and encode it with the reference.")
@click.option(
    "--deep-docs", default=200, show_default=True, type=click.IntRange(min=1), help="How many documents of it."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON on standard output.")
def command(store: str, deep: bool, deep_docs: int, as_json: bool) -> None:
    """Check every file of STORE: sizes, checksums, counts, document ends, id range, packing plans, and that no record was
    lost.

    Names each damaged file; exits with 1 if there is one.
    """
    from tokpress.cli.show import err_console, plural, safe
    from tokpress.records import PACKS

    console = err_console()
    report = _verified(store, console, deep=deep, deep_docs=deep_docs)
    for problem in report.problems:
        console.print(f"[red]damaged[/]  {safe(problem.file)}: {safe(problem.message)}")
    if as_json:
        print_json(report)
    elif report.ok:
        click.echo(between_words(_sound(store, report, deep), sys.stdout))
    if not report.ok:
        found = plural(len(report.problems), "problem")
        again = f" Build the store again: tokpress build ... --out {safe(store)} --overwrite"
        only_plans = all(problem.file.startswith(PACKS) for problem in report.problems)
        console.print(f"\n{found}.{'' if only_plans else again}")
        raise click.exceptions.Exit(1)


def _verified(store: str, console: Console, *, deep: bool, deep_docs: int) -> Report:
    from tokpress.api import verify
    from tokpress.cli.show import ByteProgress

    bar = ByteProgress(console, "verifying")

    def progress(checked: int, total: int) -> None:
        bar.total = total
        bar.advance(checked)

    try:
        return verify(store, deep=deep, deep_docs=deep_docs, progress=progress)
    finally:
        bar.close()


def _sound(store: str, report: Report, deep: bool) -> str:
    from tokpress.cli.printable import printable
    from tokpress.cli.show import plural, size

    again = ""
    if report.reencoded_docs:
        again = f"; {plural(report.reencoded_docs, 'document')} encoded again and equal"
    elif deep and report.docs:
        again = f"; nothing was encoded again: {report.not_reencoded}"
    return (
        f"{printable(store)} is sound: {plural(report.files, 'file')}, {size(report.bytes)}, "
        f"{plural(report.docs, 'document')}, {plural(report.tokens, 'token')}; "
        f"read = written + rejected in every unit{again}"
    )
