"""`tokpress demo`: the whole way on text that every Python installation carries."""

from __future__ import annotations

import sysconfig
from importlib import import_module
from pathlib import Path
from time import perf_counter

import click

_EPILOG = """
\b
Examples:
  tokpress demo
  tokpress demo --out /tmp/demo
"""
_VOCAB_SIZE = 8192
_SEQ_LEN = 1024


@click.command(epilog=_EPILOG)
@click.option("--out", type=click.Path(), default="tokpress-demo", show_default=True, help="Directory to work in.")
def command(out: str) -> None:
    """Train a tokenizer on Python's own library and help texts, build a store, verify it, look into it, read from it."""
    import msgspec
    import numpy as np

    import tokpress
    from tokpress.cli.inspect import coloured
    from tokpress.cli.show import ConsoleReporter, err_console, plural, print_summary, safe, size
    from tokpress.engines.train import train_tokenizer

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
    tokenizer = train_tokenizer(inputs, out=work / "tokenizer.json", vocab_size=_VOCAB_SIZE, sample_size="4MB")
    console.print(f"{_VOCAB_SIZE:,} tokens trained in {perf_counter() - began:.1f} s: {safe(tokenizer)}")

    console.rule("2. tokpress build")
    store = tokpress.build(
        inputs, tokenizer=tokenizer, out=work / "tokens", overwrite=True, reporter=ConsoleReporter(console)
    )
    print_summary(console, store.manifest)

    console.rule("3. tokpress verify")
    report = store.verify()
    console.print(f"{report.files:,} files, {size(report.bytes)}, {plural(len(report.problems), 'problem')}")
    for problem in report.problems:
        console.print(f"[red]{safe(problem.file)}[/]: {safe(problem.message)}")

    console.rule("4. tokpress inspect")
    console.print(coloured(store, store.doc(0)[:120]))

    console.rule("5. read it back")
    reopened = tokpress.open(work / "tokens")
    sequences = reopened.num_tokens // _SEQ_LEN
    began = perf_counter()
    total = 0
    for i in range(sequences):
        total += int(np.asarray(reopened.tokens(i * _SEQ_LEN, (i + 1) * _SEQ_LEN)).sum())
    rate = sequences * _SEQ_LEN / (perf_counter() - began)
    equal = [reopened.text(i) == text for i, text in enumerate(topics.values())]
    console.print(f"{sequences:,} sequences of {_SEQ_LEN} tokens read at {rate / 1e6:,.0f} M tokens/s")
    console.print(f"{sum(equal)} of {len(equal)} help texts decode to exactly the text that went in")
    run = store.manifest.run
    click.echo(
        f"demo: {store.num_docs:,} documents, {store.num_tokens:,} tokens at {run['input_mb_per_s']:.1f} MB/s; "
        f"store verified: {'sound' if report.ok else 'DAMAGED'}; read back: {'equal' if all(equal) else 'DIFFERENT'}"
    )
    if not (report.ok and all(equal)):
        raise click.exceptions.Exit(1)


def _is_package(path: Path) -> bool:
    return path.is_dir() and path.name in ("asyncio", "email", "encodings", "http", "json", "unittest", "xml", "html")
