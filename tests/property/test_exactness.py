"""Ids are those of `tokenizers`, `sentencepiece` and `tiktoken`, called directly, on text that is hard on tokenizers.

For every kind of tokenizer, both policies for special tokens, the reference engines and the fast one.
"""

from __future__ import annotations

import pytest
from engines import samples
from engines.fuzz import fuzzed, texts
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tokpress.batches import large_strings
from tokpress.engines.base import Engine
from tokpress.engines.parity import nasty_texts
from tokpress.records import SpecialTokenPolicy

LITERALS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|fim|>",
    "<|endofprompt|>",
    "<s>",
    "</s>",
    "<unk>",
]
LITERALS += [
    "<ctrl>",
    "<ctrl>>",
    "<user>",
    "[CLS]",
    "[MASK]",
    "[INST]",
    "<tool>",
    "<call>",
    "<mask>",
    "<sep>",
    "<0x0A>",
]
SEED = 20_240_229
FUZZED_DOCS = 300

thorough = settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def assert_exact(engine: Engine, name: str, policy: SpecialTokenPolicy, documents: list[str]) -> None:
    tokens = engine.encode(large_strings(documents), threads=2)
    encode = samples.oracle(name, policy)
    for i, document in enumerate(documents):
        assert tokens.doc(i).tolist() == encode(document), (document, engine.name, name, policy)


def hard_texts(name: str) -> list[str]:
    literals = [*LITERALS, *list(samples.reference(name).info.special_tokens)[:5]]
    return [*nasty_texts(literals), *fuzzed(SEED, FUZZED_DOCS, literals)]


@pytest.mark.parametrize("policy", samples.POLICIES)
class TestReferences:
    @pytest.mark.parametrize("name", samples.NAMES)
    def test_fuzzed_documents(self, name: str, policy: SpecialTokenPolicy) -> None:
        assert_exact(samples.reference(name, policy), name, policy, hard_texts(name))

    @pytest.mark.parametrize("name", ["o200k", "wordpiece", "gpt2-ranks", *samples.SENTENCEPIECE_FEW, "bytes"])
    @thorough
    @given(documents=st.lists(texts(LITERALS), max_size=6))
    @example(documents=["", "<ctrl><ctrl>>", "<|endoftext|>" * 3, "\0"])
    def test_anything(self, name: str, policy: SpecialTokenPolicy, documents: list[str]) -> None:
        assert_exact(samples.reference(name, policy), name, policy, documents)


@pytest.mark.parametrize("policy", samples.POLICIES)
@pytest.mark.parametrize("name", samples.FAST)
class TestGigatoken:
    def test_fuzzed_documents(self, name: str, policy: SpecialTokenPolicy) -> None:
        assert_exact(samples.fast(name, policy), name, policy, hard_texts(name))

    @thorough
    @given(documents=st.lists(texts(LITERALS), max_size=6))
    @example(documents=["((\U000323b0", "", "a\u0316\u1adc\u0301"])
    def test_anything(self, name: str, policy: SpecialTokenPolicy, documents: list[str]) -> None:
        assert_exact(samples.fast(name, policy), name, policy, documents)
