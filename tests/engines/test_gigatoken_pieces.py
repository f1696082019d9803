"""gigatoken on SentencePiece BPE models: the library's ids, whoever normalises the text and whatever symbols it holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tokpress
from tokpress.batches import large_strings
from tokpress.cli.show import parity_line
from tokpress.config import TokenizerConfig
from tokpress.engines import gigatoken_pieces
from tokpress.engines.choice import choose_engine
from tokpress.engines.fast import FastEngine
from tokpress.engines.load import fast_engine, reference_engine
from tokpress.records import SpecialTokenPolicy

from . import samples
from .conftest import write_files
from .fuzz import WHITESPACE, fuzzed
from .models import characters, model_files, normal

LETTERS = characters("abc▁")
IDENTITY, REPLACED = "sp-bpe-fallback-prefix-identity", "sp-bpe-fallback-prefix-nmt_nfkc"  # both with <user>, <ctrl>


def assert_equal(name: str, documents: list[str], policy: SpecialTokenPolicy = "text") -> None:
    text = large_strings(documents)
    ours, theirs = samples.fast(name, policy).encode(text), samples.reference(name, policy).encode(text)
    for i, document in enumerate(documents):
        assert np.array_equal(ours.doc(i), theirs.doc(i)), document


def doubtful(engine: FastEngine, documents: list[str]) -> list[str]:
    return [documents[i] for i in engine.encoder.doubtful(large_strings(documents))]


class TestText:
    @pytest.mark.parametrize("name", [*samples.SENTENCEPIECE[:2], IDENTITY, REPLACED])
    def test_every_kind_of_character(self, name: str) -> None:
        """Alone, doubled, and between letters and spaces."""
        codes = [*range(0x3100), *range(0x3100, 0x110000, 97)]
        chars = [chr(code) for code in codes if not 0xD800 <= code < 0xE000]
        shown = [f"{char} a{char}b{char}{char} {char}\n" for char in chars]
        assert_equal(name, ["".join(shown[i : i + 20]) for i in range(0, len(shown), 20)])

    @pytest.mark.parametrize("name", [*samples.SENTENCEPIECE[:2], IDENTITY, REPLACED, "sp-bpe-fallback-bare-nmt_nfkc"])
    def test_every_kind_of_space(self, name: str) -> None:
        edges = ["", " ", "  ", "\n", "\u3000 ", "▁", " ▁"]
        words = [space.join(["one", "two", ""]) for space in [*WHITESPACE, "▁", "▁ ", " ▁ "]]
        assert_equal(name, [f"{left}{text}{right}" for left in edges for text in ["", *words] for right in edges])

    @pytest.mark.parametrize("name", ["mistral-v1-real", REPLACED])
    def test_long_documents(self, name: str) -> None:
        words = "".join(fuzzed(5, 200))
        assert_equal(name, [words, words.replace(" ", ""), "a" * 20_000, " " * 20_000, "ab" * 9_999, "é字🙂" * 3_000])


class TestSymbols:
    def test_where_a_prefix_is_put_documents_with_user_defined_ones_are_doubtful(self) -> None:
        documents = ["<user>", "a <user> b", "<ctrl>", "user", ""]
        for policy in samples.POLICIES:
            assert doubtful(samples.fast(IDENTITY, policy), documents) == documents[:2]
            assert_equal(IDENTITY, documents, policy)

    def test_without_a_prefix_they_are_found(self) -> None:
        assert doubtful(samples.fast("sp-bpe-fallback-bare-identity"), ["a <user> b", "<ctrl>"]) == []
        assert_equal("sp-bpe-fallback-bare-identity", ["a <user> b", "<user><user>", "<ctrl>", "<<user>"])

    def test_where_the_library_normalises_they_are_found_and_control_symbols_are_doubtful(self) -> None:
        documents = ["a <user> b", "ａ<user>½", "<ctrl>", "x</s>", "ctrl"]
        assert doubtful(samples.fast(REPLACED, "text"), documents) == []
        assert doubtful(samples.fast(REPLACED, "parse"), documents) == ["<ctrl>", "x</s>"]
        for policy in samples.POLICIES:
            assert_equal(REPLACED, documents, policy)

    def test_control_symbols_are_parsed_each_with_a_text_of_its_own(self) -> None:
        documents = ["a</s>b", "</s>", "<s><s> a", " </s> ", "[INST] x [/INST]y", "<s", "<</s>>"]
        for name in samples.SENTENCEPIECE[:2]:
            assert doubtful(samples.fast(name, "parse"), documents) == []
            assert_equal(name, documents, "parse")
            assert_equal(name, documents, "text")

    def test_user_defined_ones_with_spaces_are_left_to_the_library_s_normaliser(self) -> None:
        """The prefix may be part of them, and a U+2581 in the text."""
        for prefix in (True, False):
            files = model_files([("▁▁", 0.0, 4), ("a▁", 0.0, 4), *normal("ab", "▁a", "b▁"), *LETTERS], prefix=prefix)
            reference = reference_engine(files, "text")
            fast = fast_engine("gigatoken", files, "text", reference)
            text = large_strings(["a b", " a", "  a  b", "▁a▁", " ▁b", "a  ", "", " ", "a ▁b  "])
            assert fast.encode(text).ids.tolist() == reference.encode(text).ids.tolist()
            assert doubtful(fast, text.to_pylist()) == []

    def test_control_symbols_beside_user_defined_ones(self) -> None:
        """Where they overlap, the control symbol is found first, however far to the right."""
        files = model_files([("abc", 0.0, 4), ("bca", 0.0, 3), *normal("ab", "bc"), *LETTERS], prefix=False)
        reference = reference_engine(files, "parse")
        fast = fast_engine("gigatoken", files, "parse", reference)
        text = large_strings(["abca", "abc", "bca", "abcbca", "bcabca"])
        assert fast.encode(text).ids.tolist() == reference.encode(text).ids.tolist()


class TestLimits:
    def test_a_long_stretch_without_a_space_is_the_library_s(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gigatoken_pieces, "_UNBROKEN", 100)
        documents = ["a" * 200, "a" * 99, ("a" * 98 + " ") * 5, "b " * 100 + "a" * 200, "", "a " * 300]
        assert doubtful(samples.fast("mistral-v1-real"), documents) == [documents[0], documents[3]]
        assert_equal("mistral-v1-real", documents)

    def test_more_than_can_be_counted_goes_in_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gigatoken_pieces, "_MOST_BYTES", 50)
        documents = ["a b c " * 20, "", *(f"word {i}" for i in range(40))]
        assert doubtful(samples.fast("mistral-v1-real"), documents) == documents[:1]
        assert_equal("mistral-v1-real", documents)

    def test_less_than_is_worth_a_call_is_said(self) -> None:
        assert samples.fast("mistral-v1-real").least_bytes > 0
        assert samples.fast("cl100k").least_bytes == 0


class TestChoice:
    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("sp-unigram-fallback-prefix-identity", "it is a unigram model of SentencePiece, not BPE"),
            ("sp-bpe-unk-prefix-identity", "its SentencePiece model has no byte fallback"),
        ],
    )
    def test_what_the_library_encodes_and_why(self, name: str, reason: str, without_native: None) -> None:
        config = TokenizerConfig(spec="x")
        engine, parity = choose_engine(samples.sample(name).files, config, samples.reference(name), [])
        assert (engine.name, parity.outcome, parity.engine) == ("sentencepiece", "unsupported", "sentencepiece")
        assert parity.refused == {"gigatoken": f"gigatoken does not support this tokenizer: {reason}"}
        assert reason in parity_line(parity)  # the line of a build's summary

    def test_a_build_has_the_library_s_tokens(self, tmp_path: Path) -> None:
        tokenizer = write_files(tmp_path / "tokenizer", "mistral-v7-real")
        source = tmp_path / "texts.txt"
        source.write_text("\0".join(["[REF] doubtful", *samples.corpus()[:30], "[INST] text"]), "utf-8")
        stores = {
            engine: tokpress.build(source, tokenizer=tokenizer, out=tmp_path / engine, engine=engine, separator="\0")
            for engine in ("gigatoken", "sentencepiece")
        }
        assert {engine: store.manifest.parity.engine for engine, store in stores.items()} == {
            "gigatoken": "gigatoken",
            "sentencepiece": "sentencepiece",
        }
        assert stores["gigatoken"].manifest.parity.outcome == "equal"
        fast, library = ([ids.tolist() for ids in store] for store in stores.values())
        assert fast == library
