"""The library's ids, for models of every kind and texts of every kind; `make native-exact` runs all of it.

The tests of scores are those that a rule taken out of the encoder must fail: see `mutations.toml`.
"""

from __future__ import annotations

import random
import unicodedata

import pytest

pytest.importorskip("tokpress_native", reason="the native encoder is not built: no C++ compiler")

from engines.fuzz import fuzzed
from engines.models import BYTES, RESERVED, model_files, random_model, write_model
from engines.samples import corpus, package_file
from hypothesis import given, settings
from hypothesis import strategies as st

from tokpress.engines.model_proto import NORMAL, UNUSED

from .comparing import WHOLE, assert_equal
from .variants import FEW, NAMES, near_tied, variant

MISTRAL = ["tokenizer.model.v1", "mistral_instruct_tokenizer_240323.model.v3"]
LITERALS = ["<user>", "<s>", "<ctrl>", "the", "ab", "abc", "日本", "a b", "  ", "▁the"]
FUZZED = 200_000 if WHOLE else 400


@pytest.mark.parametrize("name", NAMES if WHOLE else FEW)
class TestVariants:
    def test_fuzzed_texts(self, name: str) -> None:
        for seed in range(0, FUZZED, 5000):
            assert_equal(variant(name), fuzzed(seed, min(FUZZED, 5000), LITERALS))

    def test_real_texts(self, name: str) -> None:
        assert_equal(variant(name), corpus() if WHOLE else corpus()[:60])


@pytest.mark.parametrize("name", MISTRAL)
class TestMistral:
    def test_fuzzed_texts(self, name: str) -> None:
        model = package_file("mistral_common", f"data/{name}").read_bytes()
        for seed in range(0, FUZZED, 5000):
            assert_equal(model, fuzzed(seed, min(FUZZED, 5000), LITERALS))

    def test_real_texts(self, name: str) -> None:
        assert_equal(package_file("mistral_common", f"data/{name}").read_bytes(), corpus() if WHOLE else corpus()[:60])


class TestCharacters:
    """Alone, and beside combining marks and jamo, which character maps join."""

    @pytest.mark.parametrize("name", NAMES if WHOLE else ["unigram-nmt_nfkc", "bpe-nmt_nfkc_cf"])
    def test_every_one(self, name: str) -> None:
        codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
        if not WHOLE:
            codes = [*range(0x3000), *random.Random(0).sample(codes[0x3000:], 5_000)]
        marks = [chr(code) for code in range(0x110000) if unicodedata.combining(chr(code))]
        beside = [
            "\u0301",
            "\u0327",
            "\u0338",
            "\u1161",
            "\u11a8",
            "\u3099",
            "\u309a",
            "\u093c",
            *marks[:: len(marks) // 8],
        ]
        for begin in range(0, len(codes), 50_000):
            part = codes[begin : begin + 50_000]
            assert_equal(variant(name), [*map(chr, part), *(f"a{chr(code)}b" for code in part)], starts=False)
            for mark in beside if WHOLE else beside[:3]:
                assert_equal(variant(name), [f"{chr(code)}{mark}" for code in part], starts=False)

    @pytest.mark.parametrize("name", ["unigram-nmt_nfkc", "bpe-spaces-kept"] if WHOLE else ["unigram-nmt_nfkc"])
    def test_where_a_block_ends(self, name: str) -> None:
        """A mark, a run of spaces, a symbol at each place around the 32 and 64 bytes that are looked at together."""
        texts = [
            "x" * before + part + "y" * after
            for before in range(100)
            for part in ("e\u0301", "  ", " \u3000", "é", "漢", "<user>", "\t\n ", "\x01", "ﬁ")
            for after in (0, 1, 33, 70)
        ]
        assert_equal(variant(name), texts)


class TestScores:
    """Unigram models add scores in 32-bit floats over the whole text, and take them away beyond 1e5."""

    @pytest.mark.parametrize("seed", range(40 if WHOLE else 4))
    def test_nearly_equal_ones(self, seed: int) -> None:
        rng = random.Random(seed)
        texts = ["".join(rng.choices("aabbcc ", k=rng.choice([20, 500, 5_000, 20_000]))) for _ in range(12)]
        assert_equal(near_tied(seed), texts, starts=False)

    @pytest.mark.parametrize("seed", range(40 if WHOLE else 4))
    def test_beyond_100_000(self, seed: int) -> None:
        rng = random.Random(seed)
        texts = ["".join(rng.choices("aabbcc ", k=30_000)) for _ in range(4)]
        texts += ["".join(rng.choices("aabbccxyz ", k=30_000))]
        assert_equal(near_tied(seed, scale=10.0), texts, starts=False)

    def test_that_are_reset_inside_a_segment(self) -> None:
        """Each character takes 30,000 away: the library's reset comes again and again, also where no cut is."""
        pieces = [*RESERVED, *((char, -30_000.0, NORMAL) for char in "abc"), ("ab", -60_000.01, NORMAL)]
        model = write_model(
            [*pieces, ("bc", -59_999.99, NORMAL), ("ca", -60_000.0, NORMAL)], model_type=1, byte_fallback=False
        )
        rng = random.Random(1)
        assert_equal(model, ["".join(rng.choices("abc", k=length)) for length in range(1, 60) for _ in range(10)])

    def test_that_are_positive(self) -> None:
        pieces = [*RESERVED, ("a", 0.5, NORMAL), ("b", -1.0, NORMAL), ("ab", -0.5, NORMAL), ("ba", 0.25, NORMAL)]
        rng = random.Random(2)
        texts = ["".join(rng.choices("ab ", k=rng.randrange(1, 400))) for _ in range(300)]
        assert_equal(write_model(pieces, model_type=1, byte_fallback=False), texts)

    def test_that_cancel_out(self) -> None:
        """On the way through "ab" the sum is 1,000, and what is small in the score before it is rounded away."""
        pieces = [("a", 1000.0, NORMAL), ("b", -1000.0, NORMAL), ("ab", 1e-5, NORMAL), ("c", -2e-5, NORMAL)]
        model = write_model([*RESERVED, *pieces], model_type=1, byte_fallback=False, prefix=False)
        assert_equal(model, ["c" * before + "ab" for before in range(50)])

    def test_of_merges_that_are_equal_or_zero(self) -> None:
        pieces = [
            ("ab", -0.0, NORMAL),
            ("bc", 0.0, NORMAL),
            ("ca", 0.0, NORMAL),
            ("bb", -1.0, NORMAL),
        ]
        singles = [(char, -9.0, NORMAL) for char in "ac▁"]  # b is no piece itself, but a part of some
        rng = random.Random(3)
        texts = ["".join(rng.choices("abc ", k=rng.randrange(1, 120))) for _ in range(500)]
        assert_equal(write_model([*RESERVED, *BYTES, *pieces, *singles]), texts)
        assert_equal(write_model([*RESERVED, *pieces, *singles], byte_fallback=False), texts)


class TestRandomModels:
    @settings(max_examples=3000 if WHOLE else 60, deadline=None)
    @given(st.integers(0, 2**32), st.sampled_from([1, 2]), st.booleans(), st.booleans(), st.booleans(), st.booleans())
    def test_small_ones(self, seed: int, kind: int, fallback: bool, prefix: bool, suffix: bool, remove: bool) -> None:
        rng = random.Random(seed)
        alphabet, pieces = random_model(rng)
        if kind == 1:
            scores = [rng.choice([-1.0, -2.0, -rng.random() * 10, -round(rng.random() * 4) / 4]) for _ in pieces]
            pieces = [
                (piece, score, UNUSED if of == NORMAL and rng.random() < 0.05 else of)
                for (piece, _, of), score in zip(pieces, scores, strict=True)
            ]
        model = write_model(
            [*RESERVED, *(BYTES if fallback else []), *pieces],
            model_type=kind,
            byte_fallback=fallback,
            prefix=prefix,
            suffix=suffix,
            remove_spaces=remove,
        )
        letters = alphabet.replace("▁", " ") + rng.choice(["", "", "▁", "z", "é "])
        texts = ["".join(rng.choices(letters, k=rng.choice([1, 2, 5, 20, 60, 300]))) for _ in range(15)]
        assert_equal(model, texts)


@pytest.mark.parametrize("kind", [1, 2])
def test_worst_strings_take_no_quadratic_time(kind: int) -> None:
    """A document without a place to cut, of each kind that was found to be slow; minutes if it were quadratic."""
    pieces = [("a" * length, -float(length), NORMAL) for length in range(1, 17)] + [
        ("b", -20.0, NORMAL),
        ("ab", -1.0, NORMAL),
        ("ba", -2.0, NORMAL),
    ]
    files = model_files(pieces, model_type=kind)
    (model,) = files.files.values()
    size = 400_000
    assert_equal(
        model,
        ["a" * size, "ab" * (size // 2), "aab" * (size // 3), " " * size, "x" * size, "é" * (size // 2)],
        starts=False,
    )
