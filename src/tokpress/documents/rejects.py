"""How many bad records are too many, and what is said if there are no others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tokpress.config import reject_limit
from tokpress.errors import NothingWritten, TooManyRejects
from tokpress.records import Reject

RECORDS_BEFORE_REJECTS_COUNT = 1000  # of a share: of a few records one bad one would be a large share


def check_rejects(rejects: int, read: int, max_rejects: str, examples: Iterable[Reject]) -> None:
    """Raises TooManyRejects if these are, of so many records."""
    if rejects <= reject_limit(max_rejects, read):
        return
    raise TooManyRejects(
        f"{rejects:,} of {read:,} records were rejected, more than --max-rejects {max_rejects} allows. "
        f"The first of them:{_listed(examples)}\nMend the inputs or raise the limit, and run the command again."
    )


def nothing_written(
    rejected: int,
    examples: Sequence[Reject],
    *,
    reasons: Mapping[str, int] | None = None,
    fields: Sequence[str] = (),
) -> NothingWritten:
    """For a run without one good record: why, by reason, and what the first record does have."""
    if not rejected:
        return NothingWritten(
            "the inputs hold no record, so there is nothing to write. Check paths, --format and --separator."
        )
    counted = ", ".join(f"{count:,} {reason}" for reason, count in sorted((reasons or {}).items()))
    first = f" The first of them:{_listed(examples)}" if examples else ""
    there = f"\nThe first record has: {', '.join(fields)}." if fields else ""
    return NothingWritten(
        f"no good record was found: all {rejected:,} were rejected{f' ({counted})' if counted else ''}.{first}{there}\n"
        "Mend the inputs or the options, and run it again."
    )


def _listed(rejects: Iterable[Reject]) -> str:
    return "".join(
        f"\n  {reject.source} at {f'line {reject.line}' if reject.line else reject.position}: "
        f"{reject.reason}, {reject.detail}"
        for reject in rejects
    )
