"""Characters that libraries see by other Unicode tables: all of them are known, and only documents with one are touched.

The tests that go through Unicode fail when an upgrade of gigatoken, tokenizers or tiktoken moves the list.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokpress.batches import large_strings
from tokpress.engines.base import Engine
from tokpress.engines.fast import FastEngine
from tokpress.engines.huggingface import HuggingFaceEngine
from tokpress.engines.load import fast_engine, reference_engine
from tokpress.engines.tiktoken import PATTERNS, as_tokenizer_json, rank_files
from tokpress.engines.unsettled import _CHUNK_BYTES, UNSETTLED, unsettled_documents
from tokpress.records import TokenizerFiles

from .fuzz import fuzzed, texts, unhurried

# The pattern of DeepSeek V3, which tells letters, marks, numbers, punctuation and symbols apart.
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+"]
hard_texts = texts(list(UNSETTLED[:40])) | st.text(st.sampled_from(UNSETTLED + "a\u0c5b\u20e3\U0001f6d7"))
DEEPSEEK += [
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
]


def naive(documents: list[str]) -> list[int]:
    return [i for i, document in enumerate(documents) if set(document) & set(UNSETTLED)]


class TestDocuments:
    @unhurried
    @given(
        st.lists(
            texts(list(UNSETTLED[:40])) | st.text(st.sampled_from(UNSETTLED + "a\u0c5b\u20e3\U0001f6d7")), max_size=8
        )
    )
    def test_those_that_hold_one_are_found(self, documents: list[str]) -> None:
        assert unsettled_documents(large_strings(documents)).tolist() == naive(documents)

    def test_all_over_a_large_batch(self) -> None:
        """Memory is bounded by looking at a few megabytes at a time: at every one of them, and over their borders."""
        rare = UNSETTLED[-1]
        size = _CHUNK_BYTES // 2
        documents = ["a" * (size - 2) + rare, "a" * size, rare + "b" * size, "b" * size, "b" * size, rare]
        assert unsettled_documents(large_strings(documents)).tolist() == [0, 2, 5]
        assert unsettled_documents(large_strings(documents)[1:5]).tolist() == [1]

    @unhurried
    @given(
        st.lists(
            st.tuples(st.integers(0, 500), st.text(st.sampled_from(UNSETTLED[::20] + "é—字🙂"), max_size=3)), max_size=8
        )
    )
    def test_in_plain_text_too(self, documents: list[tuple[int, str]]) -> None:
        """Where hardly a character is not ASCII, they are searched for in another way."""
        listed = [f"{'a' * before}{rare}{'b' * 300}" for before, rare in documents]
        assert unsettled_documents(large_strings(listed)).tolist() == naive(listed)

    def test_in_a_slice(self) -> None:
        documents = ["\ua7ce", "", "a", "", "b\ua7ce", "\ua7ce", "c"]
        text = large_strings(documents)
        for start in range(len(documents)):
            for stop in range(start, len(documents) + 1):
                assert unsettled_documents(text[start:stop]).tolist() == naive(documents[start:stop])

    def test_each_of_them(self) -> None:
        assert len(unsettled_documents(large_strings(list(UNSETTLED)))) == len(UNSETTLED)
        neighbours = {chr(ord(char) + step) for char in UNSETTLED for step in (-1, 1)} - set(UNSETTLED)
        assert not len(unsettled_documents(large_strings(sorted(neighbours))))

    def test_nothing_in_nothing(self) -> None:
        assert not len(unsettled_documents(pa.array([], pa.large_string())))
        assert not len(unsettled_documents(large_strings(["", ""])))


@pytest.fixture(scope="module")
def ranks() -> bytes:
    """Every byte, and merges of a lead or a last byte with what stands beside it: they show where a text is split."""
    tokens = [bytes([byte]) for byte in range(256)]
    tokens.append("\u0301".encode())
    tokens += [
        before + bytes([lead]) for before in (b"a", b"A", b"1", b" ", b".", b"\xcc\x81") for lead in range(0xC2, 0xF5)
    ]
    tokens += [bytes([last]) + after for after in (b"a", b"1", b" ", b".", b"\xcc") for last in range(0x80, 0xC0)]
    return b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(dict.fromkeys(tokens)))


def probes(chars: list[str], size: int) -> Iterator[pa.LargeStringArray]:
    """Each character beside every class of others, in documents of so many characters."""
    shown = [f"a{char}a1{char}1.{char}. {char}\nA{char} e\u0301{char}\u0316{char}\u0301 (({char}" for char in chars]
    for start in range(0, len(shown), size * 500):
        part = shown[start : start + size * 500]
        yield large_strings(["\n".join(part[i : i + size]) for i in range(0, len(part), size)])


def settled_characters() -> list[str]:
    """All but those of private use, of planes without any, and most of the many ideographs and syllables."""
    parts = [(0, 0xD800), (0xF900, 0x20000), (0x2A600, 0x2FA20), (0x31300, 0x33500), (0xE0000, 0xE0200)]
    dull = [(0x3500, 0x4D00), (0x4F00, 0x9F00), (0xA100, 0xA400), (0xAD00, 0xD700), (0x12100, 0x14600)]
    dull += [(0x17100, 0x18700), (0x18E00, 0x1AF00), (0x2A800, 0x2B700), (0x2B900, 0x2CE00), (0x2CF00, 0x2EB00)]
    kept = {chr(code) for part in parts for code in range(*part)} - {
        chr(code) for part in dull for code in range(*part)
    }
    return sorted(kept - set(UNSETTLED))


def assert_equal(fast: Engine, reference: Engine, chars: list[str], size: int) -> None:
    for text in probes(chars, size):
        ours, theirs = fast.encode(text), reference.encode(text)
        for i in range(len(text)):
            assert np.array_equal(ours.doc(i), theirs.doc(i)), ascii(text[i].as_py())


def huggingface(ranks: bytes, patterns: list[str], normalizer: str | None) -> TokenizerFiles:
    tokenizer = msgspec.json.decode(as_tokenizer_json(rank_files(ranks, PATTERNS["cl100k"], {})))
    split, byte_level = tokenizer["pre_tokenizer"]["pretokenizers"]
    splits = [split | {"pattern": {"Regex": pattern}} for pattern in patterns]
    tokenizer["pre_tokenizer"]["pretokenizers"] = [*splits, byte_level]
    tokenizer["normalizer"] = normalizer and {"type": normalizer}
    return TokenizerFiles("huggingface", {"tokenizer.json": msgspec.json.encode(tokenizer)})


@pytest.mark.parametrize(
    ("patterns", "normalizer"),
    [([PATTERNS["o200k"]], None), ([PATTERNS["qwen2"]], "NFC"), (DEEPSEEK, None)],
    ids=["o200k", "qwen2-nfc", "deepseek"],
)
class TestAllOfUnicode:
    def engines(self, ranks: bytes, patterns: list[str], normalizer: str | None) -> tuple[FastEngine, Engine]:
        files = huggingface(ranks, patterns, normalizer)
        reference = HuggingFaceEngine(files, "text")
        return fast_engine("gigatoken", files, "text", reference), reference

    def test_on_settled_characters_the_engines_agree(
        self, ranks: bytes, patterns: list[str], normalizer: str | None
    ) -> None:
        assert_equal(*self.engines(ranks, patterns, normalizer), settled_characters(), 50)

    def test_documents_with_unsettled_ones_are_left_to_the_reference(
        self, ranks: bytes, patterns: list[str], normalizer: str | None
    ) -> None:
        assert_equal(*self.engines(ranks, patterns, normalizer), list(UNSETTLED), 1)

    def test_gigatoken_alone_would_differ(self, ranks: bytes, patterns: list[str], normalizer: str | None) -> None:
        """So that the list, and this file, go when it does not."""
        fast, reference = self.engines(ranks, patterns, normalizer)
        text = large_strings(["a\U000323b0a"])
        assert fast.encoder.encode(text).ids.tolist() != reference.encode(text).ids.tolist()


@pytest.mark.parametrize("pattern", ["gpt2", "cl100k", "o200k"])
def test_tiktoken_sees_characters_as_tokenizers_does(ranks: bytes, pattern: str) -> None:
    files = rank_files(ranks, PATTERNS[pattern], {})
    converted = TokenizerFiles("huggingface", {"tokenizer.json": as_tokenizer_json(files)})
    sampled = [*settled_characters()[::7], *UNSETTLED[::3]]
    assert_equal(HuggingFaceEngine(converted, "text"), reference_engine(files, "text"), sampled, 50)


def test_compositions_that_one_library_does_not_know(ranks: bytes) -> None:
    """NFC makes one character of two; since Unicode 9 there are new ones, in these blocks."""
    files = huggingface(ranks, [PATTERNS["qwen2"]], "NFC")
    reference = HuggingFaceEngine(files, "text")
    fast = fast_engine("gigatoken", files, "text", reference)
    blocks = [range(0x11380, 0x113E0), range(0x11900, 0x11960), range(0x16100, 0x16140), range(0x16D40, 0x16D80)]
    pairs = [chr(first) + chr(second) for block in blocks for first in block for second in block]
    marks = range(0x300, 0x370)
    bases = [*range(0xC0, 0x250), *range(0x370, 0x500), *range(0x105C0, 0x10600)]
    pairs += [chr(base) + chr(mark) for base in bases for mark in marks]
    text = large_strings(pairs)
    ours, theirs = fast.encode(text), reference.encode(text)
    assert np.array_equal(ours.ends, theirs.ends)
    assert np.array_equal(ours.ids, theirs.ids)


def test_a_document_among_others_is_replaced_alone(ranks: bytes) -> None:
    files = rank_files(ranks, PATTERNS["o200k"], {})
    reference = reference_engine(files, "text")
    fast = fast_engine("gigatoken", files, "text", reference)
    for documents in (["1\ua7ce"], ["1\ua7ce", "a"], ["a", "1\ua7ce"], ["", "1\ua7ce", "1\ua7ce", "", *fuzzed(3, 50)]):
        text = large_strings(documents)
        ours, theirs = fast.encode(text), reference.encode(text)
        assert np.array_equal(ours.ids, theirs.ids)
        assert np.array_equal(ours.ends, theirs.ends)
