"""Text that is hard on tokenizers: a seeded generator, and the same pieces as a Hypothesis strategy."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st

unhurried = settings(deadline=None)  # a first call loads libraries

WHITESPACE = [
    "\r\n",
    "\n\n",
    "    ",
    *" \n\t\r\x0b\x0c\x1c\x1f\x85\xa0\u1680\u180e\u2003\u2007\u2028\u202f\u205f\u3000",
]
WORDS = ["the", " of", "Token", "naïve", "Straße", "日本", "각", "กำ", "नि"]
LETTERS = [*"İıǅſKÅʰªﷺ"]
MARKS = ["\u0301", "\u0316", "\u0338", "\u0345", "e\u0301", "\u1100\u1161\u11a8", "\ufe0f", "\u20e3", "\u08d4"]
NUMBERS = ["1", "123", "45678", "١٢", "²", "½", "Ⅷ", "㎏", "\U0001d7ce"]
CONTRACTIONS = ["'s", "'S", "'ll", "'LL", "'ſ", "’s"]
SYMBOLS = ["((", "...", "!!", "//", "/*", "##", "_", "=", "{", "}", '"', "▁", "Ġ", "\\n"]
EMOJI = ["🙂", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪", "\u200d"]
INVISIBLE = [*"\0\x7f\x80\u200b\u200e\u202e\u2066\ufeff\ufffd\ufffe\ue000\U0010ffff"]
# Of Unicode 15 to 18: libraries differ in whether they know them.
NEWCOMERS = [
    *"\U00031350\U0002ebf0\ua7cb\U00010d40\U00010d69\ua7ce\U0001fae9\U0001faea\U000323b0\u1adc\u0558\U0003d000"
]
PIECES: list[str] = (
    WHITESPACE + WORDS + LETTERS + MARKS + NUMBERS + CONTRACTIONS + SYMBOLS + EMOJI + INVISIBLE + NEWCOMERS
)


def fuzzed(seed: int, count: int, literals: Sequence[str] = ()) -> list[str]:
    """So many documents of many kinds, the same for the same seed; `literals` are special tokens to strew in."""
    rng = random.Random(seed)
    return [rng.choice(_KINDS)(rng, literals) for _ in range(count)]


def _mixed(rng: random.Random, literals: Sequence[str]) -> str:
    pieces = [*PIECES, *rng.choices(literals, k=20)] if literals else PIECES
    return rng.choice(["", "", " ", "\n"]).join(rng.choices(pieces, k=rng.randrange(40)))


def _run(rng: random.Random, literals: Sequence[str]) -> str:
    piece: str = rng.choice([*PIECES, *literals])
    return piece * rng.choice([2, 3, 17, 100, 400])


def _spaces(rng: random.Random, literals: Sequence[str]) -> str:
    return "".join(rng.choices(WHITESPACE, k=rng.randrange(20))) + rng.choice(["", "x", *literals])


def _ascii(rng: random.Random, literals: Sequence[str]) -> str:
    return "".join(chr(rng.randrange(128)) for _ in range(rng.randrange(80)))


def _anything(rng: random.Random, literals: Sequence[str]) -> str:
    codes = (rng.choice([rng.randrange(0x3000), rng.randrange(0x110000)]) for _ in range(rng.randrange(40)))
    return "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000)


_KINDS = [_mixed, _mixed, _mixed, _run, _spaces, _ascii, _anything]


def texts(literals: Sequence[str] = ()) -> st.SearchStrategy[str]:
    """The same for Hypothesis, which shrinks what it finds."""
    piece = st.sampled_from([*PIECES, *literals]) | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    run = st.builds(str.__mul__, piece, st.integers(2, 60))
    joined: st.SearchStrategy[str] = st.lists(piece | run, max_size=12).map("".join)
    return joined
