"""The options of `tokpress build` for supervised data and splits: a section of its help each."""

from __future__ import annotations

from typing import get_args

import click

from tokpress.cli.options import Function
from tokpress.config import LossChoice, OverlongChoice, TemplateConfig


class Supervised(click.Option):
    heading = "Supervised data"


class Splits(click.Option):
    heading = "Splits"


_TEMPLATES = [
    click.option(
        "--prompt-field",
        cls=Supervised,
        metavar="FIELD",
        help="Where the prompt stands. Only the completion is learned.",
    ),
    click.option("--completion-field", cls=Supervised, metavar="FIELD", help="Where the completion stands."),
    click.option(
        "--prompt-separator", cls=Supervised, default="", metavar="TEXT", help="Between the two; belongs to the prompt."
    ),
    click.option(
        "--messages-field",
        cls=Supervised,
        metavar="FIELD",
        help="Where a chat's messages stand; rendered with the tokenizer's chat template. BOS and EOS are the template's.",
    ),
    click.option(
        "--tools-field",
        cls=Supervised,
        default=TemplateConfig().tools_field,
        show_default=True,
        help="Its tools, if any.",
    ),
    click.option(
        "--chat-template",
        cls=Supervised,
        type=click.Path(dir_okay=False),
        help="Another chat template than the tokenizer's.",
    ),
    click.option("--date", cls=Supervised, metavar="YYYY-MM-DD", help="What a chat template is told that today is."),
    click.option(
        "--loss",
        cls=Supervised,
        type=click.Choice(get_args(LossChoice)),
        help="Chats: what is learned: all of it, what the assistant says, or its last answer. Default: assistant.",
    ),
    click.option(
        "--template",
        cls=Supervised,
        type=click.Path(dir_okay=False),
        help="Any other record: a Jinja2 template, with {% loss %}...{% endloss %} around what is learned.",
    ),
    click.option(
        "--keep-empty-loss",
        cls=Supervised,
        is_flag=True,
        help="Keep records of which nothing is learned; else rejects.",
    ),
    click.option(
        "--max-length",
        cls=Supervised,
        type=click.IntRange(min=1),
        metavar="N",
        help="Tokens of a document, BOS and EOS too.",
    ),
    click.option(
        "--overlong",
        cls=Supervised,
        type=click.Choice(get_args(OverlongChoice)),
        default=TemplateConfig().overlong,
        show_default=True,
        help="A longer record: cut it, leave it out, or make several documents of it.",
    ),
]
_SPLITS = [
    click.option(
        "--val-fraction", cls=Splits, type=click.FloatRange(0, 1), metavar="SHARE", help="This share of records is val."
    ),
    click.option("--val-docs", cls=Splits, type=click.IntRange(min=0), metavar="N", help="So many records are val."),
    click.option("--split-field", cls=Splits, metavar="FIELD", help="Its value names the split."),
    click.option(
        "--val-inputs",
        cls=Splits,
        multiple=True,
        metavar="INPUT",
        help="Files, directories or globs of val, repeatable.",
    ),
    click.option(
        "--split-key",
        cls=Splits,
        metavar="FIELD",
        help="Records with the same value here stay together. Default: by file and position.",
    ),
    click.option(
        "--split-seed", cls=Splits, type=int, default=0, show_default=True, help="Another seed, another choice."
    ),
]


def supervised_options(function: Function) -> Function:
    for option in reversed([*_TEMPLATES, *_SPLITS]):
        function = option(function)
    return function


class BuildCommand(click.Command):
    """Shows them under headings of their own."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading in ("Options", Supervised.heading, Splits.heading):
            shown = [option for option in self.get_params(ctx) if getattr(option, "heading", "Options") == heading]
            records = [option.get_help_record(ctx) for option in shown]
            with formatter.section(heading):
                formatter.write_dl([record for record in records if record is not None])
