"""Every engine and every kind of tokenizer goes through the suite that we ship, and the suite finds out who breaks it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from tokpress.config import SpecialTokenPolicy
from tokpress.engines.conformance import PROMISES, Subject

from . import samples


@cache
def subject(engine: str, name: str, policy: SpecialTokenPolicy) -> Subject:
    found = samples.sample(name)
    makers = {"reference": samples.reference, "gigatoken": samples.fast}
    return Subject(
        lambda files, policy: makers[engine](name, policy),
        found.files,
        policy,
        lossless=policy in found.lossless,
        whole_bytes=found.whole_bytes,
        lost=found.lost,
        huge_bytes=300_000 if engine == "gigatoken" else 50_000,
    )


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
@pytest.mark.parametrize("policy", samples.POLICIES)
class TestOurs:
    @pytest.mark.parametrize("name", [*samples.HUGGINGFACE, *samples.TIKTOKEN, *samples.SENTENCEPIECE_FEW, "bytes"])
    def test_references(self, name: str, policy: SpecialTokenPolicy, promise: Callable[[Subject], None]) -> None:
        promise(subject("reference", name, policy))

    @pytest.mark.parametrize("name", samples.FAST)
    def test_gigatoken(self, name: str, policy: SpecialTokenPolicy, promise: Callable[[Subject], None]) -> None:
        promise(subject("gigatoken", name, policy))
