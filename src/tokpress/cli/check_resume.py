"""`tokpress check-resume`: does a trainer go on with the very next batch?"""

from __future__ import annotations

import click

from tokpress.cli.printable import print_json

_EPILOG = """
\b
Examples:
  tokpress check-resume -- python train.py --steps 20 --out {out}
  tokpress check-resume --stop-after 7 -- torchrun train.py --out {out}
"""


@click.command(epilog=_EPILOG, context_settings={"allow_interspersed_args": False})
@click.argument("script", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- SCRIPT...")
@click.option(
    "--stop-after",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    metavar="N",
    help="Kill the second run after so many steps.",
)
@click.option("--keep", type=click.Path(), metavar="DIR", help="Keep what the runs save, here.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON on standard output.")
def command(script: tuple[str, ...], stop_after: int, keep: str | None, as_json: bool) -> None:
    """Run SCRIPT in one go, then killed and started again: it must be given the same steps.

    SCRIPT trains with torch, saves as it goes and, started again with the same command, goes on; {out} in it stands for the
    directory that it saves to. What modules are given while they train is compared, step by step and rank by rank: the run
    that goes on must begin at a step that the killed one had reached, and train from there on what the whole run trained.
    """
    from tokpress.errors import TokpressError
    from tokpress.resuming.check import check_resume

    report = check_resume(script, stop_after=stop_after, directory=keep)
    if as_json:
        print_json(report)
    if not report.ok:
        raise TokpressError(" ".join(report.problems))
    if not as_json:
        begins = ", ".join(map(str, report.begins))
        click.echo(
            f"the same {report.steps[0]} steps: killed after {report.killed_after}, it goes on at step {begins} with what "
            "the whole run was given"
        )
