"""`tokpress publish`: a finished store as a dataset on the Hugging Face Hub."""

from __future__ import annotations

import click

_EPILOG = """
\b
Examples:
  tokpress publish tokens hf://datasets/me/tokens
  tokpress publish s3://bucket/tokens hf://datasets/me/tokens --private
  tokpress publish tokens hf://datasets/me/corpus/gpt2 --json | jq .sent_bytes
"""


@click.command(epilog=_EPILOG)
@click.argument("store", type=click.Path())
@click.argument("to", metavar="hf://datasets/ME/NAME")
@click.option("--private/--public", default=None, help="Of a new repository. Default: the Hub's own.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON on standard output.")
def command(store: str, to: str, private: bool | None, as_json: bool) -> None:
    """Put a finished STORE on the Hub, with a card: tokenizer, counts, fingerprint, how to load it.

    What the Hub has already is not sent again: stopped, the same command goes on. Every file is compared by checksum.
    Needs a token that may write: hf auth login, or HF_TOKEN.
    """
    from tokpress.cli.copy import show
    from tokpress.store.publish import publish

    show(lambda progress: publish(store, to, private=private, progress=progress), "publishing", as_json=as_json)
