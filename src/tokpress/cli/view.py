"""`tokpress view`: stores, runs and training steps as a page in a browser."""

from __future__ import annotations

import click

_EPILOG = """
\b
Examples:
  tokpress view tokens
  tokpress view tokens other-tokens --tokenizer gpt2 --no-open
  tokpress view --run tokens --events events.jsonl
  tokpress view tokens --meter steps.jsonl --port 8765
"""


@click.command(epilog=_EPILOG)
@click.argument("stores", nargs=-1, type=click.Path())
@click.option("--run", "runs", multiple=True, metavar="STORE", help="A store that is being written. Repeatable.")
@click.option("--events", multiple=True, metavar="FILE", help="Events of a build (--events), as it goes. Repeatable.")
@click.option("--meter", "meters", multiple=True, metavar="FILE", help="What a StepMeter wrote. Repeatable.")
@click.option("--tokenizer", "tokenizers", multiple=True, metavar="SPEC", help="Another one to compare. Repeatable.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Of 127.0.0.1; by default a free one.")
@click.option("--no-open", is_flag=True, help="Print the address and open no browser.")
def command(
    stores: tuple[str, ...],
    runs: tuple[str, ...],
    events: tuple[str, ...],
    meters: tuple[str, ...],
    tokenizers: tuple[str, ...],
    port: int,
    no_open: bool,
) -> None:
    """Show STORES in a browser: what the model will see, token by token. Reads only; answers on this machine alone."""
    from tokpress.cli.printable import printable
    from tokpress.errors import UsageError

    if not (stores or runs or events or meters):
        raise UsageError("there is nothing to show. Name a store, --run STORE, --events FILE or --meter FILE.")
    try:
        from tokpress.web.server import ViewServer, open_browser
        from tokpress.web.session import Session
    except ImportError as error:
        if (error.name or "").startswith("tokpress"):
            raise
        raise UsageError(f"the page needs {error.name}. Install it: pip install 'tokpress[web]'") from None

    session = Session(stores, runs=runs, events=events, meters=meters, tokenizers=tokenizers)
    server = ViewServer(session, port=port)

    def ready() -> None:
        click.echo(server.address)
        shown = ", ".join(map(printable, (*stores, *runs, *events, *meters)))
        click.echo(f"shows {shown}. Ctrl-C ends it.", err=True)
        if not no_open and not open_browser(server.address):
            click.echo("no browser is found here: open the address above.", err=True)

    server.run(ready)
