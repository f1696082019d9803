"""Tokenizers as users have them: files in directories."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tokpress.engines import table

from . import samples
from .plugins import ENGINES, Install


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


@pytest.fixture
def without_native(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engines that SentencePiece models had before."""
    specs = tuple(spec for spec in table.all_engines() if spec.name != "native")
    monkeypatch.setattr(table, "all_engines", lambda: specs)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package that declares these of the engines above; or what another source has under these names."""

    def package(*names: str, source: str = ENGINES) -> None:
        (tmp_path / "plugin_engines.py").write_text(source)
        info = tmp_path / "plugin_engines-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin-engines\nVersion: 1.0\n")
        declared = "".join(f"{name} = plugin_engines:{name}\n" for name in names)
        (info / "entry_points.txt").write_text(f"[{table.GROUP}]\n{declared}")
        monkeypatch.syspath_prepend(tmp_path)
        table.all_engines.cache_clear()

    yield package
    sys.modules.pop("plugin_engines", None)
    table.all_engines.cache_clear()


def write_files(directory: Path, name: str) -> Path:
    """The files of a sample tokenizer."""
    directory.mkdir(parents=True, exist_ok=True)
    for file, data in samples.sample(name).files.files.items():
        (directory / file).write_bytes(data)
    return directory
