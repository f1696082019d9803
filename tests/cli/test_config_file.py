"""`--config` and `--print-config`: a build as a file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokpress
from tokpress import api
from tokpress.cli.build import command
from tokpress.cli.config_file import read_config, written_config
from tokpress.config import BuildConfig
from tokpress.declare import Declared
from tokpress.errors import UsageError
from tokpress.options import OPTIONS

from .conftest import TEXTS, Cli

# Each option that can be typed, in words that are not the default.
TYPED: dict[str, list[str]] = {
    "format": ["--format", "lines"],
    "text_field": ["--text-field", r"a\.b.c"],
    "separator": ["--separator", r"\n\"--\t"],
    "max_doc_bytes": ["--max-doc-bytes", "2kB"],
    "prompt_field": ["--prompt-field", "q"],
    "completion_field": ["--completion-field", "a"],
    "prompt_separator": ["--prompt-separator", r"\n"],
    "messages_field": ["--messages-field", "chat"],
    "tools_field": ["--tools-field", "functions"],
    "chat_template": ["--chat-template", __file__],
    "date": ["--date", "2026-01-02"],
    "loss": ["--loss", "last"],
    "template": ["--template", __file__],
    "dataset": ["--dataset", "c4:en@v1"],
    "split": ["--split", "validation"],
    "per_turn": ["--per-turn"],
    "mask_thinking": ["--mask-thinking"],
    "mask_tool_calls": ["--mask-tool-calls"],
    "keep_empty_loss": ["--keep-empty-loss"],
    "max_length": ["--max-length", "9"],
    "overlong": ["--overlong", "drop"],
    "val_fraction": ["--val-fraction", "0.00001"],
    "val_docs": ["--val-docs", "0"],
    "split_field": ["--split-field", "part"],
    "val_inputs": ["--val-inputs", "v", "--val-inputs", "w"],
    "split_key": ["--split-key", "id"],
    "split_seed": ["--split-seed", "-3"],
    "engine": ["--engine", "tiktoken"],
    "special_tokens": ["--special-tokens", "parse"],
    "bos": ["--bos"],
    "eos": ["--no-eos"],
    "bos_token": ["--bos-token", "<s>"],
    "eos_token": ["--eos-token", "</s>"],
    "pattern": ["--pattern", r"(?i:'s)|[^\r\n]+"],
    "added_tokens": ["--special-token", "<a=b>=7", "--special-token", "\x7f é=8"],
    "audit_rate": ["--audit-rate", "0.5"],
    "max_rejects": ["--max-rejects", "3%"],
    "check_receipts": ["--check-receipts", "none"],
    "on_bad_record": ["--on-bad-record", "stop"],
    "workers": ["--workers", "3"],
    "memory": ["--memory", "3GiB"],
    "doc_timeout": ["--doc-timeout", "2.5"],
    "pin": ["--pin", "numa"],
    "unit_size": ["--unit-size", "1234567"],
    "shard_size": ["--shard-size", "6MB"],
    "limit": ["--limit", "11"],
    "keep": ["--keep", "id, url"],
    "drop_empty": ["--drop-empty"],
    "profile": ["--profile", "p"],
}
USUAL = ["a", "data/*.jsonl", "--tokenizer", "bytes", "--out", "o"]


def run(words: list[str]) -> None:
    """As `tokpress build` runs it; click keeps a command's first help option for ever: it must be the usual one."""
    command.main(words, standalone_mode=False, help_option_names=["-h", "--help"])


class StoppedError(Exception):
    pass


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """What a command line asks for, as it comes to where the work is done."""
    monkeypatch.chdir(tmp_path)
    found: list[tuple[list[str], str, BuildConfig]] = []

    def note(inputs: Any, out: Any, config: BuildConfig, **_: Any) -> None:
        found.append(([str(path) for path in inputs], str(out), config))
        raise StoppedError

    monkeypatch.setattr(api, "build_store", note)
    monkeypatch.setattr(api, "make_job", note)

    def ask(*words: str) -> tuple[list[str], str, BuildConfig]:
        with pytest.raises(StoppedError):
            run([*words])
        return found.pop()

    return ask


def printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    run([*words, "--print-config"])
    return capsys.readouterr().out


class TestPrinted:
    def test_all_options_are_tried_here(self) -> None:
        assert set(TYPED) == {option.name for option in OPTIONS if option.flag}

    @pytest.mark.parametrize("option", TYPED)
    def test_is_read_as_the_same_build(self, asked: Any, capsys: pytest.CaptureFixture[str], option: str) -> None:
        words = [*USUAL, *TYPED[option]]
        Path("build.toml").write_text(printed(words, capsys))
        expected = asked(*words)
        assert expected != asked(*USUAL)
        assert asked("--config", "build.toml") == expected
        assert asked("--config", "build.toml", "--dry-run") == expected
        assert printed(["--config", "build.toml"], capsys) == Path("build.toml").read_text()

    def test_has_the_defaults_too_and_each_group_as_a_table(self, capsys: pytest.CaptureFixture[str]) -> None:
        found = tomllib.loads(printed([*USUAL, "--workers", "2", "--keep", "id"], capsys))
        assert {name: found.pop(name) for name in ("inputs", "tokenizer", "out")} == {
            "inputs": ["a", "data/*.jsonl"],
            "tokenizer": "bytes",
            "out": "o",
        }
        assert found == {
            "reading": {"text_field": "text", "max_doc_bytes": "256MiB"},
            "supervised": {
                "tools_field": "tools",
                "keep_empty_loss": False,
                "overlong": "truncate",
                **dict.fromkeys(["per_turn", "mask_thinking", "mask_tool_calls"], False),
            },
            "splits": {"split_seed": 0},
            "tokens": {"engine": "auto"},
            "checks": {"audit_rate": 0.001, "max_rejects": "1%", "on_bad_record": "skip", "check_receipts": "sampled"},
            "resources": {"workers": 2, "doc_timeout": 300.0, "pin": "none"},
            "store": {"drop_empty": False, "keep": ["id"], "shard_size": "256MB"},
        }

    def test_needs_what_a_build_needs(self, cli: Cli) -> None:
        result = cli("build", "--print-config", "--tokenizer", "bytes", "--out", "o")
        assert result.code == 2
        assert "Missing argument 'INPUTS...'" in result.err
        assert "'--tokenizer'" in cli("build", "a", "--print-config", "--out", "o").err

    @given(text=st.text(st.characters(exclude_categories=["Cs"])))
    def test_any_text_is_read_back(self, text: str) -> None:
        values = {option.name: None for option in OPTIONS} | {"bos_token": text, "added_tokens": {text: 5}}
        found = tomllib.loads(written_config({"inputs": [text], "tokenizer": text, "out": text, **values}))
        assert found["inputs"] == [text]
        assert found["tokenizer"] == found["out"] == text
        assert found["tokens"].get("bos_token", "") == text
        assert found["tokens"]["added_tokens"] == {text: 5}

    def test_a_name_that_is_no_text_is_refused(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(UsageError, match=r"inputs is .* which no TOML file can hold"):
            printed(["caf\udce9.txt", "--tokenizer", "bytes", "--out", "o"], capsys)


class TestRead:
    @pytest.fixture
    def file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(tmp_path)
        return Path("c.toml")

    def test_makes_a_store(self, cli: Cli, source: Path, tmp_path: Path) -> None:
        (tmp_path / "c.toml").write_text(f'inputs = "{source}"\ntokenizer = "bytes"\nout = "{tmp_path}/store"\n')
        assert cli("build", "--config", tmp_path / "c.toml").code == 0
        store = tokpress.open(tmp_path / "store")
        assert [store.text(i) for i in range(len(TEXTS))] == TEXTS

    def test_flags_win(self, asked: Any) -> None:
        Path("c.toml").write_text(
            'inputs = ["a"]\ntokenizer = "bytes"\nout = "o"\nbos = true\n[resources]\nworkers = 2\nmemory = "1GB"\n'
        )
        inputs, out, config = asked("--config", "c.toml", "--no-bos", "--workers", "7", "b", "--out", "p")
        assert (inputs, out) == (["b"], "p")
        assert config.tokenizer.bos is False
        assert (config.resources.workers, config.resources.memory_bytes) == (7, 10**9)

    @pytest.mark.parametrize("option", [option for option in OPTIONS if option.flag and option.type is bool])
    def test_flags_win_in_both_directions(self, asked: Any, option: Declared) -> None:
        off = f"--no-{option.flag.removeprefix('--')}"
        for written, flag in (("true", off), ("false", option.flag)):
            Path("c.toml").write_text(f"{option.name} = {written}\n")
            assert asked("--config", "c.toml", *USUAL, flag) == asked(*USUAL, flag)
        assert asked(*USUAL, off) != asked(*USUAL, option.flag)

    def test_wherever_the_flag_stands(self, asked: Any) -> None:
        Path("c.toml").write_text("workers = 2\n")
        assert asked(*USUAL, "--config", "c.toml") == asked("--config", "c.toml", *USUAL)
        assert asked("--workers", "3", *USUAL, "--config", "c.toml")[2].resources.workers == 3

    def test_an_option_may_stand_at_the_top_or_in_its_table(self, file: Path) -> None:
        file.write_text('limit = 3\n[supervised]\nmax_length = 5\n[tokens]\nadded_tokens = { "<a>" = 1 }\n')
        assert read_config("c.toml") == {"limit": 3, "max_length": 5, "added_tokens": [("<a>", 1)]}

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("text_feild = 'x'", "c.toml has an unknown option 'text_feild'. Did you mean 'text_field'?"),
            ("text-field = 'x'", "unknown option 'text-field'. Did you mean 'text_field'?"),
            ("[resources]\nworker = 2", "unknown option 'worker'. Did you mean 'workers'?"),
            ("[resource]\nworkers = 2", "unknown option 'resource'. Did you mean 'resources'?"),
            ("batch_bytes = 5", "unknown option 'batch_bytes'"),
            ("overwrite = true", "unknown option 'overwrite'"),
            ("[store]\nworkers = 2", "workers in [store], but it belongs into [resources], or at the top of the file"),
            ("[store]\nout = 'x'", "out in [store], but it belongs at the top of the file"),
            ("limit = 3\n[store]\nlimit = 4", "c.toml has limit twice"),
            ("limit = 3.5", "c.toml: limit is 3.5: Expected `int`, got `float`"),
            ("workers = '3'", "workers is '3': Expected `int`, got `str`"),
            ("drop_empty = 1", "drop_empty is 1: Expected `bool`, got `int`"),
            ("overlong = 'warp'", "overlong is 'warp': Invalid enum value"),
            ("added_tokens = ['a=1']", "Expected `object`, got `array`"),
            ("inputs = [1]", "Expected `str`, got `int`"),
            ("limit = ", "--config c.toml cannot be read: Invalid value"),
        ],
    )
    def test_what_is_wrong_is_said(self, file: Path, text: str, said: str) -> None:
        file.write_text(text)
        with pytest.raises(UsageError) as refused:
            read_config("c.toml")
        assert said in str(refused.value)

    def test_what_is_out_of_bounds_is_said_like_a_flag_s(self, asked: Any) -> None:
        for line, said in (
            ("workers = 0", "'--workers': 0 is not in the range"),
            ("memory = '4XB'", "not a size"),
            ("engine = 'warp'", "'warp' is not one of 'auto'"),
        ):
            Path("c.toml").write_text(line)
            with pytest.raises(click.BadParameter) as refused:
                run([*USUAL, "--config", "c.toml"])
            assert said in refused.value.format_message()

    def test_a_file_that_is_not_there(self, cli: Cli, tmp_path: Path) -> None:
        result = cli("build", "--config", tmp_path / "no.toml")
        assert result.code == 2
        assert f"error: --config {tmp_path}/no.toml cannot be read: " in result.err
