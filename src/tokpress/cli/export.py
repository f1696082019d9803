"""`tokpress export`: a store as another trainer's files."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from tokpress.cli.options import NamedNumber, Numbers, packing_options
from tokpress.cli.printable import between_words, print_json
from tokpress.formats import FORMATS
from tokpress.formats.trainers import TRAINERS

if TYPE_CHECKING:
    from tokpress.formats.target import Metadata

_EPILOG = """
\b
Examples:
  tokpress export tokens --to megatron --out tokens-megatron
  tokpress export tokens --to llmc --file-tokens 1000000 --out tokens-llmc
  tokpress export tokens --to datatrove --out tokens-ds --split train
  tokpress export tokens --to npy --max-length 512 --out arrays
  tokpress export tokens --to parquet --seq-len 2048 --out tokens-parquet
  tokpress export tokens --to mds --seq-len 8192 --method bestfit --out tokens-mds
  tokpress export tokens --to megatron --indices-for 4096 --index-samples train=2000000 --index-run run.txt --out mt
  tokpress export chats --for trl --out chats-trl
  tokpress export chats --for levanter --max-length 4096 --out chats-levanter
  tokpress export tokens --to arrow --out tokens-hf --json | jq .written_bytes
"""


@click.command(epilog=_EPILOG)
@click.argument("store", type=click.Path())
@click.option(
    "--to",
    type=click.Choice(list(FORMATS)),
    metavar="FORMAT",
    help=f"One of {', '.join(FORMATS)}. See docs/formats.md.",
)
@click.option(
    "--for",
    "trainer",
    type=click.Choice(list(TRAINERS)),
    help="Who reads it: with that trainer's columns, and refused if the tokens in the loss would be others.",
)
@click.option("--lossy", is_flag=True, help="With --for: export although the tokens in the loss differ.")
@click.option("--out", type=click.Path(), required=True, help="Directory to make; it appears when it is complete.")
@click.option("--split", multiple=True, help="Only this split; may be given again. Default: all.")
@click.option("--seq-len", type=int, metavar="N", help="Rows of N tokens, for formats that have rows.")
@click.option("--max-length", type=int, metavar="N", help="A document a row of N tokens: --seq-len N --method pad.")
@click.option(
    "--method",
    type=click.Choice(["concat", "bestfit", "pad"]),
    help="How rows are filled; see tokpress pack. Default: concat; for npy, pad.",
)
@packing_options
@click.option(
    "--dtype",
    type=click.Choice(["uint16", "uint32", "int32", "int64"]),
    help="npy, pt: type of the ids. Default: npy the store's own, pt int32.",
)
@click.option(
    "--merge", is_flag=True, help="megatron: one pair of files a split, copied, instead of links of all shards."
)
@click.option("--file-tokens", type=click.IntRange(min=1), metavar="N", help="llmc: about so many tokens a file.")
@click.option(
    "--min-files",
    type=click.IntRange(min=1),
    metavar="N",
    help="llmc: at least so many files of train, for as many ranks.",
)
@click.option(
    "--tokenizer-name",
    metavar="NAME",
    help="datatrove: what nanotron loads the tokenizer by. Default: as the build was told, or the store's own copy.",
)
@click.option("--keep", is_flag=True, help="parquet, arrow: the fields that the build kept, as columns.")
@click.option(
    "--indices-for",
    type=Numbers(),
    metavar="N,N,...",
    help="megatron: also the indices that it makes before it trains, for sequences of these lengths.",
)
@click.option(
    "--index-samples",
    type=NamedNumber(),
    multiple=True,
    metavar="SPLIT=N",
    help="megatron: samples of a run, for its indices; may be given again. Default: one epoch.",
)
@click.option(
    "--index-run",
    type=click.Path(),
    metavar="FILE",
    help="megatron: a *-description.txt that a run wrote: its seed, and how it calls its tokenizer.",
)
@click.option("--copy", is_flag=True, help="Copy token files where a link would do.")
@click.option("--overwrite", is_flag=True, help="Replace an export of something else.")
@click.option("--workers", type=click.IntRange(min=1), help="Threads. Default: one a core.")
@click.option("--json", "as_json", is_flag=True, help="Print the export's metadata as JSON on standard output.")
def command(
    store: str,
    out: str,
    split: tuple[str, ...],
    as_json: bool,
    index_samples: tuple[tuple[str, int], ...],
    **options: Any,
) -> None:
    """Write STORE as files that another trainer's own reader opens.

    Where that format is raw ids, the token files are hard links: no second copy of the corpus. Stopped, the same command
    goes on where it was.
    """
    from tokpress.cli.show import ByteProgress, err_console
    from tokpress.formats.export import export

    chosen = {name: value for name, value in options.items() if value is not None}
    bar = ByteProgress(err_console(), "exporting")

    def progress(done: int, total: int) -> None:
        bar.total = total
        bar.advance(done)

    try:
        made = export(
            store, out=out, split=split or None, progress=progress, index_samples=dict(index_samples), **chosen
        )
    finally:
        bar.close()
    if as_json:
        print_json(made)
    else:
        click.echo(between_words(_said(made, out), sys.stdout))


def _said(made: Metadata, out: str) -> str:
    from tokpress.cli.printable import printable
    from tokpress.cli.show import plural, size
    from tokpress.formats.base import open_format
    from tokpress.formats.trainers import find_trainer

    docs = plural(sum(split.docs for split in made.splits.values()), "document")
    tokens = plural(sum(split.tokens for split in made.splits.values()), "token")
    rows = sum(split.rows or 0 for split in made.splits.values())
    counts = [docs, tokens, *([plural(rows, "row")] if rows else [])]
    files = f"{plural(len(made.files), 'file')}, {size(made.linked_bytes)} linked, {size(made.written_bytes)} written"
    trainer = made.options.trainer
    reader = find_trainer(trainer) if trainer else open_format(made.options.to)
    opened_with = (made.options.seq_len is not None and reader.opened_with_sequences) or reader.opened_with
    how = opened_with.format(
        out=out,
        split=next(iter(made.splits)),
        width=4 if made.dtype == "uint32" else 2,
        seq_len=made.options.seq_len or 2048,
    )
    what = f"{made.options.to} ({', '.join(made.splits)}): {', '.join(counts)}; {files}"
    lost = "".join(f"\nNot read: {printable(str(loss))}" for loss in made.losses or [])
    return f"{printable(out)} is {what}{lost}\nOpen it: {printable(how)}"
