"""Small models of every kind that the trainer makes, and near-tied ones that it does not."""

from __future__ import annotations

import random
import struct
from functools import cache
from itertools import product
from typing import Any

from engines.models import RESERVED, SPACE, Piece, write_model
from engines.samples import train_sentencepiece

from tokpress.engines.model_proto import NORMAL

_SPACED = {"remove_extra_whitespaces": False, "allow_whitespace_only_pieces": True}
OPTIONS: dict[str, dict[str, Any]] = {
    "nmt_nfkc": {},
    "nmt_nfkc_cf": {"normalization_rule_name": "nmt_nfkc_cf"},
    "nfkc": {"normalization_rule_name": "nfkc"},
    "identity": {"normalization_rule_name": "identity"},
    "ours": {"normalization_rule_name": "identity", "byte_fallback": True, "split_digits": True, **_SPACED},
    "byte-fallback": {"byte_fallback": True, "character_coverage": 0.9},
    "no-prefix": {"add_dummy_prefix": False},
    "spaces-kept": _SPACED,
    "suffix": {"treat_whitespace_as_suffix": True},
    "suffix-spaces-kept": {"treat_whitespace_as_suffix": True, **_SPACED},
    "across-spaces": {"split_by_whitespace": False, "split_by_unicode_script": False, "split_by_number": False},
    "user-symbols": {"user_defined_symbols": ["<user>", "the", "ab", "abc", "é", "日本"]},
    "user-symbols-with-spaces": {"user_defined_symbols": ["▁the", "a▁b", "▁▁"]},
    "user-symbols-identity": {
        "user_defined_symbols": ["▁the", "▁▁", "e", "<user>"],
        "normalization_rule_name": "identity",
        **_SPACED,
    },
}
NAMES = [f"{model}-{name}" for model, name in product(("bpe", "unigram"), OPTIONS)]
FEW = [
    "bpe-nmt_nfkc",
    "bpe-user-symbols-with-spaces",
    "bpe-ours",
    "unigram-nmt_nfkc_cf",
    "unigram-user-symbols",
    "unigram-suffix",
]


@cache
def variant(name: str) -> bytes:
    model, _, options = name.partition("-")
    return train_sentencepiece(model_type=model, **OPTIONS[options])


def near_tied(seed: int, *, scale: float = 1.0, noise: float = 2.0**-19) -> bytes:
    """A unigram model in which most paths through a word have nearly the same score: a piece has its length's score, and a
    little more or less. What wins depends on the score of the text so far."""
    rng = random.Random(seed)
    pieces: list[Piece] = [*RESERVED, *((char, -2.0 * scale, NORMAL) for char in f"abc{SPACE}")]
    longer = {"".join(rng.choices(f"abc{SPACE}", k=rng.randrange(2, 5))) for _ in range(60)}
    pieces += [
        (piece, -2.0 * scale * len(piece) + rng.randrange(-4, 5) * noise * scale, NORMAL) for piece in sorted(longer)
    ]
    exact = [(piece, struct.unpack("<f", struct.pack("<f", score))[0], of) for piece, score, of in pieces]
    return write_model(exact, model_type=1, byte_fallback=False)
