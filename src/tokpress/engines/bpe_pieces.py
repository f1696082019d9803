"""A SentencePiece BPE model as a list of merges, for engines that take those; or why it cannot be one.

In: a `ModelProto`. Out: the same tokenizer as a `tokenizer.json`, which makes the same ids of text that is normalised.

The library starts with single characters. Of all neighbours that together spell a piece it joins those whose piece has the
highest score, of equal ones the leftmost, and so on until there are none. A list of merges joins the pair that stands
first in the list, of the same pair the leftmost. Why the two are the same, if every split of every piece is listed in the
order of scores:

- What happens inside a stretch of text, up to the moment at which it consists of two symbols, does not depend on what is
  around it: until then nothing was joined across its ends, and each join inside was the best one of the stretch, too. So
  the library joins a pair (a, b) anywhere only if it comes to a, b when it encodes the text ab alone. That
  takes one course and has two symbols once: of each piece only one split is ever joined. The others in the list
  never meet, so their order does not matter, and with one score a piece the best pair of the one is the best of the other.
- Pieces with equal scores are the exception. One case is real and is proved here: runs of one character (Mistral gives
  all its runs of spaces the same score). Other such models are refused.

What a piece is made of must be pieces, too, and there are more rules that make a model one that is refused: see `_refuse`.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from tokpress.engines.model_proto import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, ModelProto
from tokpress.errors import TokenizerError

SPACE = "\u2581"  # how normalised text writes a space
_LONGEST = 64  # characters of a user-defined symbol: the library looks at so many that begin alike

Merge = tuple[str, str]


def as_tokenizer_json(model: ModelProto, added_tokens: Mapping[str, int], *, normalizer: Any = None) -> bytes:
    """For text that is normalised already, or by this normalizer. Added tokens are found in text before anything else.
    Raises TokenizerError if no list of merges can be proved to do what the library does."""
    _refuse(model)
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return msgspec.json.encode(
        {
            "version": "1.0",
            "added_tokens": [{"id": i, "content": name, **plain} for name, i in added_tokens.items()],
            "normalizer": normalizer,
            "pre_tokenizer": None,
            "post_processor": None,
            "decoder": None,
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": True,
                "ignore_merges": False,
                "vocab": model.of_type(NORMAL) | model.of_type(BYTE),
                "merges": _merges(model),
            },
        }
    )


def _merges(model: ModelProto) -> list[Merge]:
    """All splits of all pieces, by score; where scores are equal, those of longer pieces first."""
    normal = model.of_type(NORMAL)
    pieces = sorted(normal, key=lambda piece: (-model.scores[normal[piece]], -len(piece)))
    merges = [
        (piece[:i], piece[i:])
        for piece in pieces
        for i in range(1, len(piece))
        if piece[:i] in normal and piece[i:] in normal
    ]
    _check_equal_scores(model, normal, merges)
    return merges


def _refuse(model: ModelProto) -> None:
    normal, user = model.of_type(NORMAL), model.of_type(USER_DEFINED)
    reserved = model.of_type(UNKNOWN) | model.of_type(CONTROL) | model.of_type(BYTE)
    characters = {piece for piece in (*normal, *user) if len(piece) == 1}
    reasons: dict[str, bool | Iterator[str]] = {
        f"it is a {model.model_type} model of SentencePiece, not BPE": model.model_type != "BPE",
        "its SentencePiece model has no byte fallback": not model.byte_fallback,
        "its SentencePiece model leaves spaces as they are": not model.escape_whitespaces,
        "its SentencePiece model has unused pieces": UNUSED in model.types,
        "its SentencePiece model has a score that is no number": not all(map(math.isfinite, model.scores)),
        "its piece {!r} holds a space, which normalised text does not": (piece for piece in normal if " " in piece),
        "its piece {!r} has two meanings": (piece for piece in normal if piece in reserved),
        "its piece {!r} looks like a byte": (piece for piece in normal if piece[:3] == "<0x" and len(piece) == 6),
        "its piece {!r} holds a character that is no piece": (
            piece for piece in normal if not characters.issuperset(piece)
        ),
        "its symbol {!r} is a character that text may hold": (piece for piece in reserved if len(piece) == 1),
        "its user-defined symbol {!r} holds a space or a NUL": (
            piece for piece in user if not {*" \0"}.isdisjoint(piece)
        ),
        f"its user-defined symbol {{!r}} has more than {_LONGEST} characters": (
            piece for piece in user if len(piece) > _LONGEST
        ),
    }
    for reason, found in reasons.items():
        culprit = found if isinstance(found, bool) else next(found, False)
        if culprit is not False:
            raise TokenizerError(reason.format(culprit))


def _check_equal_scores(model: ModelProto, normal: Mapping[str, int], merges: Sequence[Merge]) -> None:
    by_score: dict[float, list[str]] = defaultdict(list)
    for piece in dict.fromkeys(left + right for left, right in merges):
        by_score[model.scores[normal[piece]]].append(piece)
    for pieces in by_score.values():
        if len(pieces) > 1 and not _are_runs(pieces, normal, merges):
            names = f"{pieces[0]!r} and {pieces[1]!r}"
            raise TokenizerError(f"its pieces {names} have the same score: which is joined first is a matter of place")


def _are_runs(pieces: Sequence[str], normal: Mapping[str, int], merges: Sequence[Merge]) -> bool:
    """Whether these are runs of a character and all pieces in which it is doubled, and every run in a text is cut up in the
    same way by place (the library's way with equal scores) and by the list.

    Nothing else than runs is made of a run then, and no run elsewhere has to do with it. Once the longest piece is made
    of the beginning of a run, nothing joins it, and the rest is a run of its own. So it is enough to look at all runs
    shorter than that piece, and to see it made at the beginning of one that is twice as long.
    """
    character, runs = pieces[0][0], set(pieces)
    doubled = {piece for piece in normal if character * 2 in piece}
    if doubled != runs or any(piece.strip(character) for piece in runs):
        return False
    sizes = ((len(left), len(right)) for left, right in merges if left + right in runs)
    by_list = {pair: rank for rank, pair in enumerate(sizes)}
    by_place = dict.fromkeys(by_list, 0)
    longest = max(map(len, pieces))
    parted = [longest] + [1] * longest
    return all(
        deque(_joined(length, by_list), 1) == deque(_joined(length, by_place), 1) for length in range(longest)
    ) and all(parted in _joined(2 * longest, order) for order in (by_list, by_place))


def _joined(length: int, order: Mapping[tuple[int, int], int]) -> Iterator[list[int]]:
    """A run of so many characters, as the sizes of its symbols: from single ones to the end, a pair joined each time."""
    sizes = [1] * length
    yield sizes
    while found := [(order[pair], at) for at, pair in enumerate(pairwise(sizes)) if pair in order]:
        _, at = min(found)
        sizes = [*sizes[:at], sizes[at] + sizes[at + 1], *sizes[at + 2 :]]
        yield sizes
