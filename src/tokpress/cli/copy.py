"""`tokpress copy`: a finished store to another place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tokpress.cli.printable import print_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokpress.store.contents import Copied, Progress

_EPILOG = """
\b
Examples:
  tokpress copy tokens s3://bucket/tokens
  tokpress copy s3://bucket/tokens /local/tokens
  tokpress copy s3://bucket/tokens gs://other/tokens --no-read-back
  tokpress copy hf://datasets/me/tokens@main tokens
"""


@click.command(epilog=_EPILOG)
@click.argument("store", type=click.Path())
@click.argument("to", metavar="DEST", type=click.Path())
@click.option(
    "--read-back/--no-read-back",
    default=True,
    help="Read each file where it arrived and compare its checksum (default), or compare sizes only.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON on standard output.")
def command(store: str, to: str, read_back: bool, as_json: bool) -> None:
    """Copy a finished STORE to DEST: a directory, s3://, gs://, az://, or a dataset of the Hub (see `tokpress publish`).

    Checksums are compared on the way and on arrival; the manifest comes last, so that there is no store before all of it is
    there. Stopped, the same command goes on where it was.
    """
    from tokpress.store.copy import copy

    show(lambda progress: copy(store, to, read_back=read_back, progress=progress), "copying", as_json=as_json)


def show(work: Callable[[Progress], Copied], what: str, *, as_json: bool) -> None:
    """Does it under a bar, and says what was done."""
    from tokpress.cli.printable import printable
    from tokpress.cli.show import ByteProgress, err_console, plural, size

    bar = ByteProgress(err_console(), what)

    def progress(done: int, total: int) -> None:
        bar.total = total
        bar.advance(done)

    try:
        done = work(progress)
    finally:
        bar.close()
    if as_json:
        print_json(done)
        return
    sent = f"{plural(done.sent_files, 'file')}, {size(done.sent_bytes)} sent"
    if not done.sent_files:
        sent = "all of it was there"
    what = f"{plural(done.files, 'file')}, {size(done.bytes)}; {sent}, every file compared"
    click.echo(f"{printable(done.to)} is the store {done.fingerprint[:12]}: {what}")
