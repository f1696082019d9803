"""The one way to a plot: matplotlib, which is an extra, without its global state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tokpress.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("plots need matplotlib. Install it: pip install 'tokpress[plot]'") from None
    return Figure(figsize=(width, height), layout="constrained")


def plot_bars(path: str, title: str, unit: str, values: Mapping[str, float]) -> None:
    """A PNG: a horizontal bar for each, its value at its end, the first on top."""
    figure = new_figure(8, 1.4 + 0.4 * len(values))
    axes = figure.subplots()
    bars = axes.barh(list(values), list(values.values()))
    axes.bar_label(bars, [f"{value:,.3g}" if value < 1000 else f"{value:,.0f}" for value in values.values()], padding=3)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_title(title)
    axes.set_xlabel(unit)
    axes.grid(axis="x", alpha=0.3)
    figure.savefig(path, dpi=150)
