"""A file that is no tokenizer is called by its own name, with what it seems to be; a tokenizer never is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tokpress.config import TokenizerConfig
from tokpress.engines.load import load_files
from tokpress.errors import TokenizerError

NONE = {
    "corpus.jsonl": (b'{"text": "a"}\n{"text": "b"}\n', "JSON lines: a corpus"),
    "one.json": (b'{"text": "a"}', "a record of a corpus"),
    "config.json": (b'{"architectures": ["X"], "hidden_size": 1}', "a model's config.json"),
    "tokenizer_config.json": (b'{"tokenizer_class": "X"}', "a tokenizer_config.json"),
    "list.json": (b"[1, 2]", "a list in JSON"),
    "other.json": (b'{"a": 1}', 'JSON without the "model"'),
    "notes.txt": ("Some words, and müde Wörter. ".encode() * 300, "text"),
    "a.parquet": (b"PAR1....", "a Parquet table"),
    "a.gz": (b"\x1f\x8b\x08", "a gzip file"),
    "model.gguf": (b"GGUF....", "a GGUF model"),
    "model.pt": (b"PK\x03\x04", "a zip archive, or a checkpoint of PyTorch"),
    "empty.json": (b"", "empty"),
}


@pytest.mark.parametrize("name", NONE)
def test_is_called_by_its_own_name(tmp_path: Path, name: str) -> None:
    data, what = NONE[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(TokenizerError) as refused:
        load_files(TokenizerConfig(spec=str(tmp_path / name)))
    assert str(refused.value).startswith(f"{tmp_path / name} is no tokenizer: it seems to be {what}")
    assert "tokpress train-tokenizer" in str(refused.value)


def test_a_tokenizer_is_not_refused(bpe: Path, tmp_path: Path) -> None:
    assert load_files(TokenizerConfig(spec=str(bpe))).kind == "huggingface"
    pretty = tmp_path / "pretty.json"
    pretty.write_text(json.dumps(json.loads(bpe.read_text()), indent=2))
    assert load_files(TokenizerConfig(spec=str(pretty))).kind == "huggingface"


def test_a_rank_file_is_not_taken_for_text(tmp_path: Path) -> None:
    (tmp_path / "x.tiktoken").write_bytes(b"YQ== 0\nYg== 1\nYw== 2\n")
    assert load_files(TokenizerConfig(spec=str(tmp_path / "x.tiktoken"), pattern="gpt2")).kind == "tiktoken"


@pytest.mark.parametrize(
    "data", [b"\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00\x18\x02", b"\n\x0c\n\x03a b\x15\x00\x00\x00\x00\x18\x01"]
)
def test_a_sentencepiece_model_is_left_to_its_library(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "spm.model").write_bytes(data)
    assert load_files(TokenizerConfig(spec=str(tmp_path / "spm.model"))).kind == "sentencepiece"
