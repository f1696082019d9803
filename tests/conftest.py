"""What the tests share: texts that are hard on tokenizers and readers, and a small trained tokenizer."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

import tokpress
from tokpress.run import coordinator
from tokpress.storage.local import LocalStorage

settings.register_profile("tokpress", deadline=None)  # no test is about how long something takes
settings.load_profile("tokpress")

# A shell ignores SIGINT for what it starts in the background, and so would the commands that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Thousands of tiny stores are built here: a process for each would take minutes. What runs in a process of its own, as the
# command line does, has its workers in processes.
coordinator.INSIDE_BYTES = coordinator.SMALL_BYTES

HARD_TEXTS = [
    "",
    " ",
    "Hello, world.",
    "CRLF\r\nline\r\n",
    "tabs\tand\nnewlines\n\n",
    "nul \0 inside",
    "é e\u0301 ﬁ ½ Ⅷ ｆｕｌｌ",
    "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪",
    "你好，世界。こんにちは 안녕하세요",
    "\u202eabc\u202c \u200b\u200d \u00a0 \u3000",
    "<|endoftext|> </s> <s> [CLS]",
    "def f(x):\n    return {'a': [1, 2, 3]}  # ok\n",
    '"quotes" \\backslash\\ \\n \\u0041 /slash/',
    "a" * 300,
    "\U0010ffff \ufffe",
]


def make_texts(count: int, seed: int = 0) -> list[str]:
    """Documents of many lengths, the hard ones among them; the same for the same seed."""
    rng = random.Random(seed)
    words = ["the", "of", "token", "naïve", "日本", "x1", "…", "\n", "  ", "def", "(", ")", "😀", "Straße", "1234"]
    texts = [" ".join(rng.choices(words, k=rng.randrange(1, 200))) for _ in range(count)]
    for i, text in enumerate(HARD_TEXTS):
        texts[i * count // len(HARD_TEXTS)] = text
    return texts


def write_jsonl(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(texts)), "utf-8")
    return path


def file_checksum(path: Path) -> str:
    return LocalStorage(path.parent).checksum(path.name)


def stored(directory: Path) -> dict[str, bytes]:
    """Every byte of a store but how its run went."""
    files = {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }
    manifest = json.loads(files["manifest.json"])
    del manifest["run"], manifest["checksum"]
    return files | {"manifest.json": json.dumps(manifest).encode()}


@pytest.fixture(scope="session")
def texts() -> list[str]:
    return make_texts(400)


@pytest.fixture(scope="session")
def bpe(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Path:
    """A byte-level BPE tokenizer.json of 1,000 tokens that names its EOS."""
    directory = tmp_path_factory.mktemp("bpe")
    source = write_jsonl(directory / "texts.jsonl", texts)
    return tokpress.train_tokenizer(source, out=directory / "tokenizer.json", vocab_size=1000)


@pytest.fixture
def small_store(tmp_path: Path, texts: list[str], bpe: Path) -> Callable[..., tokpress.Store]:
    """Builds a store of `texts` with small units and shards; options as for `tokpress.build`."""

    def build(**options: object) -> tokpress.Store:
        source = write_jsonl(tmp_path / "texts.jsonl", texts)
        defaults = {"tokenizer": bpe, "out": tmp_path / "store", "unit_size": 40_000, "shard_size": 10_000}
        return tokpress.build(source, **(defaults | options))  # type: ignore[arg-type]

    return build
