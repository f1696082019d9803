"""A fast engine that is wrong, and workers that share the proof: whoever finds it out, the reference is used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tokenizers

import tokpress

DOCS = 32  # as many as a sample has places: each of them is one document
WRONG = 5  # the sixth: with the fixed strings before it, it falls to the first of two provers and of three


@pytest.fixture
def tokenizer(tmp_path: Path, bpe: Path) -> Path:
    """One with an added token that stands for whole words only, which gigatoken finds inside words, too."""
    parsed = json.loads(bpe.read_text("utf-8"))
    word = {"id": len(parsed["model"]["vocab"]), "content": "<word>", "single_word": True, "special": False}
    parsed["added_tokens"].append({"lstrip": False, "rstrip": False, "normalized": False, **word})
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(parsed), "utf-8")
    return path


@pytest.mark.parametrize("workers", [2, 3])
def test_a_difference_that_the_first_of_them_finds_is_not_lost(tmp_path: Path, tokenizer: Path, workers: int) -> None:
    texts = ["inside a<word>b" if i == WRONG else f"document no. {i:02}" for i in range(DOCS)]
    source = tmp_path / "a.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    assert {len(text) for text in texts} == {15}  # so that places and documents begin together
    store = tokpress.build(
        source, tokenizer=tokenizer, out=tmp_path / "store", workers=workers, unit_size=200, eos=False, audit_rate=0
    )
    parity = store.manifest.parity
    assert store.manifest.run.workers == workers
    assert (parity.outcome, parity.engine, parity.reference) == ("different", "huggingface", "huggingface")
    assert parity.difference is not None
    assert "<word>" in parity.difference.text
    library = tokenizers.Tokenizer.from_file(str(tokenizer))
    assert [doc.tolist() for doc in store] == [library.encode(text).ids for text in texts]
