"""Documents as LLM Foundry's turns: what is said, and the answer to it, in turn.

In: a document's ids and mask. Out: JSON of `[{"input_ids": [...], "labels": [...]}, ...]`, whose lists end to end are the
document; with `target_prompts: none, target_responses: all` its trainer has loss on all labels and on nothing else. What
stands after the last token in the loss is left out: nothing is learned there, and its trainer refuses a turn without an
answer. It puts EOS after an answer that does not end with it.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from tokpress.batches import Ids


def turns_of(ids: Ids, mask: Any) -> list[dict[str, list[int]]]:
    """Empty if nothing of the document is in the loss."""
    loss = np.ones(len(ids), np.bool_) if mask is None else np.asarray(mask) != 0
    changes = np.flatnonzero(
        np.diff(loss, prepend=False, append=False)
    )  # starts and ends of what is in the loss, in turn
    turns, place = [], 0
    for start, stop in changes.reshape(-1, 2).tolist():
        turns.append({"input_ids": ids[place:start].tolist(), "labels": ids[start:stop].tolist()})
        place = stop
    return turns


def encoded_turns(ids: Ids, mask: Any) -> bytes:
    return msgspec.json.encode(turns_of(ids, mask))
