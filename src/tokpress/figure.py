"""The one way to a plot: matplotlib, which is an extra, without its global state."""

from __future__ import annotations

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
