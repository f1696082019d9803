"""`tokpress build`: text in, token store out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import click

from tokpress.cli.options import Fields, Size, TokenId, read_options, unescape
from tokpress.cli.supervised import BuildCommand, supervised_options
from tokpress.config import CheckConfig, EngineChoice, Resources
from tokpress.records import SpecialTokenPolicy

if TYPE_CHECKING:
    from rich.console import Console

    from tokpress.cli.show import ConsoleReporter

_EPILOG = """
\b
Examples:
  tokpress build corpus.jsonl --tokenizer tokenizer.json --out tokens
  tokpress build 'data/*.jsonl.zst' more.parquet --tokenizer spm.model --out tokens
  tokpress build books/ --format text --tokenizer bytes --out tokens
  tokpress build all.txt --separator '<|endoftext|>' --tokenizer tokenizer.json --eos-token '</s>' --out tokens
  zstdcat huge.jsonl.zst | tokpress build - --tokenizer meta-llama/Llama-3.2-1B --out tokens
  tokpress build 'data/*.jsonl' --tokenizer tokenizer.json --keep id,url --out tokens
  tokpress build a.jsonl --tokenizer cl100k_base.tiktoken --out tokens --json | jq .totals
  tokpress build 'web/*.parquet' --tokenizer tokenizer.json --out tokens --workers 8 --memory 16GB --monitor
  tokpress build corpus.jsonl --tokenizer tokenizer.json --out tokens --events events.jsonl
  tokpress build 'web/*.parquet' --tokenizer tokenizer.json --out tokens --dry-run
  tokpress build qa.jsonl --prompt-field question --completion-field answer --tokenizer tokenizer.json --out tokens
  tokpress build chats.jsonl --messages-field messages --tokenizer Qwen/Qwen3-0.6B --max-length 4096 --out tokens
  tokpress build puzzles.jsonl --template puzzle.jinja --val-fraction 0.01 --tokenizer bytes --out tokens
  tokpress build train.jsonl --val-inputs val.jsonl --tokenizer tokenizer.json --out tokens
"""


@click.command(cls=BuildCommand, epilog=_EPILOG)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUTS...")
@click.option(
    "--tokenizer",
    required=True,
    metavar="SPEC",
    help="tokenizer.json, a directory with one, SentencePiece .model, "
    "rank file, name of a tiktoken encoding, hub id, or bytes.",
)
@click.option("--out", required=True, type=click.Path(), help="Directory of the store; must not hold anything else.")
@read_options
@supervised_options
@click.option(
    "--engine",
    type=click.Choice(get_args(EngineChoice)),
    default="auto",
    show_default=True,
    help="auto: the fast engine if it is proved equal on your own text, else the reference.",
)
@click.option(
    "--special-tokens",
    type=click.Choice(get_args(SpecialTokenPolicy)),
    help="A special token's literal in a document: ordinary text, or parsed to its id. Default: text; of chats, parse.",
)
@click.option("--bos/--no-bos", default=None, help="Put BOS before each document. Default: no.")
@click.option("--eos/--no-eos", default=None, help="Put EOS after each document. Default: yes, but not after chats.")
@click.option("--bos-token", metavar="TOKEN", help="Use this special token as BOS.")
@click.option("--eos-token", metavar="TOKEN", help="Use this special token as EOS.")
@click.option("--pattern", metavar="NAME|REGEX", help="Rank files: gpt2, cl100k, o200k, llama3, qwen2, or the regex.")
@click.option(
    "--special-token", "added_tokens", type=TokenId(), multiple=True, help="Rank files: a special token, repeatable."
)
@click.option(
    "--audit-rate",
    type=click.FloatRange(0, 1),
    default=CheckConfig().audit_rate,
    show_default=True,
    help="Share of documents that the reference encodes too, during the run.",
)
@click.option(
    "--max-rejects",
    default=CheckConfig().max_rejects,
    show_default=True,
    help="Stop above this share or number of bad records.",
)
@click.option(
    "--on-bad-record",
    type=click.Choice(["skip", "stop"]),
    default="skip",
    show_default=True,
    help="skip: into rejects/, up to --max-rejects; stop: at the first one.",
)
@click.option("--workers", type=click.IntRange(min=1), help="Processes. Default: one for each physical core.")
@click.option("--memory", type=Size(), help="For the whole run, like 4GB. Default: 60 % of what is available.")
@click.option(
    "--doc-timeout",
    type=click.FloatRange(min=0.1),
    default=Resources().doc_timeout,
    show_default=True,
    help="Seconds after which a document that hangs the tokenizer is set aside.",
)
@click.option(
    "--pin", type=click.Choice(["none", "cores", "numa"]), default="none", show_default=True, help="Pin workers."
)
@click.option(
    "--unit-size",
    type=Size(),
    help="Input that a worker takes on at a time. Default: 256MB, less for under 16 GB of input.",
)
@click.option("--shard-size", type=Size(), default="256MB", show_default=True, help="Size of a token file.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N documents.")
@click.option(
    "--keep",
    type=Fields(),
    default=(),
    metavar="FIELDS",
    help="Keep these fields of each record beside its tokens, like id,url,meta.lang.",
)
@click.option("--drop-empty", is_flag=True, help="Leave out documents without text.")
@click.option("--dry-run", is_flag=True, help="Measure a sample; show time, disk and memory for 1, 2, 4 ... workers.")
@click.option("--monitor", is_flag=True, help="Show every worker while it runs.")
@click.option(
    "--events",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Append what happens, as JSON lines (docs/events.md).",
)
@click.option(
    "--profile", type=click.Path(dir_okay=False), help="Write a profile of the workers, for `python -m pstats`."
)
@click.option("--overwrite", is_flag=True, help="Replace a store that is there already.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON on standard output.")
@click.option("--quiet", is_flag=True, help="Say nothing but errors.")
def command(
    inputs: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    monitor: bool,
    dry_run: bool,
    overwrite: bool,
    events: str | None,
    **options: Any,
) -> None:
    """Tokenize INPUTS (files, directories, globs, or - for standard input) into a store.

    Run the same command again to go on after an interruption: what is done is not done twice.
    """
    from tokpress.api import build
    from tokpress.cli.monitor import MonitorReporter
    from tokpress.cli.show import ConsoleReporter, err_console, print_summary, safe, telling
    from tokpress.store.manifest import encode

    console = err_console(quiet=quiet)
    options["separator"] = unescape(options["separator"])
    options["prompt_separator"] = unescape(options["prompt_separator"])
    options["added_tokens"] = dict(options["added_tokens"])
    reporter = MonitorReporter(console) if monitor else ConsoleReporter(console)
    if dry_run:
        _project(reporter, console, list(inputs), as_json=as_json, **options)
        return
    with telling(console, reporter, events) as told:
        store = build(list(inputs), reporter=told, overwrite=overwrite, **options)
    print_summary(console, store.summary(lengths=False))
    path = safe(store.path)
    if store.manifest.totals.rejected:
        console.print(f"\nLook at the rejected records: [bold]{path}/rejects/[/]")
    console.print(f"\nThe store is at [bold]{path}[/]. Look into it: [bold]tokpress inspect {path}[/]")
    if as_json:
        click.echo(encode(store.manifest), nl=False)


def _project(reporter: ConsoleReporter, console: Console, inputs: list[str], *, as_json: bool, **options: Any) -> None:
    import msgspec

    from tokpress.api import dry_run
    from tokpress.cli.show import number, plural, print_fact, size
    from tokpress.run.events import Proved

    with console.status("encoding a sample"):
        prepared, projected = dry_run(inputs, **options)
    reporter.on(Proved.of(prepared.parity))
    total = f"{plural(projected.inputs, 'file')}, {size(projected.input_bytes)}, {plural(projected.units, 'unit')}"
    print_fact(console, "plan", total)
    print_fact(
        console, "sample", f"{size(projected.sampled_bytes)} at {projected.input_mb_per_s:,.1f} MB/s in one worker"
    )
    print_fact(console, "store", f"about {number(projected.tokens)} tokens, {size(projected.disk_bytes)} on disk")
    for line in projected.workers:
        print_fact(
            console, plural(line.workers, "worker"), f"about {line.seconds:,.0f} s, {size(line.memory_bytes)} of memory"
        )
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(projected), indent=1))
