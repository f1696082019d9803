"""`tokpress datasets`: the datasets that `tokpress build --dataset` knows by short names."""

from __future__ import annotations

import click

_EPILOG = """
\b
Examples:
  tokpress datasets
  tokpress datasets fineweb
  tokpress datasets --json | jq '.[].repo'
"""


@click.command(epilog=_EPILOG)
@click.argument("word", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON on standard output.")
def command(word: str | None, as_json: bool) -> None:
    """List the datasets that have short names, or those that have WORD in their name or description.

    Any other dataset of the Hub has a name, too: --dataset ORG/NAME:CONFIG.
    """
    import json

    from rich.table import Table

    from tokpress.cli.show import out_console
    from tokpress.sources.presets import PRESETS

    chosen = {
        name: preset
        for name, preset in PRESETS.items()
        if word is None or word.lower() in f"{name} {preset.repo} {preset.about}".lower()
    }
    if as_json:
        click.echo(json.dumps([preset.facts(name) for name, preset in chosen.items()], indent=1))
        return
    table = Table("name", "on the Hub", "configs, the default first", "splits", "field", "what it is", box=None)
    for name, preset in chosen.items():
        configs = ", ".join("any" if config == "*" else config for config in preset.files)
        about = preset.about + ("; terms to accept on its page" if preset.gated else "")
        table.add_row(name, preset.repo, configs, ", ".join(preset.splits), preset.text_field, about)
    out_console().print(table)
