"""Tokenizers as users have them: files in directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import samples


@pytest.fixture
def bpe_directory(tmp_path: Path) -> Path:
    """A directory as `save_pretrained` leaves it: a tokenizer.json and the file that names its EOS."""
    return write_files(tmp_path / "bpe", "cl100k")


@pytest.fixture(scope="session")
def cl100k_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rank file of cl100k_base, the real one, under the name that OpenAI publishes it with."""
    path = tmp_path_factory.mktemp("openai") / "cl100k_base.tiktoken"
    path.write_bytes(samples.cl100k_ranks())
    return path


def write_files(directory: Path, name: str) -> Path:
    """The files of a sample tokenizer."""
    directory.mkdir(parents=True, exist_ok=True)
    for file, data in samples.sample(name).files.files.items():
        (directory / file).write_bytes(data)
    return directory
