"""Which engine is used: fast ones by rank, each only if it is proved; and what is recorded of those that are not."""

from __future__ import annotations

from functools import reduce
from operator import add

import msgspec
import pytest

from tokpress.batches import large_strings
from tokpress.config import TokenizerConfig
from tokpress.engines.base import Engine
from tokpress.engines.choice import choose_engine, engine_named
from tokpress.errors import ParityError, TokenizerError
from tokpress.records import Parity

from . import samples
from .plugins import Install


def choose(*sample: str, asked: str = "auto", part: slice = slice(None)) -> tuple[Engine, Parity]:
    """Of the engines for bytes."""
    reference = samples.reference("bytes")
    texts = [large_strings([text]) for text in sample]
    config = TokenizerConfig(spec="bytes", engine=asked)
    return choose_engine(samples.sample("bytes").files, config, reference, texts, part)


class TestRanks:
    def test_the_first_that_is_equal_is_used(self, install: Install) -> None:
        install("other", "swift")
        engine, parity = choose("some text")
        assert (engine.name, parity.outcome, parity.engine) == ("swift", "equal", "swift")
        assert parity.refusals == {}

    def test_one_that_does_not_take_the_tokenizer_is_passed_over(self, install: Install) -> None:
        install("choosy", "swift")
        engine, parity = choose("some text")
        assert (engine.name, parity.outcome) == ("swift", "equal")
        assert parity.refusals == {"choosy": "it takes no bytes"}

    def test_one_that_differs_is_passed_over(self, install: Install) -> None:
        install("swift", "other")
        engine, parity = choose("fine", "this is wrong")
        assert (engine.name, parity.outcome, parity.engine) == ("other", "equal", "other")
        assert list(parity.refusals) == ["swift"]
        assert "'this is wrong'" in parity.refusals["swift"]

    def test_without_any_that_is_equal_it_is_the_reference(self, install: Install) -> None:
        install("other", "swift", "choosy")
        engine, parity = choose("mistaken and wrong")
        assert (engine.name, parity.outcome, parity.engine) == ("bytes", "unsupported", "bytes")  # of the first one
        assert list(parity.refusals) == ["choosy", "swift", "other"]

    def test_one_that_fails_on_the_sample_is_refused(self, install: Install) -> None:
        install("swift")
        engine, parity = choose("do not panic")
        assert (engine.name, parity.outcome) == ("bytes", "unsupported")
        assert parity.refusals == {"swift": "it cannot encode this"}

    def test_without_fast_engines_there_is_nothing_to_prove(self) -> None:
        engine, parity = choose("some text")
        assert (engine.name, parity) == ("bytes", Parity(outcome="not-needed", engine="bytes", reference="bytes"))


class TestAsked:
    def test_only_that_one_is_tried(self, install: Install) -> None:
        install("choosy", "other", "swift")
        engine, parity = choose("this is wrong", asked="other")
        assert (engine.name, parity.refusals) == ("other", {})

    def test_the_reference_is_not_compared(self, install: Install) -> None:
        install("swift")
        engine, parity = choose("some text", asked="bytes")
        assert (engine.name, parity.outcome, parity.docs) == ("bytes", "not-needed", 0)

    def test_one_that_differs_is_an_error(self, install: Install) -> None:
        install("swift", "other")
        with pytest.raises(ParityError, match=r"swift and bytes encode .*'this is wrong'.*--engine bytes"):
            choose("this is wrong", asked="swift")

    def test_one_that_fails_is_an_error(self, install: Install) -> None:
        install("swift")
        with pytest.raises(ParityError, match=r"it cannot encode this.*--engine bytes"):
            choose("do not panic", asked="swift")

    def test_one_that_does_not_take_the_tokenizer_is_an_error(self, install: Install) -> None:
        install("choosy", "swift")
        with pytest.raises(TokenizerError, match="it takes no bytes"):
            choose(asked="choosy")


class TestParts:
    """Several workers prove a part of the sample each."""

    SAMPLE = ("fine", "wrong", "mistaken", "fine again")  # each worker has the nasty strings or some of these

    def test_what_one_refused_no_one_uses(self, install: Install) -> None:
        install("swift")
        parities = [choose(*self.SAMPLE, part=slice(part, None, 3))[1] for part in range(3)]
        assert [parity.outcome for parity in parities] == ["equal", "equal", "different"]
        together = reduce(add, parities)
        assert (together.outcome, together.engine) == ("different", "bytes")
        assert list(together.refusals) == ["swift"]

    def test_an_engine_that_is_proved_on_a_part_only_is_not_used(self, install: Install) -> None:
        install("swift", "other")
        parities = [choose(*self.SAMPLE[:2], part=slice(part, None, 3))[1] for part in range(3)]
        assert [parity.engine for parity in parities] == ["swift", "swift", "other"]
        together = reduce(add, parities)
        assert (together.outcome, together.engine) == ("different", "bytes")
        assert "swift and other are each proved on a part of the sample only" in together.detail
        assert together.docs == sum(parity.docs for parity in parities)


def test_the_engine_that_another_worker_chose(install: Install) -> None:
    install("swift")
    files, config, reference = samples.sample("bytes").files, TokenizerConfig(spec="bytes"), samples.reference("bytes")
    assert engine_named("swift", files, config, reference).name == "swift"
    assert engine_named("bytes", files, config, reference) is reference


def test_records_of_stores_written_before_are_read() -> None:
    old = b'{"outcome":"unsupported","engine":"huggingface","reference":"huggingface","detail":"no"}'
    parity = msgspec.json.decode(old, type=Parity)
    assert (parity.refusals, parity.reason) == ({}, "no")
    assert msgspec.json.decode(msgspec.json.encode(parity), type=Parity) == parity
