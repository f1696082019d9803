"""The fast engine: what it takes, what it refuses, what it leaves to the reference."""

from __future__ import annotations

import numpy as np
import pytest

from tokpress.batches import large_strings
from tokpress.engines.fast import FastEngine
from tokpress.engines.load import fast_engine, reference_engine
from tokpress.engines.tiktoken import PATTERNS, rank_files
from tokpress.errors import TokenizerError
from tokpress.records import SpecialTokenPolicy, TokenizerFiles

from . import samples


def load(files: TokenizerFiles, policy: SpecialTokenPolicy = "text") -> FastEngine:
    return fast_engine("gigatoken", files, policy, reference_engine(files, policy))


class TestSupport:
    @pytest.mark.parametrize("name", samples.FAST)
    def test_byte_level_and_byte_fallback_bpe(self, name: str) -> None:
        assert samples.fast(name).name == "gigatoken"

    @pytest.mark.parametrize(
        ("name", "reason"), [("wordpiece", 'Unsupported model type "WordPiece"'), ("unigram-json", "Unigram")]
    )
    def test_other_models_are_refused(self, name: str, reason: str) -> None:
        with pytest.raises(TokenizerError, match=f"gigatoken does not support this tokenizer: .*{reason}"):
            load(samples.sample(name).files)

    @pytest.mark.parametrize("normalizer", ["NFKC", "Lowercase", "NFD"])
    def test_other_normalizers_are_refused(self, normalizer: str) -> None:
        files = samples.huggingface_files(samples.byte_level() | {"normalizer": {"type": normalizer}})
        with pytest.raises(TokenizerError, match=f"Unsupported normalizer type: {normalizer}$"):
            load(files)

    def test_a_pattern_it_does_not_know_is_refused(self) -> None:
        with pytest.raises(TokenizerError, match="no fast pretokenizer"):
            load(rank_files(samples.small_ranks(), r"\S+|\s+", {}))

    def test_it_is_not_used_for_bytes(self) -> None:
        with pytest.raises(TokenizerError, match="gigatoken is not used for bytes tokenizers"):
            fast_engine("gigatoken", samples.sample("bytes").files, "text", samples.reference("bytes"))

    @pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"model": {"type": "BPE", "vocab": {}, "merges": []}}'])
    def test_what_is_no_tokenizer_is_refused_and_does_not_panic(self, data: bytes) -> None:
        from tokpress.engines.gigatoken import _load

        with pytest.raises(TokenizerError, match="gigatoken does not support this tokenizer"):
            _load(data)

    @pytest.mark.parametrize(
        "pattern",
        [
            r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",  # OpenAI's GPT-2
            r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",  # tiktoken's r50k_base
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|"
            r"\s+(?!\S)|\s",  # tiktoken's cl100k_base
            *PATTERNS.values(),
        ],
        ids=["gpt2-original", "r50k-tiktoken", "cl100k-tiktoken", *PATTERNS],
    )
    def test_patterns_in_all_the_forms_they_are_published_in(self, pattern: str) -> None:
        assert load(rank_files(samples.small_ranks(), pattern, {})).name == "gigatoken"


class TestSpecialTokens:
    """With "text" their literals are text, though the tokenizer has them; tokens that are not special stay tokens."""

    def test_text(self) -> None:
        ids = samples.fast("added-tokens", "text").encode(large_strings(["<|im_end|><tool>"])).ids.tolist()
        added = samples.reference("added-tokens").info.special_tokens
        assert added["<|im_end|>"] not in ids
        assert ids[-1] == max(added.values()) - 3  # <tool>

    def test_parse(self) -> None:
        ids = samples.fast("added-tokens", "parse").encode(large_strings(["<|im_end|>  <mask>"])).ids.tolist()
        special = samples.reference("added-tokens").info.special_tokens
        assert ids == [special["<|im_end|>"], special["<mask>"]]  # which takes the spaces before it along


class TestDecoding:
    @pytest.mark.parametrize("name", ["llama2", "qwen2-nfc", "cl100k-real"])
    def test_is_that_of_the_reference(self, name: str) -> None:
        fast, reference = samples.fast(name), samples.reference(name)
        ids = fast.encode(large_strings([" Hello  é\n", "x"])).ids
        assert fast.decode(ids) == reference.decode(ids)
        assert [fast.token_bytes(token) for token in ids.tolist()] == list(map(reference.token_bytes, ids.tolist()))


def test_the_result_does_not_depend_on_what_was_encoded_before() -> None:
    """It keeps a cache of words."""
    text = large_strings(["one two three", "four"])
    cold = load(samples.sample("gpt2").files).encode(text)
    warm = load(samples.sample("gpt2").files)
    warm.encode(large_strings(samples.corpus()[:100]))
    assert np.array_equal(warm.encode(text).ids, cold.ids)


class TestMemory:
    UNSETTLED = "\u1acf"  # added by Unicode 17: only the reference encodes it right

    def test_a_document_for_the_reference_takes_what_the_reference_takes(self) -> None:
        fast = samples.fast(samples.FAST[0])
        plain, unsettled = "word " * 2000, f"{self.UNSETTLED} word " * 10_000
        size = len(plain.encode()) + len(unsettled.encode())
        assert fast.memory_for(large_strings([plain] * 2)) == fast.memory_per_byte * 2 * len(plain)
        reference = reference_engine(samples.sample(samples.FAST[0]).files, "text")
        expected = fast.memory_per_byte * size + reference.memory_per_byte * len(unsettled.encode())
        assert fast.memory_for(large_strings([plain, unsettled])) == expected

    def test_asking_first_changes_nothing(self) -> None:
        fast = samples.fast(samples.FAST[0])
        texts = [large_strings(["one", f"two {self.UNSETTLED}"]), large_strings([f"{self.UNSETTLED} three", "four"])]
        expected = [fast.encode(text) for text in texts]
        for text in texts:
            fast.memory_for(text)
        for text, tokens in zip(texts, expected, strict=True):
            assert np.array_equal(fast.encode(text).ids, tokens.ids)
            assert np.array_equal(fast.encode(text).ends, tokens.ends)
