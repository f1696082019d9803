"""`tokpress verify`: is a store what its manifest says?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

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
    import msgspec

    from tokpress.cli.show import err_console, plural, safe

    console = err_console()
    report = _verified(store, console)
    own = report
    if deep and report.ok:
        own = report = _compared(report, deep_docs, console)
    if report.ok:
        report = _with_plans(report)
    for problem in report.problems:
        console.print(f"[red]damaged[/]  {safe(problem.file)}: {safe(problem.message)}")
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(report), indent=1))
    elif report.ok:
        click.echo(_sound(store, report, deep))
    if not report.ok:
        found = plural(len(report.problems), "problem")
        again = f" Build the store again: tokpress build ... --out {safe(store)} --overwrite"
        console.print(f"\n{found}.{'' if own.ok else again}")
        raise click.exceptions.Exit(1)


def _verified(store: str, console: Console) -> Report:
    from tokpress.cli.show import ByteProgress
    from tokpress.store.verify import verify_store

    bar = ByteProgress(console, "verifying")

    def progress(checked: int, total: int) -> None:
        bar.total = total
        bar.advance(checked)

    try:
        return verify_store(store, progress=progress)
    finally:
        bar.close()


def _with_plans(report: Report) -> Report:
    import msgspec

    from tokpress.packing.plan import plan_problems
    from tokpress.storage import open_storage

    return msgspec.structs.replace(report, problems=plan_problems(open_storage(report.path)))


def _compared(report: Report, docs: int, console: Console) -> Report:
    import msgspec

    from tokpress.run.deep import reencode_sample
    from tokpress.store.reader import open_store

    with console.status("encoding a sample again"):
        store = open_store(report.path)
        samples = [reencode_sample(store.split(name), docs) for name in store.manifest.splits]
    return msgspec.structs.replace(
        report,
        problems=[problem for sample in samples for problem in sample.problems],
        reencoded_docs=sum(sample.docs for sample in samples),
        not_reencoded=next((sample.why_not for sample in samples if sample.why_not), ""),
    )


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
