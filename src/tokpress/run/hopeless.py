"""What no second try can mend: errors that end a run, and say what to do.

In: how a worker ended. Out: nothing, or the error.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokpress.errors import NotEnoughMemory, TokpressError
from tokpress.records import STDIN, Input
from tokpress.run.messages import Encoding

_MOST_MEMORY_PER_BYTE = 1000  # that any engine may take for honest text


def check_no_large_document(last: Encoding | None, memory_bytes: int, inputs: Sequence[Input]) -> None:
    """A document that takes much memory because it is long is the user's to decide on. It is not set aside: whether it is
    stored must not depend on --memory."""
    if last and last.first == last.last and memory_bytes < _MOST_MEMORY_PER_BYTE * last.text_bytes:
        source = inputs[last.first[0]].path
        raise NotEnoughMemory(
            f"the document at {last.first[1]:,} of {source}, {last.text_bytes:,} bytes of text, takes more than "
            f"{memory_bytes // 10**6:,} MB to encode. Run the same command again with more --memory."
        )


def check_readable_again(inputs: Sequence[Input], cause: str) -> None:
    """What a dead worker had read of a pipe is gone."""
    if any(source.path == STDIN for source in inputs):
        raise TokpressError(
            f"the worker that reads standard input has ended ({cause}), and what it had read cannot be read again. Write "
            "the input to a file and build from that, with --overwrite: there a document that ends workers is found and "
            "set aside."
        )
