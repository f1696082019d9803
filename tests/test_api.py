"""The Python front door: few names, loaded when used, and the same stores as the command line's."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import stored

import tokpress
from tokpress import api
from tokpress.cli.build import command as build_command
from tokpress.cli.export import command as export_command
from tokpress.cli.import_ import command as import_command
from tokpress.cli.pack import command as pack_command
from tokpress.cli.train_tokenizer import command as train_command
from tokpress.config import BuildConfig
from tokpress.errors import StoreError, TooManyRejects, UsageError
from tokpress.options import BuildOptions, build_config
from tokpress.packing import PackingOptions
from tokpress.storage import open_storage

# Every option of `tokpress build`, as it is typed and as it is passed; none of them is the default.
TYPED: dict[str, tuple[list[str], dict[str, Any]]] = {
    "dataset": (["--dataset", "c4:en"], {"dataset": "c4:en"}),
    "split": (["--split", "test"], {"split": "test"}),
    "tokenizer": (["--tokenizer", "gpt2"], {"tokenizer": "gpt2"}),
    "out": (["--out", "other"], {"out": "other"}),
    "format": (["--format", "lines"], {"format": "lines"}),
    "text_field": (["--text-field", "body"], {"text_field": "body"}),
    "separator": (["--separator", r"\n--\t"], {"separator": "\n--\t"}),
    "max_doc_bytes": (["--max-doc-bytes", "2kB"], {"max_doc_bytes": 2000}),
    "prompt_field": (["--prompt-field", "q"], {"prompt_field": "q"}),
    "completion_field": (["--completion-field", "a"], {"completion_field": "a"}),
    "prompt_separator": (["--prompt-separator", r"\n"], {"prompt_separator": "\n"}),
    "messages_field": (["--messages-field", "chat"], {"messages_field": "chat"}),
    "tools_field": (["--tools-field", "functions"], {"tools_field": "functions"}),
    "chat_template": (["--chat-template", __file__], {"chat_template": __file__}),
    "date": (["--date", "2026-01-02"], {"date": "2026-01-02"}),
    "loss": (["--loss", "last"], {"loss": "last"}),
    "template": (["--template", __file__], {"template": __file__}),
    "per_turn": (["--per-turn"], {"per_turn": True}),
    "mask_thinking": (["--mask-thinking"], {"mask_thinking": True}),
    "mask_tool_calls": (["--mask-tool-calls"], {"mask_tool_calls": True}),
    "keep_empty_loss": (["--keep-empty-loss"], {"keep_empty_loss": True}),
    "max_length": (["--max-length", "9"], {"max_length": 9}),
    "overlong": (["--overlong", "drop"], {"overlong": "drop"}),
    "val_fraction": (["--val-fraction", "0.25"], {"val_fraction": 0.25}),
    "val_docs": (["--val-docs", "7"], {"val_docs": 7}),
    "split_field": (["--split-field", "part"], {"split_field": "part"}),
    "val_inputs": (["--val-inputs", "v", "--val-inputs", "w"], {"val_inputs": ["v", "w"]}),
    "split_key": (["--split-key", "id"], {"split_key": "id"}),
    "split_seed": (["--split-seed", "3"], {"split_seed": 3}),
    "engine": (["--engine", "tiktoken"], {"engine": "tiktoken"}),
    "special_tokens": (["--special-tokens", "parse"], {"special_tokens": "parse"}),
    "bos": (["--bos"], {"bos": True}),
    "eos": (["--no-eos"], {"eos": False}),
    "bos_token": (["--bos-token", "<s>"], {"bos_token": "<s>"}),
    "eos_token": (["--eos-token", "</s>"], {"eos_token": "</s>"}),
    "pattern": (["--pattern", "llama3"], {"pattern": "llama3"}),
    "added_tokens": (["--special-token", "<a=b>=7", "--special-token", "c=8"], {"added_tokens": {"<a=b>": 7, "c": 8}}),
    "audit_rate": (["--audit-rate", "0.5"], {"audit_rate": 0.5}),
    "max_rejects": (["--max-rejects", "3%"], {"max_rejects": "3%"}),
    "check_receipts": (["--check-receipts", "none"], {"check_receipts": "none"}),
    "on_bad_record": (["--on-bad-record", "stop"], {"on_bad_record": "stop"}),
    "workers": (["--workers", "3"], {"workers": 3}),
    "memory": (["--memory", "3GiB"], {"memory": 3 * 2**30}),
    "doc_timeout": (["--doc-timeout", "2.5"], {"doc_timeout": 2.5}),
    "pin": (["--pin", "numa"], {"pin": "numa"}),
    "unit_size": (["--unit-size", "5MB"], {"unit_size": 5_000_000}),
    "shard_size": (["--shard-size", "6MB"], {"shard_size": 6_000_000}),
    "limit": (["--limit", "11"], {"limit": 11}),
    "keep": (["--keep", "id, url"], {"keep": ["id", "url"]}),
    "drop_empty": (["--drop-empty"], {"drop_empty": True}),
    "profile": (["--profile", "p"], {"profile": "p"}),
    "overwrite": (["--overwrite"], {"overwrite": True}),
}
OF_THE_COMMAND = {
    "inputs",
    "as_json",
    "quiet",
    "dry_run",
    "monitor",
    "events",
    "share",
    "seal",
    "executor",
    "address",
    "config",
    "print_config",
}  # what it shows, and how

SOURCE = [
    *({"meta": {"body": text}} for text in ("one", "", "zwei<|endoftext|>", "three " * 50)),
    {"meta": {"body": 5}},
]


class TestNames:
    def test_are_these(self) -> None:
        classes = [
            "LiveDataset",
            "Loader",
            "ParallelTokenizer",
            "PretokenizedDataset",
            "StepMeter",
            "Store",
            "TokpressError",
        ]
        functions = [
            "build",
            "build_share",
            "copy",
            "dry_run",
            "events",
            "export",
            "import_tokens",
            "load_pretokenized_dataset",
            "make_dataloader",
            "open",
        ]
        functions += ["pack", "parallel_tokenize", "publish", "read_events", "train_tokenizer", "verify", "view"]
        assert tokpress.__all__ == [*classes, "__version__", *functions]
        assert dir(tokpress) == tokpress.__all__

    def test_all_lead_somewhere(self) -> None:
        for name in tokpress.__all__:
            assert getattr(tokpress, name) is not None

    def test_others_are_an_attribute_error(self) -> None:
        with pytest.raises(AttributeError, match="no attribute 'tokenise'"):
            tokpress.tokenise  # noqa: B018

    def test_importing_costs_nothing(self) -> None:
        code = "import sys, tokpress; tokpress.__version__; print(json.dumps(sorted(sys.modules)))"
        loaded = json.loads(subprocess.check_output([sys.executable, "-c", f"import json; {code}"]))
        assert "tokpress" in loaded
        heavy = {"numpy", "pyarrow", "msgspec", "rich", "click", "tokenizers", "sentencepiece", "tiktoken", "gigatoken"}
        heavy |= {"torch"}
        assert heavy.isdisjoint(loaded)
        assert not [name for name in loaded if name.startswith("tokpress.")]

    def test_errors_are_one_tree(self) -> None:
        for error in (UsageError, StoreError, TooManyRejects):
            assert issubclass(error, tokpress.TokpressError)


def typed_as(command: Any, words: list[str]) -> dict[str, Any]:
    """What a command makes of these words. It keeps its first help option for ever: that must be the usual one."""
    params: dict[str, Any] = command.make_context("x", words, help_option_names=["-h", "--help"]).params
    return params


def options_of(command: Any) -> set[str]:
    return {parameter.name for parameter in command.params}


class TestSameOptions:
    def test_build_takes_what_the_command_takes(self) -> None:
        keywords = set(inspect.signature(tokpress.build).parameters) - {"options"} | set(BuildOptions.__annotations__)
        assert keywords - options_of(build_command) == {"batch_bytes", "progress", "reporter"}
        of_the_command = {"as_json", "quiet", "dry_run", "monitor", "events", "config", "print_config", "share"}
        assert options_of(build_command) - keywords == of_the_command

    def test_each_of_them_is_known(self) -> None:
        for name in BuildOptions.__annotations__:
            values: Any = {"added_tokens": {}, "keep": (), "on_bad_record": "stop"}
            build_config("bytes", {name: values.get(name)})  # type: ignore[misc]

    def test_an_unknown_one_is_an_error(self) -> None:
        with pytest.raises(TypeError, match="unknown option 'worker'"):
            tokpress.build("a.jsonl", tokenizer="bytes", out="x", worker=2)  # type: ignore[call-arg]

    def test_what_the_command_leaves_out_is_what_build_leaves_out(self) -> None:
        typed = typed_as(build_command, ["input", "--tokenizer", "bytes", "--out", "o"])
        flat: Any = {name: typed[name] for name in BuildOptions.__annotations__ if name in typed}
        assert build_config("bytes", flat | {"added_tokens": dict(flat["added_tokens"])}) == build_config("bytes", {})

    def test_each_can_be_typed_and_passed(self) -> None:
        """So that none is forgotten below."""
        assert set(TYPED) == options_of(build_command) - OF_THE_COMMAND

    @pytest.mark.parametrize("option", TYPED)
    def test_typed_and_passed_are_the_same_build(self, monkeypatch: pytest.MonkeyPatch, option: str) -> None:
        """Whatever an option is called on the way, it comes to where the work is done."""
        asked: list[tuple[list[str], str, BuildConfig, bool]] = []

        def note(inputs: Any, out: Any, config: BuildConfig, *, overwrite: bool = False, **_: Any) -> None:
            asked.append(([str(path) for path in inputs], open_storage(out).url, config, overwrite))
            raise UsageError("so far, and no further")

        monkeypatch.setattr(api, "build_store", note)
        monkeypatch.setattr(api, "make_job", note)
        typed, passed = TYPED[option]
        usual: dict[str, Any] = {"tokenizer": "bytes", "out": "o"}
        words = ["a", "b", "--tokenizer", "bytes", "--out", "o"]
        for run in (
            lambda: build_command.main([*words, *typed], standalone_mode=False),
            lambda: build_command.main([*words, *typed, "--dry-run"], standalone_mode=False),
            lambda: tokpress.build(["a", "b"], **(usual | passed)),
            lambda: tokpress.build(["a", "b"], **usual),
        ):
            with pytest.raises(UsageError, match="so far"):
                run()
        command, dry, function, default = asked
        assert command == function != default
        if option != "overwrite":  # what is only measured replaces nothing
            assert dry == function

    def test_train_tokenizer_takes_what_the_command_takes(self) -> None:
        assert set(inspect.signature(tokpress.train_tokenizer).parameters) == options_of(train_command)

    def test_pack_takes_what_the_command_takes(self) -> None:
        keywords = set(inspect.signature(tokpress.pack).parameters) - {"options"} | set(PackingOptions.__annotations__)
        assert keywords - options_of(pack_command) == {"progress"}
        assert options_of(pack_command) - keywords == {"as_json", "plot"}

    def test_export_takes_what_the_command_takes(self) -> None:
        keywords = set(inspect.signature(tokpress.export).parameters) - {"packing"} | set(
            PackingOptions.__annotations__
        )
        assert keywords - options_of(export_command) == {"progress"}
        assert options_of(export_command) - keywords == {"as_json"}

    def test_import_tokens_takes_what_the_command_takes(self) -> None:
        keywords = set(inspect.signature(tokpress.import_tokens).parameters)
        assert keywords - options_of(import_command) == {"progress"}
        assert options_of(import_command) - keywords == {"as_json"}

    @pytest.mark.parametrize(
        ("command", "required", "function"),
        [
            (export_command, ["--out", "o"], tokpress.export),
            (import_command, ["--from", "dolma", "--tokenizer", "t", "--out", "o"], tokpress.import_tokens),
            (build_command, ["--tokenizer", "t", "--out", "o"], tokpress.build),
            (pack_command, ["--seq-len", "10"], tokpress.pack),
            (train_command, ["--vocab-size", "300", "--out", "o"], tokpress.train_tokenizer),
        ],
    )
    def test_the_defaults_are_the_same(self, command: Any, required: list[str], function: Any) -> None:
        typed = typed_as(command, ["input", *required])
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.default is not parameter.empty and name in typed and name != "inputs":
                assert (typed[name] or None) == (parameter.default or None), name


class TestSameStores:
    @pytest.fixture
    def source(self, tmp_path: Path) -> Path:
        path = tmp_path / "a.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in SOURCE))
        return path

    @pytest.mark.parametrize(
        ("typed", "passed"),
        [
            ([], {}),
            (
                ["--no-eos", "--bos", "--bos-token", "<|endoftext|>"],
                {"eos": False, "bos": True, "bos_token": "<|endoftext|>"},
            ),
            (["--special-tokens", "parse"], {"special_tokens": "parse"}),
            (["--shard-size", "1kB", "--unit-size", "100"], {"shard_size": "1kB", "unit_size": 100}),
            (["--max-doc-bytes", "100", "--max-rejects", "3"], {"max_doc_bytes": 100, "max_rejects": "3"}),
            (["--engine", "huggingface", "--workers", "1"], {"engine": "huggingface", "workers": 1}),
            (["--audit-rate", "1"], {"audit_rate": 1.0}),
            (["--eos-token", "<|endoftext|>"], {"eos_token": "<|endoftext|>"}),
            (["--max-length", "3", "--overlong", "split"], {"max_length": 3, "overlong": "split"}),
            (["--val-docs", "2", "--split-seed", "7"], {"val_docs": 2, "split_seed": 7}),
            (["--val-fraction", "0.5", "--split-key", "meta.body"], {"val_fraction": 0.5, "split_key": "meta.body"}),
        ],
    )
    def test_from_the_same_options(
        self, source: Path, tmp_path: Path, bpe: Path, typed: list[str], passed: dict[str, Any]
    ) -> None:
        arguments = [str(source), "--tokenizer", str(bpe), "--out", str(tmp_path / "cli"), "--text-field", "meta.body"]
        result = CliRunner().invoke(build_command, [*arguments, *typed])
        assert result.exception is None, result.output
        store = tokpress.build(source, tokenizer=bpe, out=tmp_path / "api", text_field="meta.body", **passed)
        assert stored(tmp_path / "cli") == stored(store.path)

    def test_from_separated_text(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("one\n\ntwo\n\nthree")
        arguments = [
            str(tmp_path / "a.txt"),
            "--separator",
            r"\n\n",
            "--tokenizer",
            "bytes",
            "--out",
            str(tmp_path / "cli"),
        ]
        assert CliRunner().invoke(build_command, arguments).exception is None
        store = tokpress.build(tmp_path / "a.txt", separator="\n\n", tokenizer="bytes", out=tmp_path / "api")
        assert [store.text(i) for i in range(3)] == ["one", "two", "three"]
        assert stored(tmp_path / "cli") == stored(store.path)

    def test_from_one_input_or_several(self, source: Path, tmp_path: Path) -> None:
        options: dict[str, Any] = {"tokenizer": "bytes", "text_field": "meta.body"}
        one = tokpress.build(source, out=tmp_path / "1", **options)
        several = tokpress.build([str(source), source], out=tmp_path / "2", **options)  # each file once
        assert stored(one.path) == stored(several.path)

    def test_a_build_returns_the_store_that_open_opens(self, source: Path, tmp_path: Path) -> None:
        built = tokpress.build(source, tokenizer="bytes", out=tmp_path / "store", text_field="meta.body")
        opened = tokpress.open(tmp_path / "store")
        assert built.manifest == opened.manifest
        assert [doc.tolist() for doc in built] == [doc.tolist() for doc in opened]
        assert isinstance(built, tokpress.Store)


class TestChecks:
    @pytest.fixture
    def source(self, tmp_path: Path) -> Path:
        path = tmp_path / "a.jsonl"
        path.write_text('{"text": "some words"}\n' * 30)
        return path

    def test_verify_finds_what_the_command_finds(self, source: Path, tmp_path: Path) -> None:
        out = tmp_path / "store"
        tokpress.build(source, tokenizer="bytes", out=out)
        report = tokpress.verify(out, deep=True)
        assert report.ok
        assert report.reencoded_docs > 0
        shard = next((out / "shards").glob("*.bin"))
        shard.write_bytes(b"x" + shard.read_bytes()[1:])
        [problem] = tokpress.verify(out).problems
        assert problem.file == f"shards/{shard.name}"

    def test_a_dry_run_writes_nothing(self, source: Path, tmp_path: Path) -> None:
        prepared, projection = tokpress.dry_run(source, tokenizer="bytes", out=tmp_path / "store")
        assert prepared.info.vocab_size == 257
        assert projection.tokens > 0
        assert not (tmp_path / "store").exists()
