"""`tokpress train-tokenizer`: a tokenizer from the same inputs that `build` takes."""

from __future__ import annotations

from typing import Any

import click

from tokpress.cli.flags import read_options
from tokpress.cli.options import Size

_EPILOG = """
\b
Examples:
  tokpress train-tokenizer corpus.jsonl --vocab-size 32000 --out tokenizer.json
  tokpress train-tokenizer 'data/*.parquet' --vocab-size 50000 --pattern o200k --out tok/tokenizer.json
  tokpress train-tokenizer books/ --format text --model sp-unigram --vocab-size 16000 --out spm.model
"""


@click.command(epilog=_EPILOG)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUTS...")
@click.option("--vocab-size", type=click.IntRange(min=300), required=True)
@click.option(
    "--out", type=click.Path(), required=True, help="A .json file (bpe) or a .model file (sp-bpe, sp-unigram)."
)
@click.option(
    "--model",
    type=click.Choice(["bpe", "sp-bpe", "sp-unigram"]),
    default="bpe",
    show_default=True,
    help="Byte-level BPE, or SentencePiece.",
)
@click.option(
    "--pattern", default="cl100k", show_default=True, help="bpe: gpt2, cl100k, o200k, llama3, qwen2, or a regex."
)
@click.option(
    "--special-token",
    "special_tokens",
    multiple=True,
    default=("<|endoftext|>",),
    show_default=True,
    help="Repeatable; of a bpe tokenizer the first one is its EOS.",
)
@click.option("--sample-size", type=Size(), default="100MB", show_default=True, help="Text to train on; bounds memory.")
@click.option("--overwrite", is_flag=True, help="Replace --out if it is there.")
@read_options
def command(inputs: tuple[str, ...], **options: Any) -> None:
    """Train a tokenizer on text drawn from all over INPUTS, and write it to --out."""
    from tokpress.cli.show import err_console, safe
    from tokpress.train import tokens_in, train_tokenizer

    console = err_console()
    with console.status(f"training {options['vocab_size']:,} tokens"):
        path = train_tokenizer(list(inputs), **options)
    if (made := tokens_in(path)) < options["vocab_size"]:
        asked = f"{options['vocab_size']:,}"
        console.print(
            f"[yellow]{made:,} tokens, not {asked}:[/] the text has no more to give. Train on more: --sample-size"
        )
    shown = safe(path)
    console.print(f"Written to [bold]{shown}[/]. Use it: [bold]tokpress build ... --tokenizer {shown} --out tokens[/]")
    click.echo(path)
