"""The pages of docs/integrations: their commands and code are run as they stand, where the trainer is installed."""

from __future__ import annotations

import json
import os
import re
import shlex
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tokpress

pytestmark = pytest.mark.filterwarnings("ignore")
PAGES = Path(__file__).parents[2] / "docs" / "integrations"
NEEDS = {  # a page, and what it cannot do without
    "accelerate": ["accelerate", "transformers"],
    "axolotl": [],
    "hf-trainer": ["transformers", "datasets"],
    "jax": ["grain"],
    "levanter": [],
    "lightning": ["lightning", "transformers"],
    "litgpt": ["litgpt", "litdata"],
    "llmc": [],
    "megatron": ["megatron.core"],
    "nanogpt": [],
    "nanotron": ["datatrove"],
    "olmo-core": ["olmo_core"],
    "torchtitan": ["torchtitan"],
    "trackers": ["tensorboard", "transformers"],
    "trl": ["trl", "datasets"],
}
IN_TRAINERS = {"litgpt", "olmo-core", "torchtitan"}


def test_every_page_is_run() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} - {"README"} == set(NEEDS)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`tokens` and `chats`, as the pages call them."""
    directory = tmp_path_factory.mktemp("pages")
    with (directory / "texts.jsonl").open("w") as file:
        file.writelines(json.dumps({"text": f"document {i} says {i * i} " * (1 + i % 9)}) + "\n" for i in range(300))
    with (directory / "chats.jsonl").open("w") as file:
        for i in range(12):
            turns = [{"role": role, "content": f"{role} {i} " * (1 + i % 3)} for role in ("user", "assistant")] * 2
            file.write(json.dumps({"messages": turns}) + "\n")
    (directory / "chat.jinja").write_text(
        "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
    )
    tokpress.build(directory / "texts.jsonl", tokenizer="bytes", val_fraction=0.2, out=directory / "tokens")
    chat: dict[str, Any] = {"messages_field": "messages", "chat_template": directory / "chat.jinja"}
    tokpress.build(directory / "chats.jsonl", tokenizer="bytes", out=directory / "chats", **chat)
    return directory


def tiny() -> dict[str, Any]:
    """What a page takes for granted: a model and its tokenizer."""
    if find_spec("transformers") is None:
        return {}
    transformers, tokenizers = import_module("transformers"), import_module("tokenizers")
    size = {"n_positions": 512, "n_embd": 8, "n_layer": 1, "n_head": 1}
    config = transformers.GPT2Config(vocab_size=257, bos_token_id=256, eos_token_id=256, **size)
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<end>": 256}, unk_token="<end>"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<end>", eos_token="<end>")
    return {"model": transformers.GPT2LMHeadModel(config), "tokenizer": tokenizer}


def run(page: str) -> dict[str, Any]:
    """Its blocks, one after the other; the names that they leave."""
    from tokpress.cli import tokpress as command

    names: dict[str, Any] = tiny()
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```", (PAGES / f"{page}.md").read_text(), re.M | re.S):
        if language == "bash":
            for line in filter(None, block.splitlines()):
                words = shlex.split(line)
                assert words[0] == "tokpress"
                result = CliRunner().invoke(command, words[1:], catch_exceptions=False)
                assert result.exit_code == 0, result.output
        elif language == "python":
            exec(compile(block, f"{page}.md", "exec"), names)
    return names


@pytest.mark.parametrize("page", NEEDS)
def test_what_a_page_says_works(page: str, stores: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = "compat" if page not in IN_TRAINERS else "trainers"
    here = "" if "TOKPRESS_COMPAT" not in os.environ else "trainers" if "TOKPRESS_TRAINERS" in os.environ else "compat"
    if here != make and (here or NEEDS[page]):
        pytest.skip(f"`make {make}` runs it")
    for name in NEEDS[page]:
        import_module(name)
    for name in ("tokens", "chats"):
        (tmp_path / name).symlink_to(stores / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATA_OPTIMIZER_CACHE_FOLDER", str(tmp_path / "cache"))
    names = run(page)
    tokens = tokpress.open(tmp_path / "tokens", "train")
    stream = tokens.tokens(0, tokens.num_tokens).tolist()
    match page:
        case "hf-trainer":
            chats = tokpress.open(tmp_path / "chats")
            assert int((names["batch"]["labels"] != -100).sum()) == chats.manifest.splits["train"].loss_tokens
            assert names["trainer"].state.global_step == 6
        case "trl":
            assert names["trainer"].state.global_step == 2
        case "jax":
            assert names["batch"]["input_ids"].shape == (4, 64)
        case "torchtitan":
            assert names["inputs"]["input"][:, 1:].tolist() == names["labels"][:, :-1].tolist()
        case "nanogpt":
            assert names["data"].tolist() == stream
        case "llmc":
            assert sorted(names["tokens"].tolist()) == sorted(stream)
        case "megatron":
            assert names["first"].tolist() == tokens.doc(0).tolist()
        case "nanotron":
            assert names["first"].tolist() == stream[:65]
        case "litgpt":
            assert tuple(names["batch"].shape) == (2, 65)
        case "olmo-core":
            assert len(names["rows"]) == tokpress.open(tmp_path / "chats").num_docs
            assert len(names["dataset"]) > 0
