"""What a packing costs: padding, tokens left out, documents cut.

In: counts that a packing made of itself. Out: `Waste`, a record for people, JSON and a plot. It is closed:
positions = tokens - truncated_tokens + repeated_tokens + padding, whatever the method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tokpress.batches import Int64s
from tokpress.figure import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILL_CLASSES = 10  # sequences are counted by how full they are, in tenths


class Waste(msgspec.Struct, frozen=True, kw_only=True):
    """The report of `tokpress pack`. A document is cut if no sequence holds all of it; an empty one never is."""

    method: str
    seq_len: int
    split: str
    docs: int
    tokens: int  # of the split
    sequences: int
    padding: int  # positions without a token
    truncated_tokens: int  # tokens that stand in no sequence
    repeated_tokens: int = 0  # tokens that stand in a second sequence, too: concat with an overlap
    docs_cut: int
    docs_cut_that_fit: int = 0  # those among them that are no longer than a sequence
    fill: list[int]  # sequences by how full they are: up to 10 %, up to 20 %, ... of their positions

    @property
    def positions(self) -> int:
        return self.sequences * self.seq_len

    @property
    def efficiency(self) -> float:
        """The share of positions that hold a token; 1 if there are none."""
        return 1 - self.padding_share

    @property
    def padding_share(self) -> float:
        return self.padding / self.positions if self.positions else 0.0

    def facts(self) -> dict[str, object]:
        """Everything for JSON, what follows from the counts too."""
        counts: dict[str, object] = msgspec.to_builtins(self)
        return counts | {"positions": self.positions, "efficiency": round(self.efficiency, 6)}


def fill_classes(lengths: Int64s, seq_len: int, counts: Int64s | None = None) -> Int64s:
    """How many sequences fall into each class, given the tokens in each (and how many there are of each, if not one)."""
    classes = np.maximum(-(-lengths * FILL_CLASSES // seq_len) - 1, 0)  # an empty one is in the lowest
    filled = np.zeros(FILL_CLASSES, np.int64)
    np.add.at(filled, classes, 1 if counts is None else counts)
    return filled


def plot_waste(waste: Waste, figure: Figure) -> None:
    """Where the positions and the tokens go, and how full sequences are."""
    places, fills = figure.subplots(1, 2, width_ratios=[3, 4])
    kept = waste.tokens - waste.truncated_tokens + waste.repeated_tokens
    parts = {"tokens": kept, "padding": waste.padding, "left out": waste.truncated_tokens}
    bars = places.bar(list(parts), list(parts.values()), color=["tab:blue", "lightgrey", "tab:red"])
    shares = [waste.efficiency, waste.padding_share, waste.truncated_tokens / max(waste.tokens, 1)]
    places.bar_label(bars, [f"{share:.2%}" for share in shares])
    places.set_ylabel("tokens")
    edges = np.arange(1, FILL_CLASSES + 1) * 100 // FILL_CLASSES
    fills.bar(edges - 50 // FILL_CLASSES, waste.fill, width=90 / FILL_CLASSES)
    fills.set_xlabel("% of a sequence that holds tokens")
    fills.set_ylabel("sequences")
    cut = f"{waste.docs_cut:,} of {waste.docs:,} documents cut"
    figure.suptitle(f"{waste.method}, {waste.seq_len:,} tokens: {waste.sequences:,} sequences, {cut}")


def new_plot() -> Figure:
    return new_figure(9, 4)
