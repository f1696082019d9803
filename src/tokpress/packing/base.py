"""The contract of a packing: which tokens stand where in sequence i.

In: indices of sequences. Out: `Pieces`, a handful of arrays. A packing never touches a token: it is an index over the token
stream of a split (its documents end to end, as stored), so that any number of packings and lengths share the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tokpress.arguments import whole_number
from tokpress.batches import Int64s
from tokpress.errors import UsageError

MAX_SEQ_LEN = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Pieces:
    """Runs of tokens that make up some sequences, in the order of rows, then columns. What no piece covers is padding.

    Piece j copies tokens `starts[j]:stops[j]` of the split's stream to row `rows[j]`, from column `columns[j]` on. A piece
    may span documents only if the packing runs documents together (concat): their bounds are the store's to tell.
    """

    rows: Int64s  # counted within the request: 0 .. len(indices) - 1
    columns: Int64s
    starts: Int64s
    stops: Int64s


class Packing(Protocol):
    """Fixed-length sequences over one split of a store. Cheap to pickle; made by `tokpress.packing.open_packing`."""

    name: str  # "concat", "bestfit" or "pad"
    seq_len: int

    def __len__(self) -> int:
        """How many sequences there are."""
        ...

    def pieces(self, sequences: Int64s) -> Pieces:
        """What stands in these sequences, in any order, repeats allowed; O(their pieces), not O(corpus)."""
        ...

    def sequences_of(self, doc: int) -> Int64s:
        """The sequences in which tokens of document `doc` stand, ascending."""
        ...


def check_seq_len(seq_len: int) -> None:
    whole_number("seq_len", seq_len)
    if not 1 <= seq_len <= MAX_SEQ_LEN:
        raise UsageError(f"a sequence cannot have {seq_len:,} tokens. Choose a --seq-len of 1 to {MAX_SEQ_LEN:,}.")


def check_sequences(sequences: Int64s, count: int) -> None:
    """Raises IndexError for what is outside 0 .. count - 1: an index from the end is a mistake in a sampler."""
    if len(sequences) and not (sequences.min() >= 0 and sequences.max() < count):
        wrong = int(sequences.min()) if sequences.min() < 0 else int(sequences.max())
        raise IndexError(f"sequence {wrong} is outside this packing's {count:,} sequences")
