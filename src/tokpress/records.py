"""What is on disk or on a wire, as plain records.

In: nothing. Out: records that several packages write, read and show. A leaf: it imports nothing of ours, so that whoever
needs to know what a record holds does not get the package that makes it.
"""

from __future__ import annotations

import msgspec


class TokenizerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a tokenizer says about itself."""

    kind: str
    fingerprint: str
    vocab_size: int  # one more than the largest id, added tokens included
    special_tokens: dict[str, int]
    bos_token: str | None = None
    eos_token: str | None = None


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first document on which two engines differ, and where."""

    text: str
    token: int  # index of the first differing id
    fast: list[int]  # ids from there on, a few
    reference: list[int]

    def __str__(self) -> str:
        return f"at token {self.token}: fast {self.fast}, reference {self.reference}, in {self.text!r}"


class Parity(msgspec.Struct, frozen=True, kw_only=True):
    """What was compared before the run, and the outcome."""

    outcome: (
        str  # equal; or, of the fast engine that was tried first: different, unsupported; not-needed if there is none
    )
    engine: str  # the engine that the run uses
    reference: str
    docs: int = 0
    bytes: int = 0
    difference: Difference | None = None
    detail: str = ""
    refused: dict[str, str] = {}  # fast engines that are not used, in the order in which they were tried, and why

    @property
    def reason(self) -> str:
        """Why it is not equal."""
        return str(self.difference or self.detail)

    def __add__(self, other: Parity) -> Parity:
        """Of two parts of one proof: equal if both are, and of the same engine."""
        found = self if self.outcome != "equal" else other
        if found.outcome == "equal" and self.engine != other.engine:
            detail = f"{self.engine} and {other.engine} are each proved on a part of the sample only"
            found = msgspec.structs.replace(found, outcome="different", engine=found.reference, detail=detail)
        return msgspec.structs.replace(
            found,
            docs=self.docs + other.docs,
            bytes=self.bytes + other.bytes,
            refused=self.refused | other.refused,
        )
