"""What can be typed: frozen here, explained by `--help`, answered at once."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from typing import Any

import click
import pytest

import tokpress as package
from tokpress.cli import module_of, tokpress

from .conftest import Cli

DATASET = ["--dataset", "--split"]
READING = ["--format", "--text-field", "--separator", "--max-doc-bytes"]
SUPERVISED = [
    *("--prompt-field", "--completion-field", "--prompt-separator"),
    *("--messages-field", "--tools-field", "--chat-template", "--date"),
    *("--template", "--loss", "--per-turn", "--no-per-turn", "--mask-thinking", "--no-mask-thinking"),
    *(
        "--mask-tool-calls",
        "--no-mask-tool-calls",
        "--keep-empty-loss",
        "--no-keep-empty-loss",
        "--max-length",
        "--overlong",
    ),
    *("--val-fraction", "--val-docs", "--split-field", "--val-inputs", "--split-key", "--split-seed"),
]
OPTIONS_OF_A_BUILD = [
    *(*READING, *SUPERVISED, "--engine", "--special-tokens"),
    *("--bos", "--no-bos", "--eos", "--no-eos", "--bos-token", "--eos-token", "--pattern", "--special-token"),
    *("--audit-rate", "--max-rejects", "--on-bad-record", "--check-receipts"),
    *("--workers", "--memory", "--doc-timeout", "--pin", "--profile"),
    *("--drop-empty", "--no-drop-empty", "--limit", "--keep", "--unit-size", "--shard-size"),
]
FLAGS = {
    "build": [
        "INPUTS",
        *("--tokenizer", "--out", *DATASET, *OPTIONS_OF_A_BUILD),
        *(
            "--dry-run",
            "--monitor",
            "--events",
            "--share",
            "--executor",
            "--address",
            "--seal",
            "--overwrite",
            "--json",
            "--quiet",
            "--config",
            "--print-config",
        ),
    ],
    "pack": [
        "STORE",
        *("--seq-len", "--method", "--split", "--overlap", "--keep-last", "--long-docs"),
        *("--padding-side", "--truncation-side", "--plot", "--json"),
    ],
    "inspect": ["STORE", "--doc", "--seq", "--seq-len", "--split", "--json"],
    "view": ["STORES", "--run", "--events", "--meter", "--tokenizer", "--port", "--no-open"],
    "report": ["STORE", "--out", "--plots", "--seq-len", "--split"],
    "verify": ["STORE", "--deep", "--deep-docs", "--json"],
    "status": ["STORE", "--json"],
    "copy": ["STORE", "TO", "--read-back", "--no-read-back", "--json"],
    "publish": ["STORE", "TO", "--private", "--public", "--json"],
    "export": [
        *("STORE", "--to", "--for", "--lossy", "--out", "--split", "--seq-len", "--max-length", "--method"),
        *("--overlap", "--keep-last", "--long-docs", "--padding-side", "--truncation-side"),
        *("--dtype", "--merge", "--file-tokens", "--min-files", "--tokenizer-name", "--keep"),
        *("--indices-for", "--index-samples", "--index-run"),
        *("--copy", "--overwrite", "--workers", "--json"),
    ],
    "import": [
        *("PATHS", "--from", "--tokenizer", "--out", "--val", "--eos-token"),
        *("--dtype", "--copy", "--overwrite", "--json"),
    ],
    "datasets": ["WORD", "--json"],
    "bench": [
        *("tokenizer", "INPUTS", "--tokenizer", "--plot", *READING, "--json"),
        *("workers", "INPUTS", "--tokenizer", "--up-to", "--scratch", "--plot"),
        *(flag for flag in (*OPTIONS_OF_A_BUILD, "--json") if flag != "--workers"),
        *("loader", "STORE", "--seq-len", "--method", "--batch-size", "--split", "--seconds", "--plot", "--json"),
    ],
    "diagnose": [
        *("SCRIPT", "--tokenizer", "--inputs", "--step-ms", "--seq-len", "--batch-size", "--workers", "--steps"),
        *(*READING, "--plot", "--json"),
    ],
    "check-resume": ["SCRIPT", "--stop-after", "--keep", "--json"],
    "train-tokenizer": [
        "INPUTS",
        *("--vocab-size", "--out", "--model", "--pattern", "--special-token", "--sample-size", "--overwrite", *READING),
    ],
    "demo": ["--out"],
}


def command_of(verb: str) -> Any:
    return import_module(module_of(verb)).command


def flags(command: click.Command) -> list[str]:
    found: list[str] = []
    for name, inner in command.commands.items() if isinstance(command, click.Group) else []:
        found += [name, *flags(inner)]
    for parameter in command.params:
        found += [str(parameter.name).upper()] if isinstance(parameter, click.Argument) else parameter.opts
        found += parameter.secondary_opts
    return found


class TestFrozen:
    """A flag that is gone breaks scripts; a new one belongs here, too."""

    def test_the_verbs(self) -> None:
        assert tokpress.list_commands(click.Context(tokpress)) == list(FLAGS)

    @pytest.mark.parametrize("verb", FLAGS)
    def test_the_flags(self, verb: str) -> None:
        assert flags(command_of(verb)) == FLAGS[verb]


class TestHelp:
    def test_names_every_verb_and_every_exit_code(self, cli: Cli) -> None:
        result = cli("--help")
        assert result.code == 0
        assert all(f"\n  {verb}  " in result.out for verb in FLAGS)
        assert "Exit codes: 0 done, 1 failed" in result.out

    @pytest.mark.parametrize("verb", FLAGS)
    def test_of_a_verb_explains_each_flag_and_shows_examples(self, cli: Cli, verb: str) -> None:
        result = cli(verb, "--help")
        assert result.code == 0
        inner = "".join(cli(verb, name, "--help").out for name in ("tokenizer", "workers", "loader") if verb == "bench")
        assert all(flag in result.out + inner for flag in FLAGS[verb])
        explained, _, examples = result.out.partition("\n  Examples:\n")
        assert examples
        assert all("tokpress " + verb in line for line in examples.splitlines())
        assert max(map(len, explained.splitlines())) <= 80

    @pytest.mark.parametrize("verb", FLAGS)
    def test_examples_use_flags_that_exist(self, cli: Cli, verb: str) -> None:
        examples = cli(verb, "--help").out.partition("Examples:\n")[2].splitlines()
        words = " ".join(
            line.partition(" -- ")[0] for line in examples
        ).split()  # after -- stands a script of the user's
        assert {word for word in words if word.startswith("--")} <= set(FLAGS[verb])

    def test_has_a_short_form(self, cli: Cli) -> None:
        assert cli("build", "-h").out == cli("build", "--help").out

    def test_without_arguments_is_shown_as_wrong_usage(self, cli: Cli) -> None:
        result = cli()
        assert result.code == 2
        assert "Commands:" in result.err
        assert result.out == ""

    def test_version(self, cli: Cli) -> None:
        result = cli("--version")
        assert result.code == 0
        assert package.__version__ in result.out

    @pytest.mark.parametrize(
        "arguments",
        [
            ["--help"],
            ["build", "--help"],
            ["verify", "--help"],
            ["inspect", "--help"],
            ["pack", "--help"],
            ["export", "--help"],
            ["import", "--help"],
            ["diagnose", "--help"],
        ],
    )
    def test_loads_nothing_heavy(self, arguments: list[str]) -> None:
        code = (
            "import sys, json, atexit; sys.argv[0] = 'tokpress'\n"
            "atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))\n"
            "from tokpress.cli import main; main()"
        )
        result = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
        loaded = set(json.loads(result.stderr))
        assert "Usage: tokpress" in result.stdout
        assert {"click", "tokpress.cli"} <= loaded
        assert loaded.isdisjoint({"numpy", "pyarrow", "rich", "tokenizers", "gigatoken", "tokpress.store", "asyncio"})
