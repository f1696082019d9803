"""Unigram models in a tokenizer.json: the native encoder has the ids of `tokenizers`, or refuses with the reason."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Sequence
from functools import cache
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tokpress_native", reason="the native encoder is not built: no C++ compiler")

from tokpress.batches import large_strings
from tokpress.config import TokenizerConfig
from tokpress.engines import native_json
from tokpress.engines.choice import choose_engine
from tokpress.engines.load import fast_engine, reference_engine
from tokpress.errors import TokenizerError
from tokpress.records import SpecialTokenPolicy, TokenizerFiles

from .fuzz import fuzzed
from .models import charsmap_of
from .samples import POLICIES, added_token, huggingface_files, sample, train_sentencepiece

META = "\u2581"
SPLIT = {"type": "WhitespaceSplit"}
METASPACE = {"type": "Metaspace", "replacement": META, "prepend_scheme": "always", "split": True}
NEVER = METASPACE | {"prepend_scheme": "never"}
STRIP = {"type": "Strip", "strip_left": False, "strip_right": True}
STRIP_BOTH = {"type": "Strip", "strip_left": True, "strip_right": True}
JOIN = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
JOIN_META = JOIN | {"content": META}
MARKS = [chr(code) for code in (0x300, 0x301, 0x308, 0x327, 0x338, 0x5B7, 0x64B, 0x93C, 0x94D, 0x3099, 0x200D, 0xFE0F)]
BASES = [
    *"aeAfi1 \t\r\n\0\x7f\x85\xa0\xad©®ﬁé ́ßΩאبक़กำ漢가각\u0600\u061c\u200b\u2028\u3000\ufb2a\u1e9b▁",
    "\U0001f600",
    "\U0001d15e",
    "\U000110bd",
    "\U0001f1e9",
]
PRE_TOKENIZERS: dict[str, list[dict[str, Any]]] = {
    "metaspace": [METASPACE],
    "words": [SPLIT, METASPACE],
    "never": [NEVER],
}
NORMALIZERS: dict[str, list[dict[str, Any]]] = {
    "none": [],
    "strip": [STRIP],
    "both": [STRIP_BOTH, JOIN],
    "join": [JOIN],
    "meta": [STRIP, JOIN_META],
}


def sequence(name: str, steps: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    if len(steps) < 2:
        return steps[0] if steps else None
    return {"type": "Sequence", name: [*steps]}


def tokenizer_json(
    pieces: Sequence[tuple[str, float]],
    *,
    charsmap: bytes = b"",
    normalizer: str = "none",
    pre_tokenizer: str = "words",
    added: Sequence[dict[str, Any]] = (),
    byte_fallback: bool = False,
) -> dict[str, Any]:
    steps = [{"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()}] if charsmap else []
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [*added],
        "normalizer": sequence("normalizers", [*steps, *NORMALIZERS[normalizer]]),
        "pre_tokenizer": sequence("pretokenizers", PRE_TOKENIZERS[pre_tokenizer]),
        "post_processor": None,
        "decoder": METASPACE,
        "model": {"type": "Unigram", "unk_id": 2, "vocab": [*map(list, pieces)], "byte_fallback": byte_fallback},
    }


@cache
def trained(rule: str) -> tuple[list[tuple[str, float]], bytes]:
    """A unigram model of SentencePiece's, as the converters write it: its pieces, their scores and its character map."""
    import sentencepiece

    data = train_sentencepiece(
        model_type="unigram", normalization_rule_name=rule, control_symbols=[], user_defined_symbols=[]
    )
    model: Any = sentencepiece.SentencePieceProcessor(model_proto=data)
    pieces = [(model.IdToPiece(i), model.GetScore(i)) for i in range(3, model.GetPieceSize())]
    return [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *pieces], charsmap_of(data)


def assert_equal(parsed: dict[str, Any], texts: Sequence[str], policy: SpecialTokenPolicy = "text") -> None:
    files = huggingface_files(parsed)
    engine = fast_engine("native-json", files, policy, reference_engine(files, policy))
    oracle = tokenizers.Tokenizer.from_str(json.dumps(parsed))
    oracle.encode_special_tokens = policy == "text"
    for threads in (1, 2):  # the second time the cache is warm
        tokens = engine.encode(large_strings(list(texts)), threads=threads)
        for text, got in zip(texts, np.split(tokens.ids, tokens.ends[:-1]), strict=True):
            wanted = oracle.encode(text, add_special_tokens=False).ids
            assert got.tolist() == wanted, f"{text[:200]!r}: {got[:20].tolist()} instead of {wanted[:20]}"


@pytest.mark.parametrize("pre_tokenizer", PRE_TOKENIZERS)
@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("rule", ["nmt_nfkc", "nmt_nfkc_cf", "identity"])
def test_ids(rule: str, normalizer: str, pre_tokenizer: str) -> None:
    pieces, charsmap = trained(rule)
    parsed = tokenizer_json(pieces, charsmap=charsmap, normalizer=normalizer, pre_tokenizer=pre_tokenizer)
    real = [
        *list(topics.values())[:3],
        "",
        " ",
        "  ",
        "a  ",
        "  a",
        f"{META}a",
        f"a{META}",
        f"a {META} b",
        "<unk>",
        "x<pad>y",
    ]
    assert_equal(parsed, [*real, *fuzzed(7, 300, ["<unk>", "</s>", META])])


def test_clusters() -> None:
    """Every kind of character before, between and after marks: what is looked up as a whole, and what is not."""
    pieces, charsmap = trained("nmt_nfkc")
    rng = random.Random(5)
    texts = [a + mark for a in BASES for mark in MARKS]
    texts += [
        a + b + mark + other for a in BASES for b in BASES[::3] for mark in MARKS[::3] for other in ("", *MARKS[1::4])
    ]
    texts += ["".join(rng.choices([*BASES, *MARKS, *MARKS], k=rng.randrange(1, 9))) for _ in range(4000)]
    parsed = tokenizer_json(pieces, charsmap=charsmap)
    assert_equal(parsed, texts)
    left = native_json.load(huggingface_files(parsed), "text").doubtful(large_strings(texts))
    assert len(left) < len(texts) / 3  # the reference encodes these: the others are what is tested here


@pytest.mark.parametrize("policy", POLICIES)
def test_added_tokens(policy: SpecialTokenPolicy) -> None:
    pieces, charsmap = trained("nmt_nfkc")
    added = [
        added_token("<pad>", 0),
        added_token("</s>", 1),
        added_token("<unk>", 2),
        added_token("<extra_id_0>", len(pieces)),
        added_token("<mask>", len(pieces) + 1, lstrip=True),
        added_token("fig.", len(pieces) + 2, special=False),
        added_token("<extra", len(pieces) + 3, special=False),
    ]
    literals = [token["content"] for token in added]
    texts = [
        "a</s>b",
        "</s></s>",
        " <mask> x",
        "see fig. 2",
        "<extra_id_0>",
        "<extra_id_0",
        "x </s> y",
        *fuzzed(9, 400, literals),
    ]
    assert_equal(tokenizer_json(pieces, charsmap=charsmap, added=added), texts, policy)


def test_unknown_characters_become_bytes() -> None:
    pieces, charsmap = trained("identity")
    with_bytes = [*pieces, *((f"<0x{byte:02X}>", 0.0) for byte in range(256))]
    parsed = tokenizer_json(with_bytes, charsmap=charsmap, byte_fallback=True)
    assert_equal(parsed, ["漢字", "漢<unk>", "<unk>", "<0x41>漢", *fuzzed(3, 300, ["<unk>", "<0x0A>"])])


class TestRandomModels:
    @settings(max_examples=60, deadline=None)
    @given(st.integers(0, 2**32), st.sampled_from(list(NORMALIZERS)), st.sampled_from(list(PRE_TOKENIZERS)))
    def test_small_ones(self, seed: int, normalizer: str, pre_tokenizer: str) -> None:
        """Scores that tie, or nearly, in sums of doubles."""
        rng = random.Random(seed)
        names = {"".join(rng.choices(f"abcé{META}", k=rng.randrange(1, 6))) for _ in range(40)} - {META}
        scores = [-1.0, -2.0, -0.1, -0.2, -0.3, -rng.random() * 10, -round(rng.random() * 4) / 4, 0.0]
        pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), (META, -1.0)]
        pieces += [(name, rng.choice(scores)) for name in sorted(names)]
        texts = ["".join(rng.choices(f"abcéx {META}", k=rng.choice([1, 2, 5, 20, 60, 700]))) for _ in range(15)]
        assert_equal(tokenizer_json(pieces, normalizer=normalizer, pre_tokenizer=pre_tokenizer), texts)


def test_it_is_chosen_and_the_reasons_of_others_are_recorded() -> None:
    pieces, charsmap = trained("nmt_nfkc")
    files = huggingface_files(tokenizer_json(pieces, charsmap=charsmap))
    engine, parity = choose_engine(files, TokenizerConfig(spec="x"), reference_engine(files, "text"), [])
    assert (engine.name, parity.outcome) == ("native-json", "equal")
    assert list(parity.refusals) == ["gigatoken"]


def _changed(**sections: Any) -> TokenizerFiles:
    pieces, charsmap = trained("nmt_nfkc")
    parsed = tokenizer_json(pieces, charsmap=charsmap)
    model = sections.pop("model", {})
    return huggingface_files(parsed | sections | {"model": parsed["model"] | model})


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({"normalizer": {"type": "NFKC"}}, "step 'NFKC'"),
        ({"normalizer": {"type": "Sequence", "normalizers": [JOIN, STRIP]}}, "step 'Strip'"),
        ({"normalizer": JOIN | {"content": "_"}}, "two spaces become '_'"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}, "character map is not sound"),
        ({"pre_tokenizer": None}, "pre-tokenizer is not Metaspace"),
        ({"pre_tokenizer": METASPACE | {"replacement": "_"}}, "pre-tokenizer is not Metaspace"),
        ({"pre_tokenizer": METASPACE | {"prepend_scheme": "first"}}, "before the first word only"),
        ({"pre_tokenizer": METASPACE | {"split": False}}, "does not split"),
        ({"pre_tokenizer": sequence("pretokenizers", [SPLIT, NEVER])}, "puts nothing before words"),
        ({"model": {"unk_id": None}}, "no unknown token"),
        ({"model": {"vocab": [["<unk>", 0.0], ["a", 1.0], ["b", 1.0]]}}, "U\\+2581 is no piece"),
        ({"model": {"vocab": [[META, 10.0], ["a", 10.0], ["<unk>", 10.0]]}}, "least score is above 9"),
        ({"model": {"byte_fallback": True}}, "256 byte pieces"),
        ({"added_tokens": [added_token("x", 9, special=False, normalized=True)]}, "looked for in normalised text"),
    ],
)
def test_what_is_refused(sections: dict[str, Any], reason: str) -> None:
    with pytest.raises(TokenizerError, match=f"does not take this tokenizer: .*{reason}"):
        native_json.load(_changed(**sections), "text")


def test_other_models_are_refused_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_json, "find_spec", lambda name: None)
    with pytest.raises(TokenizerError, match="its model is not unigram"):
        native_json.load(sample("cl100k").files, "text")
    with pytest.raises(TokenizerError, match=r"not installed. Run: pip install 'tokpress\[native\]'"):
        native_json.load(_changed(), "text")
