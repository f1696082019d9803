"""`tokpress status`: how far a store is that is being written."""

from __future__ import annotations

import click

from tokpress.cli.printable import print_json

_EPILOG = """
\b
Examples:
  tokpress status tokens
  tokpress status tokens --json | jq .left
"""


@click.command(epilog=_EPILOG)
@click.argument("store", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def command(store: str, *, as_json: bool) -> None:
    """What is done of STORE, by whom, and what is left. Changes nothing; may be asked while it is written."""
    from tokpress.cli.show import number, out_console, plural, print_fact, safe
    from tokpress.run.status import read_status
    from tokpress.storage import open_storage

    status = read_status(open_storage(store))
    if as_json:
        print_json(status)
        return
    console = out_console()
    print_fact(console, "store", f"{safe(status.store)}, {'finished' if status.sealed else 'not finished'}")
    print_fact(console, "units", f"{status.units_done:,} of {status.units:,} done, {status.units_begun:,} begun")
    print_fact(console, "records", f"{status.counts}; {number(status.tokens)} tokens")
    for attempt in status.attempts:
        who = f"{safe(attempt.host)}, process {attempt.pid}"
        done = f"{plural(len(attempt.units), 'unit')}, {number(attempt.tokens)} tokens"
        print_fact(console, f"share {safe(attempt.share)}", f"{attempt.state}: {done} ({who})")
    if status.left:
        shown = ", ".join(map(str, status.left[:10])) + (" ..." if len(status.left) > 10 else "")
        print_fact(console, "left", f"{plural(len(status.left), 'unit')}: {shown}")
    if not status.sealed:
        console.print("\nThe command of the build, without --share, does what is left and finishes the store.")
