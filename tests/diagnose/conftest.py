"""Small scripts and what is observed of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import write_jsonl

import tokpress
from tokpress.diagnose.observe import Observed, observe

Run = Callable[..., Observed]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Observes `python script ...`, the script given as text."""

    def run(script: str, *arguments: object) -> Observed:
        file = tmp_path / "script.py"
        file.write_text(script)
        return observe([sys.executable, str(file), *map(str, arguments)])

    return run


@pytest.fixture(scope="session")
def spm(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Path:
    directory = tmp_path_factory.mktemp("spm")
    source = write_jsonl(directory / "texts.jsonl", texts)
    return tokpress.train_tokenizer(source, out=directory / "spm.model", vocab_size=400, model="sp-unigram")


@pytest.fixture(scope="session")
def bytes_store(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Path:
    directory = tmp_path_factory.mktemp("bytes")
    source = write_jsonl(directory / "texts.jsonl", texts[:20])
    return tokpress.build(source, tokenizer="bytes", out=directory / "store").path
