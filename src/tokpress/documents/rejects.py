"""How many bad records are too many, and what is said if there are no others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from tokpress.config import reject_limit
from tokpress.errors import NothingWritten, TooManyRejects
from tokpress.records import MISSING_FIELD, OVERLONG, Reject

_TOO_LONG = (
    "They are longer than --max-length, and --overlong drop leaves them out: raise it, or truncate or split them."
)
RECORDS_BEFORE_REJECTS_COUNT = 1000  # of a share: of a few records one bad one would be a large share


def check_rejects(rejects: int, read: int, max_rejects: str, examples: Iterable[Reject]) -> None:
    """Raises TooManyRejects if these are, of so many records."""
    if rejects <= reject_limit(max_rejects, read):
        return
    examples = list(examples)
    raise TooManyRejects(
        f"{rejects:,} of {read:,} records were rejected, more than --max-rejects {max_rejects} allows. "
        f"The first of them:{_listed(examples)}{_there(examples)}\n"
        "Mend the inputs or raise the limit, and run the command again."
    )


def _there(examples: Sequence[Reject]) -> str:
    """The fields that a record without the one that was asked for does have, as far as its preview shows them."""
    missing = [reject.preview for reject in examples if reject.reason == MISSING_FIELD]
    names = re.findall(r'"([^"\\]+)"\s*:', missing[0]) if missing else []
    return f"\nThe first record has: {', '.join(names)}." if names else ""


def nothing_written(
    rejected: int,
    examples: Sequence[Reject],
    *,
    reasons: Mapping[str, int] | None = None,
    fields: Sequence[str] = (),
    where: str = "",
) -> NothingWritten:
    """For a run without one good record: why, by reason, and what the first record does have. `where`: of which inputs."""
    if not rejected:
        return NothingWritten(
            f"the inputs hold no record, so there is nothing to write{f' ({where})' if where else ''}. "
            "Check paths, --format and --separator."
        )
    counted = ", ".join(f"{count:,} {reason}" for reason, count in sorted((reasons or {}).items()))
    first = f" The first of them:{_listed(examples)}" if examples else ""
    there = f"\nThe first record has: {', '.join(fields)}." if fields else ""
    too_long = f"\n{_TOO_LONG}" if OVERLONG in (reasons or {}) else ""
    return NothingWritten(
        f"no good record was found: all {rejected:,} were rejected{f' ({counted})' if counted else ''}.{first}{there}"
        f"{too_long}\nMend the inputs or the options, and run it again."
    )


def _listed(rejects: Iterable[Reject]) -> str:
    return "".join(
        f"\n  {reject.source} at {f'line {reject.line}' if reject.line else reject.position}: "
        f"{reject.reason}, {reject.detail}"
        for reject in rejects
    )
