"""A `.model` read from its bytes says what the library says, and what it was trained with."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from tokpress.engines.model_proto import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, ModelProto, parse_model
from tokpress.errors import TokenizerError

from . import samples
from .fuzz import unhurried
from .models import BYTES, RESERVED, normal, write_model


def data_of(name: str) -> bytes:
    return samples.sample(name).files.files["tokenizer.model"]


@pytest.mark.parametrize("name", samples.SENTENCEPIECE)
def test_pieces_scores_and_types_are_the_library_s(name: str) -> None:
    model = parse_model(data_of(name))
    library: Any = sentencepiece.SentencePieceProcessor(model_proto=data_of(name))
    ids = list(range(library.get_piece_size()))
    assert model.pieces == library.id_to_piece(ids)
    assert model.scores == library.get_score(ids)
    for of, say in {CONTROL: library.is_control, BYTE: library.is_byte, UNKNOWN: library.is_unknown}.items():
        assert [found == of for found in model.types] == say(ids)


def test_user_defined_symbols_which_the_library_does_not_tell() -> None:
    assert list(parse_model(data_of("sp-bpe-fallback-bare-identity")).of_type(USER_DEFINED)) == ["<user>"]
    assert "[REF]" in parse_model(data_of("mistral-v7-real")).of_type(USER_DEFINED)
    assert parse_model(data_of("mistral-v1-real")).of_type(USER_DEFINED) == {}


@pytest.mark.parametrize("name", samples.SENTENCEPIECE[2:])
def test_what_a_model_was_trained_with(name: str) -> None:
    _, kind, fallback, prefix, rule = name.split("-")
    model = parse_model(data_of(name))
    assert model.model_type == {"bpe": "BPE", "unigram": "unigram"}[kind]
    assert model.byte_fallback == (fallback == "fallback")
    assert model.add_dummy_prefix == (prefix == "prefix")
    assert model.charsmap == model.remove_extra_whitespaces == (rule == "nmt_nfkc")
    assert model.keeps_text == (rule == "identity")


@pytest.mark.parametrize("name", samples.SENTENCEPIECE[:2])
def test_real_models_keep_text_as_it_is(name: str) -> None:
    model = parse_model(data_of(name))
    assert (model.model_type, model.keeps_text, model.add_dummy_prefix) == ("BPE", True, True)


@pytest.mark.parametrize(
    ("option", "attribute"), [("suffix", "whitespace_is_suffix"), ("remove_spaces", "remove_extra_whitespaces")]
)
def test_options_that_change_text(option: str, attribute: str) -> None:
    model = parse_model(write_model(RESERVED, **{option: True}))
    assert getattr(model, attribute)
    assert not model.keeps_text
    assert not parse_model(write_model(RESERVED, escape=False)).keeps_text


def test_what_is_left_out_has_the_format_s_defaults() -> None:
    piece = b"\x0a\x03\x0a\x01a"  # one with neither score nor type
    assert parse_model(piece) == ModelProto(
        pieces=["a"],
        scores=[0.0],
        types=[NORMAL],
        model_type="unigram",
        byte_fallback=False,
        charsmap=False,
        add_dummy_prefix=True,
        remove_extra_whitespaces=True,
        escape_whitespaces=True,
        whitespace_is_suffix=False,
    )


MODEL = write_model([*RESERVED, *BYTES[:2], *normal("ab", "é")])
changed = st.builds(
    lambda at, other: MODEL[:at] + other + MODEL[at + 1 :], st.integers(0, len(MODEL) - 1), st.binary(max_size=3)
)


class TestDamaged:
    def test_cut_short_it_is_refused_or_whole_pieces_are_left(self) -> None:
        whole = parse_model(MODEL)
        read = []
        for end in range(len(MODEL)):
            with suppress(TokenizerError):
                read.append(parse_model(MODEL[:end]))
        assert all(model.pieces == whole.pieces[: len(model.pieces)] for model in read)
        assert len(whole.pieces) < len(read) < len(MODEL) // 2
        with pytest.raises(TokenizerError, match="the SentencePiece model cannot be read: it ends early"):
            parse_model(MODEL[:-1])

    @unhurried
    @given(changed | st.binary(max_size=60))
    def test_whatever_the_bytes_no_other_error_comes_out(self, data: bytes) -> None:
        with suppress(TokenizerError):
            assert len(parse_model(data).pieces) <= len(data)
