"""Mistral's `tekken.json`: ids as `mistral-common` gives them, by both engines."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from conftest import HARD_TEXTS, make_texts
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

import tokpress
from tokpress.config import TokenizerConfig
from tokpress.engines.base import Engine
from tokpress.engines.load import fast_engine, load_files, reference_engine
from tokpress.errors import TokenizerError
from tokpress.records import TokenizerFiles

from .fuzz import fuzzed
from .samples import package_file

VERSIONS = ("240718", "240911")  # of Nemo, and of Pixtral, which lists more than it uses


def path_of(version: str) -> Path:
    return package_file("mistral_common", f"data/tekken_{version}.json")


@cache
def files_of(version: str) -> TokenizerFiles:
    return load_files(TokenizerConfig(spec=str(path_of(version))))


@cache
def oracle(version: str) -> Any:
    return Tekkenizer.from_file(path_of(version))


def ids(engine: Engine, text: str) -> list[int]:
    found: list[int] = engine.encode_strings([text]).ids.tolist()
    return found


@pytest.mark.parametrize("version", VERSIONS)
class TestIds:
    @pytest.mark.parametrize("engine", ["tiktoken", "gigatoken"])
    def test_are_those_of_mistral_common(self, version: str, engine: str) -> None:
        files = files_of(version)
        reference = reference_engine(files, "text")
        subject = reference if engine == "tiktoken" else fast_engine(engine, files, "text", reference)
        texts = [*HARD_TEXTS, *make_texts(50), *fuzzed(1, 300), "[INST] <s> </s> <SPECIAL_999>"]
        for text in texts:
            assert ids(subject, text) == oracle(version).encode(text, bos=False, eos=False), text

    def test_every_special_token_is_the_same(self, version: str) -> None:
        mistral, info = oracle(version), reference_engine(files_of(version), "parse").info
        assert info.vocab_size == mistral.n_words
        assert {i: name for name, i in info.special_tokens.items()} == {
            i: mistral.id_to_piece(i) for i in range(mistral.num_special_tokens)
        }
        assert (info.special_tokens[info.bos_token or ""], info.special_tokens[info.eos_token or ""]) == (
            mistral.bos_id,
            mistral.eos_id,
        )

    def test_decode_to_the_text(self, version: str) -> None:
        engine = reference_engine(files_of(version), "text")
        for text in make_texts(20):
            assert engine.decode(ids(engine, text)) == text


def test_a_store_is_built_with_the_fast_engine(tmp_path: Path) -> None:
    texts = make_texts(30)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "tekken.json").symlink_to(path_of("240911"))
    store = tokpress.build(tmp_path / "a.jsonl", tokenizer=tmp_path / "model", out=tmp_path / "store")
    mistral = oracle("240911")
    assert [store.doc(i).tolist() for i in range(30)] == [mistral.encode(text, bos=False, eos=True) for text in texts]
    assert (store.manifest.parity.outcome, store.manifest.parity.engine) == ("equal", "gigatoken")


@pytest.mark.parametrize(
    "change",
    [
        {"vocab": [{"rank": 0, "token_bytes": "no base64!"}]},
        {"vocab": []},
        {"config": {"pattern": "."}},
        {"special_tokens": [{"rank": i, "token_str": str(i)} for i in range(3000)]},
    ],
)
def test_a_damaged_file_is_an_error(tmp_path: Path, change: dict[str, Any]) -> None:
    whole = json.loads(path_of("240911").read_bytes())
    (tmp_path / "tekken.json").write_text(json.dumps(whole | change))
    with pytest.raises(TokenizerError, match=r"tekken\.json"):
        load_files(TokenizerConfig(spec=str(tmp_path / "tekken.json")))


def test_a_file_that_is_no_unicode_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(b'{"mode\x97l": {"vocab": {}}}')
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        reference_engine(load_files(TokenizerConfig(spec=str(tmp_path / "tokenizer.json"))), "text")
