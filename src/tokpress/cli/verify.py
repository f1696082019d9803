"""`tokpress verify`: is a store what its manifest says?"""

from __future__ import annotations

import click

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
    """Check every file of STORE: sizes, checksums, counts, document ends, id range, and that no record was lost.

    Names each damaged file; exits with 1 if there is one.
    """
    import msgspec

    from tokpress.cli.show import ByteProgress, err_console, size
    from tokpress.run.deep import reencode_sample
    from tokpress.store.reader import open_store
    from tokpress.store.verify import stored_bytes, verify_store

    console = err_console()
    progress = ByteProgress(console, "verifying", stored_bytes(store))
    try:
        report = verify_store(store, progress=progress.advance)
    finally:
        progress.close()
    if deep and report.ok:
        with console.status("encoding a sample again"):
            opened = open_store(store)
            problems = list(reencode_sample(opened, deep_docs))
            report = msgspec.structs.replace(report, problems=problems, reencoded_docs=min(deep_docs, opened.num_docs))
    for problem in report.problems:
        console.print(f"[red]damaged[/]  {problem.file}: {problem.message}", markup=True)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(report), indent=1))
    elif report.ok:
        again = f", {report.reencoded_docs:,} documents encoded again and equal" if report.reencoded_docs else ""
        click.echo(
            f"{store} is sound: {report.files:,} files, {size(report.bytes)}, {report.docs:,} documents, "
            f"{report.tokens:,} tokens; read = written + rejected in every unit{again}"
        )
    if not report.ok:
        console.print(
            f"\n{len(report.problems):,} problems. Build the store again: tokpress build ... --out {store} --overwrite"
        )
        raise click.exceptions.Exit(1)
