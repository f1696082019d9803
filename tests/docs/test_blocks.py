"""Every code block of the documentation runs."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

import tokpress
from tokpress.cli import main
from tokpress.cli import tokpress as command_line
from tokpress.run.event_log import EventLog

from .blocks import NOT_RUN, NOT_RUN_PYTHON, Block, all_blocks, make_scene, reason

BLOCKS = all_blocks()
PYTHON = [  # pages of trainers need these trainers: tests/compat/test_pages.py runs them whole, where they are installed
    block for block in BLOCKS if block.language == "python" and not block.page.startswith("docs/integrations/")
]
COMMANDS = [
    pytest.param(line.strip(), id=f"{block}: {line.strip()[:60]}")
    for block in BLOCKS
    if block.language == "bash"
    for line in block.text.splitlines()
    if line.strip() and not line.startswith("#")
]


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory, bpe: Path) -> Path:
    """Made once: the files, a store, its plan, and what else the blocks read."""
    import datasets
    import sentencepiece

    directory = tmp_path_factory.mktemp("docs")
    sample = [f"Record {i}. some words of text and a question about it" for i in range(500)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sample),
        model_prefix=str(directory / "made"),
        vocab_size=60,
        minloglevel=2,
        hard_vocab_limit=False,
    )
    make_scene(directory, bpe, (directory / "made.model").read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        build = {"tokenizer": "tokenizer.json", "keep": ["id", "url"]}
        tokpress.build("data/*.jsonl", out="tokens", reporter=tokpress.events.Quiet(), **build)  # type: ignore[arg-type]
        tokpress.build(
            "qa.jsonl", out="qa-tokens", tokenizer="tokenizer.json", prompt_field="question", completion_field="answer"
        )
        shutil.copytree("tokens", "web-tokens")
        shutil.copytree("qa-tokens", "chats")
        for length in (512, 2048, 8192):
            tokpress.pack("tokens", seq_len=length, method="bestfit")
        tokpress.export("tokens", to="megatron", out="mt", merge=True)
        for file in Path("mt").iterdir():
            if file.stem == "train":
                shutil.copy(file, f"corpus_text_document{file.suffix}")
        tokpress.export("qa-tokens", to="npy", max_length=64, out="arrays")
        tokpress.export("tokens", to="parquet", out="pq")
        shutil.copy("tokenizer.json", "my-tokenizer.json")
        datasets.Dataset.from_dict({"text": ["a text", "another text"]}).save_to_disk("saved")
        with EventLog("events.jsonl") as log:
            tokpress.build("a.jsonl", out="other", tokenizer="bytes", reporter=log)
    return directory


@pytest.fixture
def scene(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(prepared, tmp_path / "scene")
    monkeypatch.chdir(tmp_path / "scene")
    return tmp_path / "scene"


def _words(line: str) -> list[str]:
    """Of the part that calls tokpress, without what the shell does with its output."""
    words = shlex.split(line.partition(" | ")[2] if line.split()[0] == "zstdcat" else line, comments=True)
    for end in ("|", ">", "&"):
        words = words[: words.index(end)] if end in words else words
    return words[1:]


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_runs(line: str, scene: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "tokpress" not in line:
        assert reason(line, NOT_RUN), f"say in NOT_RUN why it is not run, or run it: {line}"
        return
    if re.match(r"pip |make |python |torchrun |pretrain", line):
        assert reason(line, NOT_RUN), line
        return
    words = _words(line)
    _parse(words)
    if reason(line, NOT_RUN):
        return
    _clear_out(words)
    if line.startswith("zstdcat"):
        piped = f"zstd -dc huge.jsonl.zst | {shlex.join([sys.executable, '-m', 'tokpress', *words])}"
        assert subprocess.run(piped, shell=True, check=False).returncode == 0
        return
    monkeypatch.setattr(sys, "argv", ["tokpress", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0


def _parse(words: list[str]) -> None:
    """Each option and argument is one that there is."""
    command: click.Command = command_line
    context = click.Context(command, info_name="tokpress")
    while isinstance(command, click.Group):
        inner = command.get_command(context, words[0])
        assert inner is not None
        command, words = inner, words[1:]
    options = {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | {"--help"}
    given = [word.partition("=")[0] for word in words[: words.index("--") if "--" in words else None]]
    assert {word for word in given if re.match(r"--?[a-z]", word)} <= options


def _clear_out(words: list[str]) -> None:
    if "--out" in words:
        _remove(words[words.index("--out") + 1])


def _remove(name: str) -> None:
    path = Path(name)
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


NAMES = {
    "rank": 0,
    "world_size": 1,
    "batch_size": 8,
    "seq_len": 512,
    "texts": ["a text", "another text"],
    "checkpoint": {},
}


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")  # for brevity
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torch's own
@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_runs(block: Block, scene: Path) -> None:
    tree = ast.parse(block.text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "tokpress":
            assert hasattr(tokpress, node.attr) or node.attr in ("live", "resuming", "metering")
    if reason(block.text, NOT_RUN_PYTHON):
        return
    import numpy as np

    data = tokpress.PretokenizedDataset("tokens", seq_len=512)
    loader = tokpress.Loader(data, batch_size=2)
    names: dict[str, Any] = {**NAMES, "tokpress": tokpress, "np": np, "store": tokpress.open("tokens"), "data": data}
    names |= {"loader": loader, "web": data, "code": tokpress.PretokenizedDataset("web-tokens", seq_len=512)}
    for statement in tree.body:
        for out in re.findall(r"\bout='([\w.-]+)'", ast.unparse(statement)):
            if "build_share" not in block.text or statement is tree.body[0]:  # its parts go on with each other's
                _remove(out)
        code = compile(ast.Module([_bounded(statement)], []), str(block), "exec")
        exec(code, names)


def _bounded(statement: ast.stmt) -> ast.stmt:
    """A loop that may have no end is left after three turns."""
    if isinstance(statement, ast.For):
        statement.iter = ast.parse(
            f"__import__('itertools').islice({ast.unparse(statement.iter)}, 3)", mode="eval"
        ).body
        ast.fix_missing_locations(statement)
    return statement


def test_reasons_are_all_needed() -> None:
    texts = [str(parameter.values[0]) for parameter in COMMANDS] + [block.text for block in PYTHON]
    for pattern in NOT_RUN_PYTHON:
        assert any(re.search(pattern, text) for text in texts), pattern
