"""How many bad records are too many."""

from __future__ import annotations

from collections.abc import Iterable

from tokpress.config import reject_limit
from tokpress.errors import TooManyRejects
from tokpress.records import Reject

RECORDS_BEFORE_REJECTS_COUNT = 1000  # of a share: of a few records one bad one would be a large share


def check_rejects(rejects: int, read: int, max_rejects: str, examples: Iterable[Reject]) -> None:
    """Raises TooManyRejects if these are, of so many records."""
    if rejects <= reject_limit(max_rejects, read):
        return
    shown = "".join(
        f"\n  {reject.source} at {f'line {reject.line}' if reject.line else reject.position}: "
        f"{reject.reason}, {reject.detail}"
        for reject in examples
    )
    raise TooManyRejects(
        f"{rejects:,} of {read:,} records were rejected, more than --max-rejects {max_rejects} allows. "
        f"The first of them:{shown}\nMend the inputs or raise the limit, and run the command again."
    )
