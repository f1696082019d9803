"""A SentencePiece BPE model as merges: the same ids as the library's, or a reason why not."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from tokpress.batches import large_strings
from tokpress.engines.bpe_pieces import as_tokenizer_json
from tokpress.engines.load import fast_engine, reference_engine
from tokpress.engines.model_proto import CONTROL, NORMAL, UNUSED, USER_DEFINED, parse_model
from tokpress.errors import TokenizerError
from tokpress.records import SpecialTokenPolicy, TokenizerFiles

from . import samples
from .models import SPACE, Piece, characters, model_files, normal, random_model, random_texts

ABC = characters("abc▁")


def runs(char: str, *lengths: int, score: float = -1e9) -> list[Piece]:
    return [(char * length, score, NORMAL) for length in lengths]


def refusal(files: TokenizerFiles) -> str | None:
    try:
        as_tokenizer_json(parse_model(files.files["tokenizer.model"]), {})
    except TokenizerError as error:
        return str(error)
    return None


def assert_equal(files: TokenizerFiles, documents: list[str], policy: SpecialTokenPolicy = "text") -> None:
    """To what the library says of each, called directly."""
    reference = reference_engine(files, policy)
    ours = fast_engine("gigatoken", files, policy, reference).encode(large_strings(documents), threads=2)
    theirs = reference.encode(large_strings(documents))
    for i, document in enumerate(documents):
        assert np.array_equal(ours.doc(i), theirs.doc(i)), document


class TestEqual:
    @pytest.mark.parametrize("seed", range(40))
    def test_random_models_on_random_texts(self, seed: int) -> None:
        """Or refused for the one reason that a random model may give."""
        rng = random.Random(seed)
        alphabet, pieces = random_model(rng)
        options = {name: rng.random() < 0.4 for name in ("prefix", "remove_spaces", "suffix")}
        files = model_files(pieces, **options)
        literals = [piece for piece, _, of in pieces if of in (CONTROL, USER_DEFINED)]
        if reason := refusal(files):
            assert "have the same score" in reason
            return
        for policy in samples.POLICIES:
            assert_equal(files, random_texts(rng, alphabet, [*literals, "<0x61>"]), policy)

    def test_the_order_of_scores_is_that_of_merges(self) -> None:
        assert_equal(model_files([*normal("bc", "ab"), *ABC]), ["abc", "ab bc", "abcabc"])
        assert_equal(model_files([*normal("ab", "bc"), *ABC]), ["abc", "ab bc", "abcabc"])

    def test_a_piece_of_higher_score_than_its_parts(self) -> None:
        """It is joined as soon as its parts are there, before pieces that were waiting."""
        assert_equal(model_files([*normal("abab", "abc", "ab", "bc", "ca"), *ABC]), ["ababab", "abcabab", "cababc"])

    def test_a_piece_that_can_be_split_in_two_ways(self) -> None:
        assert_equal(model_files([*normal("ab", "bc", "abc"), *ABC]), ["abc", "aabcc", "abcbc"])
        assert_equal(model_files([*normal("aa", "aaa", "baa"), *ABC]), ["a" * n + "b" + "a" * n for n in range(9)])

    def test_characters_that_are_no_pieces_are_bytes(self) -> None:
        assert_equal(model_files([*normal("ab"), *ABC]), ["aébé", "\0a\x80", "🙂ab", "x", "\n"])


class TestRuns:
    """Of one character, all with the same score: the library joins those that stand first."""

    @pytest.mark.parametrize(
        "lengths",
        [range(2, 17), [*range(2, 15), 16], [2], [2, 3], [2, 4], [2, 4, 8], [2, 3, 5], [2, 4, 5, 7]],
        ids=["llama", "mistral", "2", "3", "2-4", "doubled", "2-3-5", "2-4-5-7"],
    )
    @pytest.mark.parametrize("char", [SPACE, "a"])
    @pytest.mark.parametrize("score", [-1e9, 0.5])
    def test_are_cut_up_as_the_library_does_it(self, char: str, lengths: list[int], score: float) -> None:
        files = model_files([*normal("ab", "▁b"), *runs(char, *lengths, score=score), *ABC])
        plain = char.replace(SPACE, " ")
        documents = [f"{before}{plain * length}{after}" for length in range(70) for before in "b " for after in " bc"]
        assert_equal(files, documents)

    def test_longer_ones_have_to_come_first(self) -> None:
        """What the order of the list is for: in the order of lengths, four spaces would be two and two."""
        files = samples.sample("mistral-v1-real").files
        model = parse_model(files.files["tokenizer.model"])
        listed = as_tokenizer_json(model, {}).decode()
        assert listed.index('["▁▁▁","▁"]') < listed.index('["▁▁","▁"]') < listed.index('["▁","▁"]')

    @pytest.mark.parametrize(
        "others",
        [
            normal("▁▁a"),  # a run is part of another piece
            [("▁▁▁▁▁", -5.0, NORMAL)],  # a run has another score
            [("ab", -1e9, NORMAL)],  # another piece has the score of the runs
        ],
    )
    def test_beside_pieces_that_have_to_do_with_them_are_refused(self, others: list[Piece]) -> None:
        assert "have the same score" in str(refusal(model_files([*runs(SPACE, 2, 3, 4), *others, *ABC])))

    def test_of_which_the_longest_is_never_made_are_refused(self) -> None:
        """Eight is four and four, or so it seems: the fifth joins the first four before."""
        assert "have the same score" in str(refusal(model_files([*runs(SPACE, 2, 4, 5, 8), *ABC])))


class TestRefused:
    @pytest.mark.parametrize(
        ("files", "reason"),
        [
            (model_files(ABC, model_type=1), "it is a unigram model of SentencePiece, not BPE"),
            (model_files(ABC, model_type=3), "it is a word model"),
            (model_files(ABC, byte_fallback=False), "no byte fallback"),
            (model_files(ABC, escape=False), "leaves spaces as they are"),
            (model_files([*ABC, ("ab", 0.0, UNUSED)]), "unused pieces"),
            (model_files([*ABC, ("ab", math.nan, NORMAL)]), "a score that is no number"),
            (model_files([*ABC, ("ab", -math.inf, NORMAL)]), "a score that is no number"),
            (model_files([*ABC, *normal("a b")]), "its piece 'a b' holds a space"),
            (model_files([*ABC, *normal("<s>")]), "its piece '<s>' has two meanings"),
            (model_files([*ABC, *normal("<0xab>")]), "its piece '<0xab>' looks like a byte"),
            (model_files([*ABC, *normal("ax")]), "its piece 'ax' holds a character that is no piece"),
            (model_files([*ABC, ("x", 0.0, CONTROL)]), "its symbol 'x' is a character that text may hold"),
            (model_files([*ABC, ("a b", 0.0, USER_DEFINED)]), "'a b' holds a space or a NUL"),
            (model_files([*ABC, ("a\0", 0.0, USER_DEFINED)]), "holds a space or a NUL"),
            (model_files([*ABC, ("a" * 65, 0.0, USER_DEFINED)]), "has more than 64 characters"),
            (model_files([*ABC, *runs("a", 2), *runs("b", 2)]), "'aa' and 'bb' have the same score"),
        ],
        ids=str,
    )
    def test_with_a_reason(self, files: TokenizerFiles, reason: str) -> None:
        assert reason in str(refusal(files))

    def test_pieces_that_double_a_character_are_no_runs(self) -> None:
        tied = [("aab", -9.0, NORMAL), ("aac", -9.0, NORMAL)]
        assert "'aab' and 'aac' have the same score" in str(refusal(model_files([*ABC, *normal("ab", "ac"), *tied])))

    def test_equal_scores_of_pieces_that_nothing_makes_do_not_matter(self) -> None:
        files = model_files([*ABC, ("<x>", -7.0, NORMAL), ("abc", -7.0, NORMAL), *characters("<x>")])
        assert_equal(files, ["<x>abc<x", "abc"])

    def test_a_piece_with_a_user_defined_character_is_never_made(self) -> None:
        files = model_files([("b", 0.0, USER_DEFINED), *normal("ac", "abc"), *characters("ac▁")], prefix=False)
        assert_equal(files, ["abc", "acbac", " b "])
