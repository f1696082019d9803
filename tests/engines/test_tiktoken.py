"""tiktoken's rank files: parsed, checked, and rewritten for the fast engine."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest
import tiktoken
import tiktoken.load
import tiktoken.registry
import tokenizers
from tiktoken_ext import openai_public  # type: ignore[import-untyped]

from tokpress.batches import large_strings
from tokpress.config import TokenizerConfig
from tokpress.engines.load import load_files, reference_engine
from tokpress.engines.tiktoken import PATTERNS, PUBLISHED, TiktokenEngine, as_tokenizer_json, parse_ranks, rank_files
from tokpress.errors import TokenizerError
from tokpress.records import SpecialTokenPolicy, TokenizerFiles

from . import samples
from .fuzz import fuzzed

BYTES = [(bytes([byte]), byte) for byte in range(256)]


def ranks(*more: tuple[bytes, int], base: list[tuple[bytes, int]] = BYTES) -> bytes:
    return b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in (*base, *more))


def engine(
    data: bytes,
    special: dict[str, int] | None = None,
    pattern: str = PATTERNS["cl100k"],
    policy: SpecialTokenPolicy = "text",
) -> TiktokenEngine:
    return TiktokenEngine(rank_files(data, pattern, special or {}), policy)


class TestPatterns:
    def test_o200k_is_tiktokens_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(openai_public, "load_tiktoken_bpe", lambda *_args, **_options: {})
        assert PATTERNS["o200k"] == openai_public.o200k_base()["pat_str"]

    def test_llama3_is_metas_own(self) -> None:
        source = samples.package_file("llama_models", "llama3/tokenizer.py").read_text("utf-8")
        assert PATTERNS["llama3"] in source

    @pytest.mark.parametrize("name", ["r50k_base", "p50k_base", "cl100k_base", "o200k_base"])
    def test_published_ones_mean_what_tiktokens_own_mean(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Written differently, they split hard texts alike; the special tokens are the same."""
        monkeypatch.setattr(openai_public, "load_tiktoken_bpe", lambda *_args, **_options: {})
        published = openai_public.ENCODING_CONSTRUCTORS[name]()
        pattern, special_tokens = PUBLISHED[name]
        assert special_tokens == published["special_tokens"]
        small = {bytes([byte]): byte for byte in range(256)}
        ours = tiktoken.Encoding("ours", pat_str=PATTERNS[pattern], mergeable_ranks=small, special_tokens={})
        theirs = tiktoken.Encoding("theirs", pat_str=published["pat_str"], mergeable_ranks=small, special_tokens={})
        for text in fuzzed(1, 300):
            assert ours.encode_ordinary(text) == theirs.encode_ordinary(text)

    @pytest.mark.parametrize("name", PATTERNS)
    def test_all_of_a_text_is_matched(self, name: str) -> None:
        split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(PATTERNS[name]), "removed")
        for text in fuzzed(2, 300):
            assert split.pre_tokenize_str(text) == []


class TestRankFiles:
    def test_are_parsed(self) -> None:
        assert parse_ranks(b"IQ== 0\nIg== 1\r\n\n") == {b"!": 0, b'"': 1}

    @pytest.mark.parametrize("data", [b"IQ==\n", b"IQ== x\n", b"I 0\n", b"IQ== 0 1\n", b"!!!! 0\n", b"\xff\xff 0\n"])
    def test_other_lines_are_an_error(self, data: bytes) -> None:
        with pytest.raises(TokenizerError, match="not a tiktoken rank file"):
            parse_ranks(data)

    def test_every_byte_must_have_a_token(self) -> None:
        with pytest.raises(TokenizerError, match="no token for byte 0xC8: it is incomplete"):
            engine(ranks(base=BYTES[:200]))

    @pytest.mark.parametrize(
        ("data", "special", "message"),
        [
            (ranks((b"ab", 97)), {}, r"b'ab' and b'a' have the same id 97"),
            (ranks(), {"<|x|>": 5}, r"'<\|x\|>' and b'\\x05' have the same id 5\..*above the ranks, like 256"),
            (ranks(), {"<|x|>": 300, "<|y|>": 300}, "have the same id 300"),
            (ranks(), {"": 256}, "cannot be a token"),
            (ranks(), {"<|x|>": 2**24}, "its id is above"),
            (ranks(), {"<|x|>": -1}, "its id is above"),
            (ranks((b"ab", 2**40)), {}, "its id is above"),
        ],
    )
    def test_ids_that_cannot_be(self, data: bytes, special: dict[str, int], message: str) -> None:
        with pytest.raises(TokenizerError, match=message):
            engine(data, special)

    @pytest.mark.parametrize("pattern", ["(((", r"[z-a]", r"\p{Nonsense}"])
    def test_a_pattern_that_is_none(self, pattern: str) -> None:
        with pytest.raises(TokenizerError, match="tiktoken cannot use the pattern"):
            engine(ranks(), pattern=pattern)

    def test_ids_without_a_token_between(self) -> None:
        """p50k_base leaves a hole among the ranks, cl100k_base one before its last special token."""
        holed = engine(ranks((b"ab", 300)), {"<|end|>": 305})
        assert holed.info.vocab_size == 306
        assert holed.decode([97, 299, 300, 304, 305]) == "aab<|end|>"
        assert holed.token_bytes(299) == b""

    def test_text_that_tiktoken_cannot_encode_is_an_error_of_ours(self, capfd: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(TokenizerError, match=r"tiktoken cannot encode a document.*build with --engine auto"):
            engine(ranks()).encode(large_strings([" " * 1_100_000]))
        capfd.readouterr()  # the library prints its panic


SPECIAL = {"<|endoftext|>": 256, "<|fim|>": 260}


class TestPolicies:
    def test_text(self) -> None:
        tokens = engine(ranks(), SPECIAL).encode(large_strings(["a<|fim|>"])).ids.tolist()
        assert tokens == list(b"a<|fim|>")

    def test_parse(self) -> None:
        tokens = engine(ranks(), SPECIAL, policy="parse").encode(large_strings(["a<|fim|>é<|endoftext|>"])).ids
        assert tokens.tolist() == [97, 260, 195, 169, 256]

    @pytest.mark.parametrize("policy", samples.POLICIES)
    def test_without_special_tokens(self, policy: SpecialTokenPolicy) -> None:
        tokens = engine(ranks(), {}, policy=policy).encode(large_strings(["é <|fim|>", ""]))
        assert tokens.ids.tolist() == list("é <|fim|>".encode())


class TestEos:
    @pytest.mark.parametrize(("special", "eos"), [(SPECIAL, "<|endoftext|>"), ({"<|eot|>": 256}, None)])
    def test_is_known_by_its_usual_name_only(self, special: dict[str, int], eos: str | None) -> None:
        assert engine(ranks(), special).info.eos_token == eos


class TestNamedEncodings:
    @pytest.fixture(autouse=True)
    def forgetful(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
        """Nothing downloaded before, nothing remembered."""
        monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
        monkeypatch.setattr(tiktoken.registry, "ENCODINGS", {})
        return tmp_path

    def test_one_that_tiktoken_has_downloaded(self, forgetful: Path) -> None:
        address = "https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken"
        (forgetful / hashlib.sha1(address.encode()).hexdigest()).write_bytes(samples.cl100k_ranks())
        files = load_files(TokenizerConfig(spec="cl100k_base"))
        named = reference_engine(files, "text")
        assert (named.info.vocab_size, named.info.eos_token) == (100_277, "<|endoftext|>")
        encoding = tiktoken.get_encoding("cl100k_base")
        texts = fuzzed(5, 200, list(named.info.special_tokens))
        tokens = named.encode(large_strings(texts))
        assert [tokens.doc(i).tolist() for i in range(len(texts))] == [encoding.encode_ordinary(text) for text in texts]

    def test_without_a_network_the_next_step_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for variable in ("HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(variable, "http://127.0.0.1:9")  # refuses at once
        with pytest.raises(TokenizerError, match=r"could not download 'o200k_base'.*TIKTOKEN_CACHE_DIR"):
            load_files(TokenizerConfig(spec="o200k_base"))

    def test_a_damaged_download_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tiktoken.load, "read_file", lambda _path: b"not what it should be")
        with pytest.raises(TokenizerError, match="could not download 'o200k_base'"):
            load_files(TokenizerConfig(spec="o200k_base"))


class TestAsTokenizerJson:
    """The same tokenizer as Hugging Face writes it: both libraries agree on it."""

    @pytest.mark.parametrize("pattern", PATTERNS)
    def test_tokenizers_encodes_it_like_tiktoken(self, pattern: str) -> None:
        files = rank_files(samples.small_ranks(), PATTERNS[pattern], {})
        converted = tokenizers.Tokenizer.from_str(as_tokenizer_json(files).decode())
        reference = reference_engine(files, "text")
        texts = fuzzed(6, 300)
        tokens = reference.encode(large_strings(texts))
        for i, text in enumerate(texts):
            assert converted.encode(text, add_special_tokens=False).ids == tokens.doc(i).tolist()

    def test_tokens_that_several_pairs_make(self) -> None:
        """ "aaa" is a + aa and aa + a; tiktoken merges whichever comes first."""
        files = rank_files(ranks((b"aa", 256), (b"aaa", 257), (b"aab", 258)), PATTERNS["cl100k"], {})
        converted = tokenizers.Tokenizer.from_str(as_tokenizer_json(files).decode())
        reference = reference_engine(files, "text")
        for text in ("aaa", "aaaa", "aaaaa", "aaab", "aab", "baaa"):
            assert converted.encode(text).ids == reference.encode(large_strings([text])).ids.tolist()

    def test_special_tokens_keep_their_ids(self) -> None:
        files = rank_files(ranks(), PATTERNS["cl100k"], {"<|x|>": 256})
        assert json.loads(as_tokenizer_json(files))["added_tokens"] == [samples.added_token("<|x|>", 256)]


def test_the_files_of_a_tokenizer_are_all_it_needs() -> None:
    files = samples.sample("gpt2-ranks").files
    again = TokenizerFiles(files.kind, dict(files.files))
    text = large_strings(["some text"])
    assert reference_engine(again, "text").encode(text).ids.tolist() == samples.oracle("gpt2-ranks")("some text")
