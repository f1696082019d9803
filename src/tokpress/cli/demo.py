"""`tokpress demo`: the whole way on text that every Python installation carries."""

from __future__ import annotations

import sysconfig
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from tokpress.store.reader import Store

_EPILOG = """
\b
Examples:
  tokpress demo
  tokpress demo --out /tmp/demo
"""
_VOCAB_SIZE = 8192
_SEQ_LEN = 1024
_BATCH_SIZE = 16


@click.command(epilog=_EPILOG)
@click.option("--out", type=click.Path(), default="tokpress-demo", show_default=True, help="Directory to work in.")
def command(out: str) -> None:
    """Train a tokenizer on Python's own library and help texts, build a store, verify, inspect, pack, export and load it."""
    import msgspec

    import tokpress
    from tokpress.cli.inspect import coloured
    from tokpress.cli.show import ConsoleReporter, err_console, plural, print_summary, safe, size
    from tokpress.train import train_tokenizer

    console = err_console()
    work = Path(out)
    work.mkdir(parents=True, exist_ok=True)
    library = Path(sysconfig.get_path("stdlib"))
    topics: dict[str, str] = import_module("pydoc_data.topics").topics
    help_texts = work / "help.jsonl"
    help_texts.write_bytes(msgspec.json.Encoder().encode_lines([{"id": k, "text": v} for k, v in topics.items()]))
    packages = [str(path) for path in sorted(library.iterdir()) if path.suffix == ".py" or _is_package(path)]
    inputs = [str(help_texts), *packages]

    console.rule("1. tokpress train-tokenizer")
    began = perf_counter()
    tokenizer = train_tokenizer(
        inputs, out=work / "tokenizer.json", vocab_size=_VOCAB_SIZE, sample_size="4MB", overwrite=True
    )
    console.print(f"{_VOCAB_SIZE:,} tokens trained in {perf_counter() - began:.1f} s: {safe(tokenizer)}")

    console.rule("2. tokpress build")
    store = tokpress.build(
        inputs, tokenizer=tokenizer, out=work / "tokens", overwrite=True, reporter=ConsoleReporter(console)
    )
    print_summary(console, store.summary(lengths=False))

    console.rule("3. tokpress verify")
    report = store.verify()
    console.print(f"{report.files:,} files, {size(report.bytes)}, {plural(len(report.problems), 'problem')}")
    for problem in report.problems:
        console.print(f"[red]{safe(problem.file)}[/]: {safe(problem.message)}")

    console.rule("4. tokpress inspect")
    console.print(coloured(store, store.doc(0)[:120]))

    equal = [store.text(i) == text for i, text in enumerate(topics.values())]
    console.print(f"{sum(equal)} of {len(equal)} help texts decode to exactly the text that went in")

    console.rule("5. tokpress pack")
    waste = tokpress.pack(store.path, seq_len=_SEQ_LEN, method="bestfit")
    console.print(
        f"{waste.sequences:,} sequences of {_SEQ_LEN:,} tokens, {waste.padding_share:.2%} padding; "
        "no document that fits into one is cut"
    )

    console.rule("6. tokpress export")
    exported = tokpress.export(store, to="megatron", out=work / "megatron", overwrite=True)
    console.print(
        f"Megatron's {plural(len(exported.files), 'file')}: {size(exported.linked_bytes)} linked, "
        f"{size(exported.written_bytes)} written"
    )

    console.rule("7. tokpress.Loader")
    rate, resumed = _train(store)
    console.print(f"an epoch, shuffled, in batches of {_BATCH_SIZE}: {rate / 1e6:,.0f} M tokens/s")
    console.print(f"resumed in the middle from its state_dict: {'the same' if resumed else 'OTHER'} batches follow")

    click.echo(
        f"demo: {store.num_docs:,} documents, {store.num_tokens:,} tokens; "
        f"store verified: {'sound' if report.ok else 'DAMAGED'}; read back: {'equal' if all(equal) else 'DIFFERENT'}; "
        f"resumed: {'equal' if resumed else 'DIFFERENT'}"
    )
    if not (report.ok and all(equal) and resumed):
        raise click.exceptions.Exit(1)


def _train(store: Store) -> tuple[float, bool]:
    """Goes through an epoch as a training loop would: tokens a second, and whether a resumed loader goes on alike."""
    import numpy as np

    import tokpress

    data = tokpress.PretokenizedDataset(store, seq_len=_SEQ_LEN, method="bestfit", output="numpy")
    loader = tokpress.Loader(data, batch_size=_BATCH_SIZE, seed=0)
    state: dict[str, Any] = {}
    rest = []
    began = perf_counter()
    for step, batch in enumerate(loader, start=1):
        if step > len(loader) // 2:
            rest.append(batch["input_ids"])
        else:
            state = loader.state_dict()
    rate = len(loader) * _BATCH_SIZE * _SEQ_LEN / (perf_counter() - began)
    resumed = tokpress.Loader(data, batch_size=_BATCH_SIZE, seed=0)
    resumed.load_state_dict(state)
    again = [batch["input_ids"] for batch in resumed]
    return rate, len(again) == len(rest) and all(map(np.array_equal, again, rest))


def _is_package(path: Path) -> bool:
    return path.is_dir() and path.name in ("asyncio", "email", "encodings", "http", "json", "unittest", "xml", "html")
