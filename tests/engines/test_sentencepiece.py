"""SentencePiece `.model` files: encoded by the library itself, control symbols by the policy."""

from __future__ import annotations

import random

import pytest

from tokpress.batches import large_strings
from tokpress.engines.sentencepiece import SentencePieceEngine
from tokpress.errors import TokenizerError
from tokpress.records import SpecialTokenPolicy, TokenizerFiles

from . import samples


def engine(model: bytes, policy: SpecialTokenPolicy = "text") -> SentencePieceEngine:
    return SentencePieceEngine(TokenizerFiles("sentencepiece", {"tokenizer.model": model}), policy)


class TestInfo:
    def test_of_a_real_model(self) -> None:
        info = samples.reference("mistral-v7-real").info
        assert (info.vocab_size, info.bos_token, info.eos_token) == (32_768, "<s>", "</s>")
        assert info.special_tokens["<s>"] == 1
        assert {"[INST]", "[/INST]", "[TOOL_CALLS]"} < set(info.special_tokens)
        assert "<unk>" not in info.special_tokens

    def test_special_tokens_are_the_control_symbols(self) -> None:
        """User-defined ones are found in any text by the library: they are tokens like others."""
        info = samples.reference("sp-bpe-fallback-bare-identity").info
        assert list(info.special_tokens) == ["<s>", "</s>", "<ctrl>", "<ctrl>>"]

    @pytest.mark.parametrize(
        ("options", "bos", "eos"),
        [
            ({"bos_id": -1, "eos_id": -1, "pad_id": 1}, None, None),
            ({"bos_piece": "<bos>", "eos_piece": "<eos>"}, "<bos>", "<eos>"),
            ({"bos_id": -1, "eos_id": 1, "unk_id": 0}, None, "</s>"),
        ],
    )
    def test_bos_and_eos_as_the_model_has_them(
        self, options: dict[str, object], bos: str | None, eos: str | None
    ) -> None:
        info = engine(samples.train_sentencepiece(model_type="bpe", byte_fallback=True, **options)).info
        assert (info.bos_token, info.eos_token) == (bos, eos)


class TestPolicies:
    NAME = "sp-unigram-fallback-prefix-identity"

    def test_text_leaves_control_symbols_in_pieces(self) -> None:
        text = samples.reference(self.NAME, "text")
        tokens = text.encode(large_strings(["a<ctrl>b</s>"])).ids.tolist()
        assert not set(text.info.special_tokens.values()) & set(tokens)
        assert text.decode(tokens) == "a<ctrl>b</s>"

    def test_tokens_behind_them_start_where_their_text_does(self) -> None:
        parse = samples.reference(self.NAME, "parse")
        document = "ab</s>cd<s>é"
        [starts] = parse.token_starts(large_strings([document]))
        ids = parse.encode(large_strings([document])).ids.tolist()
        places = dict(zip(ids, starts, strict=True))
        assert places[parse.info.special_tokens["</s>"]] == 2
        assert places[parse.info.special_tokens["<s>"]] == 8
        assert max(starts) == len("ab</s>cd<s>")

    def test_parse_finds_them_and_encodes_what_is_between_alone(self) -> None:
        parse = samples.reference(self.NAME, "parse")
        special = parse.info.special_tokens
        tokens = parse.encode(large_strings(["a<ctrl>>b</s>", "</s>", ""]))
        alone = [samples.oracle(self.NAME)(part) for part in "ab"]
        assert tokens.doc(0).tolist() == [*alone[0], special["<ctrl>>"], *alone[1], special["</s>"]]
        assert tokens.doc(1).tolist() == [special["</s>"]]
        assert tokens.doc(2).tolist() == []

    @pytest.mark.parametrize("policy", samples.POLICIES)
    def test_user_defined_symbols_are_always_found(self, policy: SpecialTokenPolicy) -> None:
        found = samples.reference(self.NAME, policy)
        tokens = found.encode(large_strings(["a<user>b"])).ids.tolist()
        assert b"<user>" in map(found.token_bytes, tokens)


@pytest.mark.parametrize("name", samples.SENTENCEPIECE_FEW)
def test_few_many_long_and_short_documents_are_encoded_alike(name: str) -> None:
    """Long documents, or few of them, take another way through the library."""
    short = ["", "a", "Hello, world.", "日本 🙂\n"] * 5
    for documents in (short[:0], short[:2], short, ["word " * 700, *short[:3]], ["word " * 700] * 12):
        tokens = samples.reference(name).encode(large_strings(documents))
        assert [tokens.doc(i).tolist() for i in range(len(tokens))] == [
            samples.oracle(name)(text) for text in documents
        ]
        assert tokens.ids.dtype == "uint32"


class TestDecoding:
    def test_control_symbols_are_shown(self) -> None:
        model = samples.reference("mistral-v1-real")
        hello = model.encode(large_strings(["Hello"])).ids.tolist()
        assert model.decode([1, *hello, 2, 1, *hello, 2]) == "<s>Hello</s><s>Hello</s>"

    def test_a_character_in_bytes(self) -> None:
        model = samples.reference("mistral-v1-real")
        tokens = model.encode(large_strings(["\U0001f9ff"])).ids.tolist()
        assert b"".join(map(model.token_bytes, tokens)) == " \U0001f9ff".encode()
        assert model.decode(tokens[:-1]).startswith("\ufffd")


class TestDamagedFiles:
    @pytest.mark.parametrize("data", [b"", b"x", b"not a model at all", b"\0" * 100, b"\n\x0e\n\x05<unk>"])
    def test_are_refused(self, data: bytes) -> None:
        with pytest.raises(TokenizerError, match=r"neither a SentencePiece model nor any other .*Get the file again"):
            engine(data)

    @pytest.mark.parametrize("kept", [0.1, 0.5, 0.999])
    def test_cut_short(self, kept: float) -> None:
        data = samples.sample("mistral-v1-real").files.files["tokenizer.model"]
        with pytest.raises(TokenizerError):
            engine(data[: int(len(data) * kept)])

    def test_any_flipped_bit_gives_a_model_or_an_error_of_ours(self) -> None:
        data = samples.sample("sp-unigram-fallback-prefix-identity").files.files["tokenizer.model"]
        rng = random.Random(0)
        refused = 0
        for _ in range(300):
            broken = bytearray(data)
            broken[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            try:
                engine(bytes(broken)).encode(large_strings(["some text <ctrl>"]))
            except TokenizerError:
                refused += 1
        assert 0 < refused < 300
