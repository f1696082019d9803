"""`tokenizer.json`: what the file says about itself, and what of it a corpus must not follow."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from conftest import write_jsonl

import tokpress
from tokpress.batches import large_strings
from tokpress.engines.huggingface import HuggingFaceEngine
from tokpress.errors import CannotEncode, TokenizerError
from tokpress.records import SpecialTokenPolicy, TokenizerFiles

from . import samples


def engine(tokenizer: dict[str, Any], policy: SpecialTokenPolicy = "text", **companions: Any) -> HuggingFaceEngine:
    return HuggingFaceEngine(samples.huggingface_files(tokenizer, **companions), policy)


def ids(tokenizer: HuggingFaceEngine, text: str) -> list[int]:
    listed: list[int] = tokenizer.encode(large_strings([text])).ids.tolist()
    return listed


class TestVocabulary:
    def test_counts_added_tokens_beyond_the_model(self) -> None:
        tokenizer = samples.byte_level()
        size = len(tokenizer["model"]["vocab"])
        assert engine(tokenizer).info.vocab_size == size
        tokenizer["added_tokens"] += [
            samples.added_token("<x>", size),
            samples.added_token("y!y", size + 1, special=False),
        ]
        info = engine(tokenizer).info
        assert info.vocab_size == size + 2
        assert info.special_tokens["<x>"] == size
        assert "y!y" not in info.special_tokens

    def test_with_holes_it_reaches_to_the_largest_id(self) -> None:
        tokenizer = samples.byte_level()
        vocab = tokenizer["model"]["vocab"]
        last = max(vocab, key=vocab.__getitem__)
        vocab[last] = 70_000
        holed = engine(tokenizer)
        assert holed.info.vocab_size == 70_001
        assert ids(holed, holed.decode([70_000])) == [70_000]
        assert holed.decode([65_000]) == ""  # stands for nothing
        assert holed.token_bytes(65_000) == b""

    def test_an_empty_one_is_an_error(self) -> None:
        empty = {"model": {"type": "BPE", "vocab": {}, "merges": []}, "added_tokens": []}
        with pytest.raises(TokenizerError, match=r"empty vocabulary.*tokpress train-tokenizer"):
            engine(samples.byte_level() | empty)


class TestNamedTokens:
    """BOS and EOS are named by the files beside it, as a string or as an object."""

    @pytest.mark.parametrize(
        ("companions", "eos"),
        [
            ({}, None),
            ({"tokenizer_config": {"eos_token": "<|im_end|>"}}, "<|im_end|>"),
            ({"tokenizer_config": {"eos_token": {"content": "<|im_end|>", "lstrip": False}}}, "<|im_end|>"),
            ({"special_tokens_map": {"eos_token": "<|im_end|>"}}, "<|im_end|>"),
            ({"special_tokens_map": {"eos_token": {"content": "<|im_end|>"}}}, "<|im_end|>"),
            (
                {"tokenizer_config": {"eos_token": "<|im_end|>"}, "special_tokens_map": {"eos_token": "<|endoftext|>"}},
                "<|im_end|>",
            ),
            (
                {"tokenizer_config": {"eos_token": None}, "special_tokens_map": {"eos_token": "<|endoftext|>"}},
                "<|endoftext|>",
            ),
            ({"tokenizer_config": {"eos_token": 7}}, None),
        ],
    )
    def test_eos(self, companions: dict[str, Any], eos: str | None) -> None:
        info = engine(samples.byte_level(), **companions).info
        assert (info.eos_token, info.bos_token) == (eos, None)

    def test_a_named_token_of_the_vocabulary_counts_as_special(self) -> None:
        tokenizer = samples.byte_level()
        tokenizer["added_tokens"] = []
        info = engine(tokenizer, tokenizer_config={"bos_token": "<|im_start|>", "eos_token": "<gone>"}).info
        assert info.special_tokens == {"<|im_start|>": tokenizer["model"]["vocab"]["<|im_start|>"]}

    @pytest.mark.parametrize("content", [b"{", b"[]", b'"text"', b"\xff"])
    def test_a_companion_that_is_no_object_is_named(self, content: bytes) -> None:
        files = samples.huggingface_files(samples.byte_level()).files
        broken = TokenizerFiles("huggingface", {**files, "tokenizer_config.json": content})
        with pytest.raises(TokenizerError, match=r"tokenizer_config\.json beside the tokenizer is not a JSON object"):
            HuggingFaceEngine(broken, "text")


class TestWhatIsNotFollowed:
    LONG = "one two three four five six seven"

    def test_truncation(self) -> None:
        cut = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
        assert ids(engine(samples.byte_level() | {"truncation": cut}), self.LONG) == ids(
            engine(samples.byte_level()), self.LONG
        )

    def test_padding(self) -> None:
        pad: dict[str, Any] = {"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None}
        pad |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "<|endoftext|>"}
        assert ids(engine(samples.byte_level() | {"padding": pad}), "one") == ids(engine(samples.byte_level()), "one")

    def test_a_post_processor_that_adds_tokens(self) -> None:
        """[CLS] and [SEP] are not for the engine to add: framing does it."""
        wordpiece = samples.reference("wordpiece")
        special = set(wordpiece.info.special_tokens.values())
        assert not special & set(wordpiece.encode(large_strings(["the text"])).ids.tolist())

    @pytest.mark.parametrize("dropout", [0.1, 1.0])
    def test_dropout_is_refused(self, dropout: float) -> None:
        tokenizer = samples.byte_level()
        tokenizer["model"]["dropout"] = dropout
        with pytest.raises(TokenizerError, match=r"BPE dropout: its ids are random\. Set model\.dropout to null"):
            engine(tokenizer)

    def test_no_dropout_is_fine(self) -> None:
        tokenizer = samples.byte_level()
        tokenizer["model"]["dropout"] = 0.0
        assert ids(engine(tokenizer), self.LONG) == ids(engine(samples.byte_level()), self.LONG)


class TestTokenBytes:
    def test_of_added_tokens_are_their_text(self) -> None:
        """Byte-level vocabularies write bytes as other characters; added tokens are written as they are."""
        tokenizer = samples.byte_level()
        beyond = len(tokenizer["model"]["vocab"])
        tokenizer["added_tokens"] += [
            samples.added_token("Ġcafé", beyond, special=False),
            samples.added_token("\n\n\n", beyond + 1),
        ]
        added = engine(tokenizer, "parse")
        assert ids(added, "aĠcafé\n\n\n")[1:] == [beyond, beyond + 1]
        assert (added.token_bytes(beyond), added.token_bytes(beyond + 1)) == ("Ġcafé".encode(), b"\n\n\n")
        assert added.decode([beyond, beyond + 1]) == "Ġcafé\n\n\n"

    def test_of_a_byte_and_of_a_space(self) -> None:
        llama2 = samples.reference("llama2")
        tokens = llama2.encode(large_strings(["a b\U0001f9ff"])).ids.tolist()
        assert b"".join(map(llama2.token_bytes, tokens)) == " a b\U0001f9ff".encode()

    def test_of_every_token_of_a_byte_level_vocabulary(self) -> None:
        gpt2 = samples.reference("gpt2")
        every = [gpt2.token_bytes(token) for token in range(gpt2.info.vocab_size)]
        assert len(set(every)) == len(every)
        assert {bytes([byte]) for byte in range(256)} < set(every)


class TestDamagedFiles:
    @pytest.mark.parametrize(
        "data", [b"", b"{", b"{}", b"[]", b"null", b'{"model": {"type": "Magic"}}', b"\xff\xfe", b'{"version": "1.0"}']
    )
    def test_are_refused(self, data: bytes) -> None:
        with pytest.raises(
            TokenizerError, match=r"tokenizer\.json cannot be loaded by `tokenizers`: .*Get the file again"
        ):
            HuggingFaceEngine(TokenizerFiles("huggingface", {"tokenizer.json": data}), "text")

    @pytest.mark.parametrize("kept", [0.01, 0.5, 0.9, 0.999])
    def test_cut_short(self, kept: float) -> None:
        data = samples.byte_level_json("cl100k").encode()
        with pytest.raises(TokenizerError, match="cannot be loaded"):
            HuggingFaceEngine(TokenizerFiles("huggingface", {"tokenizer.json": data[: int(len(data) * kept)]}), "text")

    def test_a_merge_of_unknown_tokens(self) -> None:
        tokenizer = json.loads(samples.byte_level_json("cl100k"))
        tokenizer["model"]["merges"].append(["no such", "token"])
        with pytest.raises(TokenizerError, match="cannot be loaded"):
            engine(tokenizer)


@pytest.mark.parametrize("set_by_the_user", [None, "true", "false"])
def test_the_users_own_tokenizers_keep_their_threads(
    set_by_the_user: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library reads TOKENIZERS_PARALLELISM at each call: a user's training process goes on calling it beside us."""
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    if set_by_the_user is not None:
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", set_by_the_user)
    tokenizer = engine(samples.byte_level())
    texts = large_strings(["one and two", "", "three"])
    one, two = tokenizer.encode(texts, threads=1), tokenizer.encode(texts, threads=2)
    assert (one.ids.tolist(), one.ends.tolist()) == (two.ids.tolist(), two.ends.tolist())
    tokenizer.token_starts(texts)
    assert os.environ.get("TOKENIZERS_PARALLELISM") == set_by_the_user


class TestAbsurdIds:
    """Engines make tables as long as the highest id."""

    @pytest.mark.parametrize("i", [2**24, 2**31, 2**32 - 1, 10**15])
    def test_are_refused_before_any_engine_sees_them(self, i: int) -> None:
        tokenizer = samples.byte_level()
        tokenizer["model"]["vocab"]["absurd"] = i
        with pytest.raises(TokenizerError, match=rf"gives 'absurd' the id {i:,}, and no vocabulary has so many"):
            engine(tokenizer)

    def test_of_added_tokens_too(self) -> None:
        tokenizer = samples.byte_level()
        tokenizer["added_tokens"] = [{"id": 4294967295, "content": "<x>", "special": True}]
        with pytest.raises(TokenizerError, match="gives '<x>' the id 4,294,967,295"):
            engine(tokenizer)

    def test_a_long_number_elsewhere_is_none(self) -> None:
        tokenizer = samples.byte_level()
        tokenizer["model"]["vocab"]["a: 4294967295"] = len(tokenizer["model"]["vocab"])
        assert ids(engine(tokenizer), "a") == ids(engine(samples.byte_level()), "a")


class TestNoIds:
    """A word model without an unknown token has no ids for other words: an error with a name, and a reject in a build."""

    @pytest.fixture
    def words(self, tmp_path: Path) -> Path:
        model = tokenizers.models.WordLevel({"known": 0, "words": 1})
        tokenizer = tokenizers.Tokenizer(model)
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        return tmp_path / "tokenizer.json"

    def test_is_an_error_of_ours(self, words: Path) -> None:
        made = HuggingFaceEngine(TokenizerFiles("huggingface", {"tokenizer.json": words.read_bytes()}), "text")
        assert ids(made, "known words") == [0, 1]
        with pytest.raises(CannotEncode, match=r"huggingface cannot encode this text: .*UNK"):
            ids(made, "others")

    def test_is_a_reject_in_a_build(self, words: Path, tmp_path: Path) -> None:
        source = write_jsonl(tmp_path / "a.jsonl", ["others", "known words", "what is this", "words"])
        store = tokpress.build(source, tokenizer=words, out=tmp_path / "store", max_rejects="100%", eos=False)
        assert [store.doc(i).tolist() for i in range(len(store))] == [[0, 1], [1]]
        assert store.manifest.rejects == {"cannot-encode": 2}
        assert store.verify().ok
