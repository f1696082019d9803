"""The `tokpress` command: one file a verb, loaded when it is used.

In: arguments. Out: text for people on standard error, results on standard output, an exit code (docs in `tokpress --help`).

    build, pack, inspect, view, report, verify, status, copy, publish, export, import_, datasets, diagnose, check_resume,
    bench, train_tokenizer, demo    one a verb
    options     options that several verbs have
    flags       flags of `build`, from the declarations of config.py
    config_file --config FILE.toml and --print-config
    show        what a build says to a terminal or a log
    overwrite   --overwrite says what it deletes, and asks at a terminal
    monitor     the table of workers (--monitor)
    printable   text that cannot change the terminal it is shown on
"""

from __future__ import annotations

import io
import shlex
import signal
import sys
from importlib import import_module
from keyword import iskeyword

import click

from tokpress.arguments import did_you_mean

_VERBS = {  # verb -> what `tokpress --help` says of it; the module has the same name
    "build": "Tokenize files into a store.",
    "pack": "Show what sequences of a length waste; plan best-fit.",
    "inspect": "Show what is in a store.",
    "view": "Show a store in a browser, token by token.",
    "report": "Write what is in a store as one page.",
    "verify": "Check every byte of a store.",
    "status": "Show how far a store is that is being written.",
    "copy": "Copy a store to or from a bucket, verified.",
    "publish": "Put a store on the Hugging Face Hub.",
    "export": "Write a store as another trainer's files.",
    "import": "Adopt another trainer's token files as a store.",
    "datasets": "List the datasets that have short names.",
    "bench": "Measure tokenizers, workers or loaders on your own data.",
    "diagnose": "Show where a training step's time goes.",
    "check-resume": "See whether a trainer goes on with the very next batch.",
    "train-tokenizer": "Make a tokenizer from text.",
    "demo": "All of the above on text this machine already has.",
}
_EPILOG = """\b
Start here:
  tokpress demo
  tokpress build data/*.jsonl.zst --tokenizer tokenizer.json --out tokens
  tokpress inspect tokens

\b
Exit codes: 0 done, 1 failed or damage found, 2 wrong usage,
3 more rejects than --max-rejects, or nothing good, 130 interrupted.
"""


class _Verbs(click.Group):
    """Knows all verbs by name and imports only the one that runs: `--help` answers at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            raise click.UsageError(f"No such command {cmd_name!r}.{did_you_mean(cmd_name, _VERBS)}", ctx)
        command: click.Command = import_module(module_of(cmd_name)).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(_VERBS.items()))


@click.command(cls=_Verbs, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tokpress")
def tokpress() -> None:
    """Tokenize a training corpus once, exactly as the reference tokenizer would; feed every training run from it."""


def module_of(verb: str) -> str:
    """Where a verb lives; `import`, which Python keeps for itself, in `import_`."""
    name = verb.replace("-", "_")
    return f"tokpress.cli.{name}{'_' if iskeyword(name) else ''}"


def main() -> None:
    sys.exit(_exit_code())


def _exit_code() -> int:
    """Runs a command; turns an error into one line and a code."""
    from tokpress import NOT_ON_WINDOWS
    from tokpress.errors import TokpressError

    if sys.platform == "win32":
        return _fail(NOT_ON_WINDOWS, 2)

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stopped by a scheduler: the same as Ctrl-C
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":  # it has few characters
            stream.reconfigure(errors="backslashreplace")
    try:
        return tokpress.main(standalone_mode=False) or 0
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "tokpress"
        return _fail(f"{error.format_message()} See: {command} --help", error.exit_code)
    except click.ClickException as error:
        return _fail(error.format_message(), error.exit_code)
    except TokpressError as error:
        return _fail(str(error), error.exit_code)
    except OSError as error:  # a full disk, a directory that may not be written to
        what = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
        return _fail(f"{what}. Mend that and run the same command again.", 1)
    except (KeyboardInterrupt, click.Abort):
        click.echo(f"interrupted. {_how_to_go_on(sys.argv[1:])}", err=True)
        return 130
    except (MemoryError, ImportError, RuntimeError) as error:  # as Python and the libraries say it, wherever they are
        if (short_of := _short_of(error)) is None:
            raise
        return _fail(
            f"there is too little {short_of} ({error or type(error).__name__}). Allow more, then run it again.", 1
        )


def _short_of(error: Exception) -> str | None:
    """What a limit of the machine, or of `ulimit`, left too little of, if that is what an error is about."""
    text = str(error)
    if isinstance(error, MemoryError) or "failed to map segment" in text or "Cannot allocate memory" in text:
        return "memory (ulimit -v)"
    if "start new thread" in text or "Resource temporarily unavailable" in text:
        return "room for threads and processes (ulimit -u)"
    return None


def _how_to_go_on(words: list[str]) -> str:
    if "-" in words:
        return "What was read from standard input is gone: to begin anew, run the same command with --overwrite."
    again = shlex.join(["tokpress", *(word for word in words if word != "--overwrite")])
    return f"What is finished is kept; go on with the same command:\n  {again}"


def _fail(message: str, exit_code: int) -> int:
    from tokpress.cli.printable import between_words, printable

    lines = [between_words(printable(line)) for line in f"error: {message}".splitlines()]
    told = lines[0].replace("error:", click.style("error:", fg="red", bold=True), 1)
    click.echo("\n".join([told, *lines[1:]]), err=True)
    return exit_code
