"""`tokpress diagnose`: where the time of a training step goes, and what to do about it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from tokpress.cli.flags import read_options
from tokpress.cli.printable import print_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tokpress.diagnose.findings import Diagnosis, Line
    from tokpress.diagnose.tokenizing import Way

_EPILOG = """
\b
Examples:
  tokpress diagnose -- python train.py --batch-size 8
  tokpress diagnose --json -- torchrun --nproc-per-node 2 train.py | jq .faults
  tokpress diagnose --tokenizer spm.model --inputs corpus.jsonl --step-ms 50
"""


@click.command(epilog=_EPILOG, context_settings={"allow_interspersed_args": False})
@click.argument("script", nargs=-1, type=click.UNPROCESSED, metavar="[-- SCRIPT...]")
@click.option("--tokenizer", metavar="SPEC", help="As for `tokpress build`.")
@click.option("--inputs", multiple=True, metavar="INPUT", help="Text to measure with; can be repeated.")
@click.option(
    "--step-ms",
    type=click.FloatRange(min=0, min_open=True),
    default=50.0,
    show_default=True,
    help="How long your model computes in a step.",
)
@click.option("--seq-len", type=click.IntRange(min=1), default=2048, show_default=True)
@click.option("--batch-size", type=click.IntRange(min=1), default=8, show_default=True)
@click.option(
    "--workers", type=click.IntRange(min=1), help="To tokenize in parallel. Default: as many as there are cores."
)
@click.option("--steps", type=click.IntRange(min=1), default=20, show_default=True, help="For each way.")
@read_options
@click.option("--plot", type=click.Path(dir_okay=False), help="Write a PNG: a step as a stacked bar.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON alone; what SCRIPT prints goes to standard error.")
def command(script: tuple[str, ...], inputs: tuple[str, ...], plot: str | None, as_json: bool, **options: Any) -> None:
    """Show where the time of a training step goes.

    Either run SCRIPT (python train.py ...) as it is: its shares of tokenizing, waiting for data, synchronising and
    compute, the lines that cause them, and advice. A script with a tokpress.StepMeter is reported as that measured it; in
    any other, tokenizers, data loaders and .item() are timed between the first and the last optimizer step, and py-spy
    samples the rest. The exit code is the script's own.

    Or, with --tokenizer and --inputs, measure what tokenizing costs a step of --step-ms here: one by one, in batches, in
    parallel, live and pre-tokenized.
    """
    from tokpress.cli.show import err_console
    from tokpress.figure import new_figure

    measures = bool(options["tokenizer"] and inputs)
    if measures == bool(script) or bool(options["tokenizer"]) != bool(inputs):
        raise click.UsageError("give a command after --, or both --tokenizer and --inputs.")
    if plot:
        new_figure(1, 1)  # says what is missing before the work is done, not after
    if script:
        _diagnose_script(script, err_console(), plot, as_json)
    else:
        _compare_ways(inputs, err_console(), plot, as_json, **options)


def _diagnose_script(script: tuple[str, ...], console: Console, plot: str | None, as_json: bool) -> None:
    from tokpress.diagnose.findings import diagnose
    from tokpress.diagnose.observe import observe
    from tokpress.metering.report import save_plot

    diagnosis = diagnose(observe(script, stdout=sys.stderr if as_json else None))
    if as_json:
        print_json(diagnosis)
    else:
        _show(console, diagnosis)
    if plot:
        save_plot({"": {part.phase: part.ms for part in diagnosis.parts}}, plot)
    raise click.exceptions.Exit(diagnosis.exit_code)


def _compare_ways(
    inputs: tuple[str, ...], console: Console, plot: str | None, as_json: bool, *, step_ms: float, **options: Any
) -> None:
    from tokpress.cli.show import out_console
    from tokpress.diagnose.tokenizing import compare_ways
    from tokpress.metering.report import save_plot

    with console.status("tokenizing in every way"):
        ways = compare_ways(list(inputs), step_seconds=step_ms / 1e3, **options)
    if as_json:
        print_json(ways)
    else:
        out_console().print(_ways_table(ways, step_ms))
    if plot:
        save_plot({way.name: {"data": way.data_wait * 1e3, "compute": step_ms} for way in ways}, plot)


def _ways_table(ways: list[Way], step_ms: float) -> Table:
    from rich.table import Table

    table = Table(f"a step of {step_ms:g} ms", "ms a batch", "waits", "of the step", "tokens/s", "speed", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for way in ways:
        table.add_row(
            way.name,
            f"{way.seconds_per_batch * 1e3:,.2f}",
            f"{way.data_wait * 1e3:,.2f} ms",
            f"{way.share:.1%}",
            f"{way.tokens_per_second:,.0f}",
            f"{way.tokens_per_second / ways[0].tokens_per_second:.2f}x",
        )
    return table


def _show(console: Console, diagnosis: Diagnosis) -> None:
    from tokpress.cli.show import safe

    console.rule("where the time went")
    if diagnosis.parts:
        console.print(_parts_table(diagnosis))
    for line in diagnosis.busiest:
        console.print(f"[dim]busy {line.share:.0%}[/]  {_place(line)}")
    for fault in diagnosis.faults:
        console.print(f"\n[yellow]{safe(fault.says)}[/]")
        for line in fault.lines:
            console.print(f"  {_place(line)}")
        console.print(f"  [bold]{safe(fault.do)}[/]")
    if diagnosis.steps and not diagnosis.faults:
        console.print("\n[green]No fault found:[/] the loop neither tokenizes nor starves nor waits in every step.")
    for note in diagnosis.notes:
        console.print(f"[dim]{safe(note)}[/]")


def _place(line: Line) -> str:
    from tokpress.cli.show import safe

    return f"{safe(line.where)}  [cyan]{safe(line.code)}[/]"


def _parts_table(diagnosis: Diagnosis) -> Table:
    from rich.table import Table

    from tokpress.cli.show import plural
    from tokpress.diagnose.findings import percent
    from tokpress.metering.report import NAMES

    looped = diagnosis.steps > 0
    steps = plural(diagnosis.steps, "step") if looped else "the whole run"
    steps += f" of {diagnosis.ranks} ranks" if diagnosis.ranks > 1 else ""
    table = Table(f"{steps}, by {diagnosis.source}", "share", "a step" if looped else "in all", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for part in diagnosis.parts:
        table.add_row(NAMES[part.phase], percent(part.share), f"{part.ms:,.3f} ms")
    if looped:
        rate = f"{diagnosis.tokens_per_s:,.0f} tokens/s" if diagnosis.tokens_per_s else ""
        table.add_row("a step", rate, f"{diagnosis.step_ms:,.3f} ms", style="bold")
    return table
