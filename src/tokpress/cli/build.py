"""`tokpress build`: text in, token store out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from tokpress.cli.flags import GroupedCommand, flags
from tokpress.cli.printable import print_json, printable_json

if TYPE_CHECKING:
    from rich.console import Console

    from tokpress.cli.show import ConsoleReporter
    from tokpress.run.events import Reporter

_EPILOG = """
\b
Examples:
  tokpress build corpus.jsonl --tokenizer tokenizer.json --out tokens
  tokpress build 'data/*.jsonl.zst' more.parquet --tokenizer spm.model --out tokens
  tokpress build 's3://bucket/web/*.parquet' hf://datasets/me/data/train --tokenizer tokenizer.json --out tokens
  tokpress build --dataset fineweb-edu:sample-10BT --tokenizer meta-llama/Llama-3.2-1B --out tokens
  tokpress build --dataset ORG/NAME:CONFIG@main --split validation --tokenizer tokenizer.json --out tokens
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
  tokpress build 'web/*.parquet' --tokenizer tokenizer.json --out tokens --keep id --print-config > web.toml
  tokpress build --config web.toml --workers 8
  tokpress build --config web.toml --share auto     # in each task of a Slurm array or Indexed Job; docs/scale.md
"""


def _use_file(ctx: click.Context, _param: click.Parameter, path: str | None) -> None:
    """What stands in the file is what a flag is that is not given."""
    if path is not None:
        from tokpress.cli.config_file import read_config

        ctx.default_map = read_config(path)


def _inputs(ctx: click.Context, _argument: click.Parameter, given: tuple[str, ...] | None) -> tuple[str, ...]:
    """Click takes no argument from there, so that this has to; `--config` was looked at before."""
    return given or tuple((ctx.default_map or {}).get("inputs", ()))


@click.command(cls=GroupedCommand, epilog=_EPILOG)
@click.argument("inputs", nargs=-1, metavar="[INPUTS]...", callback=_inputs)
@click.option(
    "--tokenizer",
    required=True,
    metavar="SPEC",
    help="tokenizer.json, a directory with one, SentencePiece .model, "
    "rank file, name of a tiktoken encoding, hub id, or bytes.",
)
@click.option(
    "--out",
    required=True,
    type=click.Path(),
    help="Directory of the store, or s3://, gs://, az://; must not hold anything else.",
)
@flags()
@click.option("--dry-run", is_flag=True, help="Measure a sample; show time, disk and memory for 1, 2, 4 ... workers.")
@click.option("--monitor", is_flag=True, help="Show every worker while it runs.")
@click.option(
    "--events",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Append what happens, as JSON lines (docs/events.md).",
)
@click.option(
    "--share",
    metavar="I/N|auto",
    help="Do only the I-th of N shares, from 0; auto: that of a Slurm array's or Indexed Job's task. See docs/scale.md.",
)
@click.option(
    "--executor", type=click.Choice(["local", "ray"]), default="local", help="This machine, or a Ray cluster."
)
@click.option("--address", metavar="ADDRESS", help="Of the Ray cluster, like auto; else the one that is used already.")
@click.option("--seal", is_flag=True, help="Finish a store whose shares are all done; an error if something is left.")
@click.option("--overwrite", is_flag=True, help="Replace a store that is there already; at a terminal, asks first.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON on standard output.")
@click.option("--quiet", is_flag=True, help="Say nothing but errors.")
@click.option(
    "--config",
    type=click.Path(dir_okay=False),
    is_eager=True,
    expose_value=False,
    callback=_use_file,
    help="A TOML file with options; flags win over it. See docs/options.md.",
)
@click.option("--print-config", is_flag=True, help="Print this build as such a file, and do nothing else.")
def command(
    inputs: tuple[str, ...],
    *,
    as_json: bool,
    quiet: bool,
    monitor: bool,
    dry_run: bool,
    overwrite: bool,
    share: str | None,
    seal: bool,
    executor: Literal["local", "ray"],
    address: str | None,
    events: str | None,
    print_config: bool,
    **options: Any,
) -> None:
    """Tokenize INPUTS (files, directories, globs, or - for standard input), or a --dataset, into a store.

    Run the same command again to go on after an interruption: what is done is not done twice.
    """
    if not inputs and options["dataset"] is None:
        raise click.UsageError("Missing argument 'INPUTS...', or a --dataset.", click.get_current_context())
    if print_config:
        from tokpress.cli.config_file import written_config

        click.echo(written_config({"inputs": inputs, **options}), nl=False)
        return
    from tokpress.api import build
    from tokpress.cli.monitor import MonitorReporter
    from tokpress.cli.overwrite import confirm_overwrite
    from tokpress.cli.show import ConsoleReporter, err_console, print_fact, print_summary, safe, telling
    from tokpress.config import ALWAYS_ALLOWED, reject_limit
    from tokpress.store.manifest import encode

    console = err_console(quiet=quiet)
    reporter = MonitorReporter(console) if monitor else ConsoleReporter(console)
    if dry_run:
        _project(reporter, console, list(inputs), as_json=as_json, **options)
        return
    if overwrite:
        confirm_overwrite(options["out"], console)
    with telling(console, reporter, events) as told:
        if share is not None:
            _build_share(list(inputs), told, console, share, alone=not (overwrite or seal), as_json=as_json, **options)
            return
        where: Any = {"executor": executor, "address": address}
        store = build(list(inputs), reporter=told, overwrite=overwrite, seal=seal, **where, **options)
    summary = store.summary(lengths=False)
    print_summary(console, summary)
    if summary.bad_records > reject_limit(options["max_rejects"], summary.read, at_least=0):
        allowed = f"up to {ALWAYS_ALLOWED} bad records are allowed in small inputs; --max-rejects 0 allows none"
        print_fact(console, "", allowed)
    path = safe(store.url)
    if store.manifest.totals.rejected:
        console.print(f"\nLook at the rejected records: [bold]{path}/rejects/[/]")
    console.print(f"\nThe store is at [bold]{path}[/]. Look into it: [bold]tokpress inspect {path}[/]")
    if as_json:
        click.echo(printable_json(encode(store.manifest)), nl=False)


def _build_share(
    inputs: list[str], reporter: Reporter, console: Console, text: str, *, alone: bool, as_json: bool, **options: Any
) -> None:
    import os

    from tokpress.api import build_share
    from tokpress.cli.show import number, plural, safe
    from tokpress.errors import UsageError
    from tokpress.run.share import parse_share
    from tokpress.store.manifest import encode

    if not alone:
        raise UsageError(
            "--share has many processes do a build, and with --overwrite each would remove what the others have done; "
            "--seal comes after all of them. Remove the old store, or choose another --out; run --seal by itself."
        )
    share = parse_share(text, os.environ)
    attempt = build_share(inputs, share=share, reporter=reporter, **options)
    out = safe(options["out"])
    if attempt is None:
        console.print(f"The store at [bold]{out}[/] is finished already.")
        return
    console.print(
        f"Share {share} is done: {plural(len(attempt.units), 'unit')} now, {number(attempt.tokens)} tokens. The store is "
        f"finished by the same command without --share. See: [bold]tokpress status {out}[/]"
    )
    if as_json:
        click.echo(printable_json(encode(attempt)), nl=False)


def _project(reporter: ConsoleReporter, console: Console, inputs: list[str], *, as_json: bool, **options: Any) -> None:
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
        print_json(projected)
