"""`tokpress diagnose`: where the time of a training step goes, and what to do about it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tokpress.diagnose.findings import Diagnosis, Line

_EPILOG = """
\b
Examples:
  tokpress diagnose -- python train.py --batch-size 8
  tokpress diagnose --json -- torchrun --nproc-per-node 2 train.py | jq .faults
  tokpress diagnose --tokenizer spm.model --inputs corpus.jsonl --step-ms 50
"""


@click.command(epilog=_EPILOG, context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON; the script's output goes to stderr.")
def command(command: tuple[str, ...], as_json: bool) -> None:
    """Run a training script as it is, and show where its time goes: tokenizing, waiting for data, synchronising, compute;
    with the lines that cause it, and advice. Its exit code is passed on.

    A script that uses tokpress.StepMeter is reported as that measured it. In any other, calls of tokenizers, data loaders
    and .item() are timed between the first and the last optimizer step, and py-spy samples the rest.
    """
    if not command:
        raise click.UsageError("give the command to run: tokpress diagnose -- python train.py")
    import msgspec

    from tokpress.cli.show import err_console
    from tokpress.diagnose.findings import diagnose
    from tokpress.diagnose.observe import observe

    observed = observe(command, stdout=sys.stderr if as_json else None)
    diagnosis = diagnose(observed)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(diagnosis), indent=1))
    else:
        _show(err_console(), diagnosis)
    raise click.exceptions.Exit(diagnosis.exit_code)


def _show(console: Console, diagnosis: Diagnosis) -> None:
    from tokpress.cli.show import safe

    console.rule("where the time went")
    if diagnosis.parts:
        console.print(_table(diagnosis))
    for line in diagnosis.busiest:
        console.print(f"[dim]busy {line.share:.0%}[/]  {_place(line)}")
    for fault in diagnosis.faults:
        console.print(f"\n[yellow]{safe(fault.says)}[/]")
        for line in fault.lines:
            console.print(f"  {_place(line)}")
        console.print(f"  [bold]{safe(fault.do)}[/]")
    if diagnosis.parts and not diagnosis.faults:
        console.print("\n[green]No fault found:[/] the loop neither tokenizes nor starves nor waits in every step.")
    for note in diagnosis.notes:
        console.print(f"[dim]{safe(note)}[/]")


def _place(line: Line) -> str:
    from tokpress.cli.show import safe

    return f"{safe(line.where)}  [cyan]{safe(line.code)}[/]"


def _table(diagnosis: Diagnosis) -> Table:
    from rich.table import Table

    from tokpress.cli.show import plural
    from tokpress.diagnose.findings import PART_NAMES, percent

    looped = diagnosis.steps > 0
    table = Table(
        f"{plural(diagnosis.steps, 'step')}, by {diagnosis.source}", "share", "a step" if looped else "in all", box=None
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for part in diagnosis.parts:
        table.add_row(PART_NAMES[part.phase], percent(part.share), f"{part.ms:,.2f} ms")
    if looped:
        rate = f"{diagnosis.tokens_per_s:,.0f} tokens/s" if diagnosis.tokens_per_s else ""
        table.add_row("a step", rate, f"{diagnosis.step_ms:,.2f} ms", style="bold")
    return table
