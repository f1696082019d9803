"""`tokpress import`: another trainer's token files as a store."""

from __future__ import annotations

import sys
from typing import Any

import click

from tokpress.cli.printable import between_words, print_json
from tokpress.formats import IMPORTABLE

_EPILOG = """
\b
Examples:
  tokpress import corpus_text_document --from megatron --tokenizer tokenizer.json --out tokens
  tokpress import tokenized/ --from datatrove --tokenizer meta-llama/Llama-3.2-1B --out tokens
  tokpress import part-0-*.npy --from dolma --tokenizer tokenizer.json --out tokens
  tokpress import data/openwebtext/train.bin --from nanogpt --tokenizer gpt2 --out tokens
  tokpress import data/train.bin --val data/val.bin --from nanogpt --tokenizer gpt2 --out tokens
  tokpress import fineweb_train_*.bin --from llmc --tokenizer gpt2 --out tokens
"""


@click.command(epilog=_EPILOG)
@click.argument("paths", nargs=-1, required=True, metavar="PATHS...", type=click.Path())
@click.option("--from", "format", type=click.Choice(IMPORTABLE), required=True, help="What the files are.")
@click.option("--tokenizer", required=True, help="The one that made these tokens; as for tokpress build.")
@click.option("--out", type=click.Path(), required=True, help="Directory of the store to make.")
@click.option("--val", multiple=True, type=click.Path(), help="Files of the split val; may be given again.")
@click.option(
    "--eos-token",
    metavar="TOKEN",
    help="The token that ends documents. nanogpt and llmc say where they end by it alone. Default: the tokenizer's.",
)
@click.option(
    "--dtype",
    type=click.Choice(["uint16", "uint32"]),
    help="Type of the ids, where files do not say it (dolma). Default: by vocabulary.",
)
@click.option("--copy", is_flag=True, help="Copy token files where a link would do.")
@click.option("--overwrite", is_flag=True, help="Replace a store of something else; at a terminal, asks first.")
@click.option("--json", "as_json", is_flag=True, help="Print counts as JSON on standard output.")
def command(paths: tuple[str, ...], out: str, as_json: bool, **options: Any) -> None:
    """Adopt token files as a store, for tokpress's loader, packing, checks and exports.

    Raw ids are hard links: nothing is copied, and the files must not be changed afterwards. Every id is checked against the
    tokenizer's vocabulary.
    """
    from tokpress.cli.overwrite import confirm_overwrite
    from tokpress.cli.printable import printable
    from tokpress.cli.show import ByteProgress, err_console, plural
    from tokpress.formats.import_ import import_tokens

    if options["overwrite"]:
        confirm_overwrite(out, err_console())
    bar = ByteProgress(err_console(), "importing")

    def progress(done: int, total: int) -> None:
        bar.total = total
        bar.advance(done)

    try:
        store = import_tokens(paths, out=out, progress=progress, **options)
    finally:
        bar.close()
    facts = {
        "path": out,
        "files": len(store.plan.inputs),
        "docs": store.num_docs,
        "tokens": store.num_tokens,
        "dtype": store.manifest.dtype,
        "bos_id": store.manifest.bos_id,
        "eos_id": store.manifest.eos_id,
        "fingerprint": store.fingerprint,
    }
    if as_json:
        print_json(facts)
        return
    counts = f"{plural(store.num_docs, 'document')}, {plural(store.num_tokens, 'token')} ({store.manifest.dtype})"
    told = f"{printable(out)} is a store of {plural(len(store.plan.inputs), 'token file')}: {counts}"
    click.echo(between_words(told, sys.stdout))
