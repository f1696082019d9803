"""The proof before a run, and the audit during it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from tokpress.batches import Ids, TextBatch, TokenBatch, large_strings, text_bytes
from tokpress.config import TokenizerConfig
from tokpress.engines.base import Engine, concat_tokens
from tokpress.engines.choice import choose_engine
from tokpress.engines.load import fast_engine, reference_engine
from tokpress.engines.parity import AUDIT_MAX_BYTES, Auditor, check_parity, compare, nasty_texts
from tokpress.engines.tiktoken import PATTERNS, rank_files
from tokpress.errors import ParityError, TokenizerError
from tokpress.records import Difference, Parity, SpecialTokenPolicy, TokenizerFiles

from . import samples


def choose(
    files: TokenizerFiles,
    engine: str = "auto",
    policy: SpecialTokenPolicy = "text",
    sample: Sequence[str] = (),
) -> tuple[Engine, Parity]:
    config = TokenizerConfig(spec="x", engine=engine, special_tokens=policy)
    return choose_engine(files, config, reference_engine(files, policy), [large_strings(list(sample))])


def without_merge(files: TokenizerFiles, merged: str) -> TokenizerFiles:
    """The same tokenizer, but for one merge: it differs where that one is used."""
    tokenizer = json.loads(files.files["tokenizer.json"])
    kept = [merge for merge in tokenizer["model"]["merges"] if "".join(merge) != merged]
    assert len(kept) < len(tokenizer["model"]["merges"])
    tokenizer["model"]["merges"] = kept
    return replace(files, files={**files.files, "tokenizer.json": json.dumps(tokenizer).encode()})


@pytest.fixture(scope="module")
def wrong() -> Engine:
    """gigatoken with files of which one merge is missing."""
    files = samples.sample("gpt2").files
    return fast_engine("gigatoken", without_merge(files, "Ġthe"), "text", samples.reference("gpt2"))


class TestOutcome:
    @pytest.mark.parametrize("policy", samples.POLICIES)
    @pytest.mark.parametrize("name", samples.FAST)
    def test_equal(self, name: str, policy: SpecialTokenPolicy) -> None:
        sample = [large_strings(samples.corpus()[:30]), large_strings([""]), large_strings(samples.corpus()[-30:])]
        parity = check_parity(samples.fast(name, policy), samples.reference(name, policy), sample)
        assert parity.outcome == "equal"
        assert (parity.engine, parity.reference) == ("gigatoken", samples.reference(name).name)
        assert parity.docs > 61
        assert parity.bytes > sum(map(text_bytes, sample))
        assert parity.difference is None

    def test_different_shows_the_first_differing_document(self, wrong: Engine) -> None:
        sample = [large_strings(["fine", "fine too"]), large_strings(["fine", "of the land", "the end of the"])]
        parity = check_parity(wrong, samples.reference("gpt2"), sample)
        assert parity.outcome == "different"
        assert (parity.engine, parity.reference) == ("huggingface", "huggingface")
        assert parity.difference is not None
        assert parity.difference.text == "of the land"
        theirs = samples.oracle("gpt2")("of the land")
        at = parity.difference.token
        assert parity.difference.reference == theirs[at : at + 8]
        assert parity.difference.fast != parity.difference.reference
        for part in (f"at token {at}", str(theirs[at]), "'of the land'"):
            assert part in str(parity.difference)

    def test_what_is_after_a_difference_is_not_encoded(self, wrong: Engine) -> None:
        sample = [large_strings(["of the land"]), large_strings(["more"] * 100)]
        assert check_parity(wrong, samples.reference("gpt2"), sample).docs < 100 + len(nasty_texts([]))

    def test_without_a_sample_the_nasty_texts_are_compared(self) -> None:
        parity = check_parity(samples.fast("gpt2"), samples.reference("gpt2"), [])
        assert parity.docs == len(nasty_texts(samples.reference("gpt2").info.special_tokens))

    @pytest.mark.parametrize("parts", [2, 3, 7])
    def test_in_parts_it_finds_the_same_as_in_one(self, wrong: Engine, parts: int) -> None:
        sample = [large_strings([text]) for text in samples.corpus()[:20]]
        reference = samples.reference("gpt2")
        for fast in (samples.fast("gpt2"), wrong):
            whole = check_parity(fast, reference, sample)
            first, *others = (check_parity(fast, reference, sample, slice(part, None, parts)) for part in range(parts))
            together = sum(others, first)
            assert (together.outcome, together.engine) == (whole.outcome, whole.engine)
            assert together == whole or whole.outcome == "different"  # up to where each of them found one

    @pytest.mark.parametrize("where", [0, 1, 2])
    def test_a_difference_in_any_part_is_one_of_the_whole(self, where: int) -> None:
        found = Difference(text="x", token=3, fast=[1], reference=[2])
        equal = Parity(outcome="equal", engine="gigatoken", reference="huggingface", docs=5, bytes=70)
        different = Parity(
            outcome="different", engine="huggingface", reference="huggingface", docs=2, bytes=9, difference=found
        )
        first, *others = (different if part == where else equal for part in range(3))
        assert sum(others, first) == msgspec.structs.replace(different, docs=12, bytes=149)
        assert equal + equal == msgspec.structs.replace(equal, docs=10, bytes=140)

    def test_the_same_sample_gives_the_same_record(self, wrong: Engine) -> None:
        sample = [large_strings(samples.corpus())]
        reference = samples.reference("gpt2")
        assert check_parity(wrong, reference, sample) == check_parity(wrong, reference, sample)


class TestCompare:
    TEXT = large_strings(["a", "b", "c"])

    def batch(self, *documents: list[int]) -> TokenBatch:
        ends = np.cumsum([len(document) for document in documents])
        return TokenBatch(np.array([token for document in documents for token in document], np.uint32), ends)

    def test_equal(self) -> None:
        assert compare(self.batch([1], [], [2, 3]), self.batch([1], [], [2, 3]), self.TEXT) is None

    @pytest.mark.parametrize(
        ("documents", "text", "token", "fast", "reference"),
        [
            (([1], [9], [2, 3]), "b", 0, [9], []),
            (([1], [], [2, 4]), "c", 1, [4], [3]),
            (([1], [], [2]), "c", 1, [], [3]),
            (([1, 2], [3], []), "a", 1, [2], []),  # the same ids, cut elsewhere
        ],
    )
    def test_the_first_difference(
        self, documents: tuple[list[int], ...], text: str, token: int, fast: list[int], reference: list[int]
    ) -> None:
        found = compare(self.batch(*documents), self.batch([1], [], [2, 3]), self.TEXT)
        assert found is not None
        assert (found.text, found.token, found.fast, found.reference) == (text, token, fast, reference)

    def test_a_long_document_is_shown_by_its_head(self) -> None:
        text = large_strings(["x" * 1000])
        found = compare(self.batch([1]), self.batch([2]), text)
        assert found is not None
        assert found.text == "x" * 200 + "…"


# Tokenizers that gigatoken loads, but reads differently: real differences, which the nasty texts must show.


def _renumbered() -> TokenizerFiles:
    """Ids with a gap before an added token: `tokenizers` closes it."""
    tokenizer = samples.byte_level()
    tokenizer["added_tokens"].append(samples.added_token("<far>", 5000))
    return samples.huggingface_files(tokenizer)


def _single_words() -> TokenizerFiles:
    tokenizer = samples.byte_level()
    beyond = len(tokenizer["model"]["vocab"])
    tokenizer["added_tokens"].append(samples.added_token("<word>", beyond, special=False, single_word=True))
    return samples.huggingface_files(tokenizer)


def _normalized() -> TokenizerFiles:
    """Found after normalization, where ">" and a stroke have become one character."""
    tokenizer = samples.byte_level("qwen2") | {"normalizer": {"type": "NFC"}}
    beyond = len(tokenizer["model"]["vocab"])
    tokenizer["added_tokens"].append(samples.added_token("<late>", beyond, special=False, normalized=True))
    return samples.huggingface_files(tokenizer)


def _early_and_late() -> TokenizerFiles:
    """Two that begin alike: the one that is found before normalization is found first."""
    tokenizer = samples.byte_level()
    beyond = len(tokenizer["model"]["vocab"])
    tokenizer["added_tokens"] += [
        samples.added_token("<x>", beyond, special=False),
        samples.added_token("<x>y", beyond + 1, special=False, normalized=True),
    ]
    return samples.huggingface_files(tokenizer)


def _spaces() -> TokenizerFiles:
    """One takes the spaces after it along, though they are a token too."""
    tokenizer = samples.byte_level()
    beyond = len(tokenizer["model"]["vocab"])
    tokenizer["added_tokens"] += [
        samples.added_token("<sep>", beyond, special=False, rstrip=True),
        samples.added_token("\n\n\n", beyond + 1, special=False),
    ]
    return samples.huggingface_files(tokenizer)


def _alike() -> TokenizerFiles:
    """Two special tokens that begin alike: tiktoken takes the shorter one."""
    count = len(samples.small_ranks().splitlines())
    return rank_files(samples.small_ranks(), PATTERNS["gpt2"], {"<|fim|>": count, "<|fim|>>": count + 1})


def _whitespace() -> TokenizerFiles:
    """tiktoken's own form of a pattern, with a vocabulary that shows where it is not the plain one."""
    tokens = [bytes([byte]) for byte in range(256)] + [b"\n ", b"\n  "]
    ranks = b"".join(b"%s %d\n" % (base64.b64encode(token), i) for i, token in enumerate(tokens))
    pattern = (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|"
        r"\s+(?!\S)|\s"
    )
    return rank_files(ranks, pattern, {})


@pytest.mark.parametrize(
    ("files", "policy"),
    [
        (_renumbered, "parse"),
        (_single_words, "text"),
        (_normalized, "text"),
        (_early_and_late, "text"),
        (_spaces, "text"),
        (_alike, "parse"),
        (_whitespace, "text"),
    ],
)
class TestRealDifferences:
    def test_auto_falls_back_to_the_reference(
        self, files: Callable[[], TokenizerFiles], policy: SpecialTokenPolicy
    ) -> None:
        engine, parity = choose(files(), "auto", policy)
        assert engine.name == parity.engine == parity.reference != "gigatoken"
        assert parity.outcome == "different"
        assert parity.difference is not None

    def test_gigatoken_alone_fails(self, files: Callable[[], TokenizerFiles], policy: SpecialTokenPolicy) -> None:
        with pytest.raises(ParityError, match=r"at token .*fast \[.*reference \[.*Use the reference: --engine"):
            choose(files(), "gigatoken", policy)


class TestChoice:
    def test_auto_takes_the_fast_engine(self) -> None:
        engine, parity = choose(samples.sample("gpt2").files, sample=["some text"])
        assert (engine.name, parity.outcome) == ("gigatoken", "equal")

    @pytest.mark.parametrize("name", samples.UNSUPPORTED)
    def test_auto_takes_the_reference_where_the_fast_one_cannot(self, name: str) -> None:
        engine, parity = choose(samples.sample(name).files)
        assert (engine.name, parity.outcome) == ("huggingface", "unsupported")
        assert "gigatoken does not support this tokenizer" in parity.detail

    @pytest.mark.parametrize("name", samples.UNSUPPORTED)
    def test_gigatoken_that_cannot_is_an_error(self, name: str) -> None:
        with pytest.raises(TokenizerError, match="gigatoken does not support this tokenizer"):
            choose(samples.sample(name).files, "gigatoken")

    def test_bytes_need_no_proof(self) -> None:
        engine, parity = choose(samples.sample("bytes").files)
        assert engine.name == parity.engine == "bytes"
        assert parity.outcome == "not-needed"

    def test_a_reference_that_is_asked_for_needs_no_proof(self) -> None:
        engine, parity = choose(samples.sample("gpt2").files, "huggingface")
        assert (engine.name, parity.outcome) == ("huggingface", "not-needed")

    def test_an_engine_of_another_kind_is_an_error(self) -> None:
        with pytest.raises(TokenizerError, match="--engine tiktoken cannot be used for a huggingface tokenizer"):
            choose(samples.sample("gpt2").files, "tiktoken")


class TestNastyTexts:
    def test_hold_what_tokenizers_stumble_over(self) -> None:
        everything = "\0".join(nasty_texts(["<s>", "</s>"]))
        for hard in (
            "<s>",
            "a</s>b",
            "\u0301",
            " " * 1000,
            "\0",
            "👩‍👩‍👧‍👦",
            "\r\n",
            "\u00a0",
            "\u202e",
            "\ufeff",
            "\U000323b0",
        ):
            assert hard in everything

    def test_hold_every_added_token(self) -> None:
        names = [f"<|reserved_{i}|>" for i in range(1000)]
        everything = "\n".join(nasty_texts(names))
        assert all(f"a{name}b" in everything for name in names)

    def test_are_valid_text(self) -> None:
        large_strings(nasty_texts(["<s>"])).validate(full=True)


# --- the audit


class WrongAbout(Engine):
    """An engine that is right but for documents with a certain word."""

    name = "wrong"

    def __init__(self, right: Engine, word: str) -> None:
        self._right = right
        self._word = word
        self.info = right.info
        self.encoded: list[int] = []  # bytes of every call

    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
        self.encoded.append(text_bytes(text))
        tokens = self._right.encode(text)
        parts = []
        for i, document in enumerate(text.to_pylist()):
            part = tokens.part(i, i + 1)
            parts.append(TokenBatch(part.ids ^ np.uint32(1), part.ends) if self._word in document else part)
        return concat_tokens(parts)

    def decode(self, ids: Ids | Sequence[int]) -> str:
        return self._right.decode(ids)

    def token_bytes(self, token: int) -> bytes:
        return self._right.token_bytes(token)


def text_batch(documents: list[str], *, source: int = 0, first: int = 0) -> TextBatch:
    return TextBatch(
        text=large_strings(documents),
        positions=np.arange(first, first + len(documents)),
        sources=np.full(len(documents), source, np.int32),
        input=source,
        next_position=first + len(documents),
    )


def auditor(rate: float, word: str = "never there") -> tuple[Auditor, WrongAbout]:
    engine = WrongAbout(samples.reference("bytes"), word)
    return Auditor(engine, samples.reference("bytes"), rate), engine


def audited(documents: list[str], rate: float, *, source: int = 0, first: int = 0) -> set[int]:
    """Positions of the documents that an audit of such a batch looks at, found out one by one."""
    found = set()
    for i, document in enumerate(documents):
        audit, engine = auditor(rate)
        batch = text_batch([document], source=source, first=first + i)
        audit.check(batch, engine.encode(batch.text))
        if audit.docs:
            found.add(first + i)
    return found


class TestAuditor:
    @pytest.mark.parametrize("rate", [0.001, 0.01, 0.1, 0.5])
    def test_looks_at_about_its_share(self, rate: float) -> None:
        audit, engine = auditor(rate)
        batch = text_batch(["x"] * 20_000, source=3)
        audit.check(batch, engine.encode(batch.text))
        expected = rate * 20_000
        assert abs(audit.docs - expected) < 5 * np.sqrt(expected)
        assert audit.bytes == audit.docs

    @pytest.mark.parametrize(("rate", "share"), [(1.0, 1), (0.0, 0)])
    def test_all_or_nothing(self, rate: float, share: int) -> None:
        audit, engine = auditor(rate)
        batch = text_batch(["", "a", "bc"] * 500)
        audit.check(batch, engine.encode(batch.text))
        assert (audit.docs, audit.bytes) == (1500 * share, 1500 * share)

    def test_the_choice_depends_on_input_and_position_alone(self) -> None:
        chosen = audited(["a"] * 300, 0.2)
        assert audited(["another text"] * 300, 0.2) == chosen
        assert audited(["a"] * 100, 0.2, first=100) == {i for i in chosen if 100 <= i < 200}
        assert audited(["a"] * 300, 0.2, source=1) != chosen

    def test_the_choice_does_not_depend_on_batches(self) -> None:
        whole, engine = auditor(0.2)
        batch = text_batch([str(i) for i in range(300)])
        whole.check(batch, engine.encode(batch.text))
        cut, _ = auditor(0.2)
        for start in range(0, 300, 7):
            part = text_batch([str(i) for i in range(start, min(start + 7, 300))], first=start)
            cut.check(part, engine.encode(part.text))
        assert (cut.docs, cut.bytes) == (whole.docs, whole.bytes)

    def test_a_higher_rate_looks_at_the_same_and_more(self) -> None:
        assert audited(["a"] * 300, 0.05) < audited(["a"] * 300, 0.3)

    def test_a_difference_stops_the_run(self) -> None:
        audit, engine = auditor(1.0, word="bad")
        batch = text_batch(["good", "a bad one", "good"], source=4, first=70)
        with pytest.raises(ParityError) as raised:
            audit.check(batch, engine.encode(batch.text))
        for part in ("wrong and bytes", "input 4, position 71", "'a bad one'", "--engine bytes"):
            assert part in str(raised.value)
        assert audit.docs == 1

    def test_a_difference_elsewhere_is_not_seen(self) -> None:
        audit, engine = auditor(0.2, word="bad")
        chosen = audited([""] * 50, 0.2)
        batch = text_batch(["good" if i in chosen else "bad" for i in range(50)])
        audit.check(batch, engine.encode(batch.text))
        assert audit.docs == len(chosen)

    def test_a_batch_may_be_a_slice_of_its_memory(self) -> None:
        audit, engine = auditor(1.0)
        whole = text_batch(["left out", "a", "bc", ""])
        batch = replace(whole, text=whole.text[1:], positions=whole.positions[1:], sources=whole.sources[1:])
        audit.check(batch, engine.encode(batch.text))
        assert (audit.docs, audit.bytes) == (3, 3)

    def test_no_documents(self) -> None:
        audit, _ = auditor(1.0)
        audit.check(text_batch([]), samples.reference("bytes").encode(large_strings([])))
        assert (audit.docs, audit.bytes) == (0, 0)

    class TestLongDocuments:
        def test_are_audited_by_their_head(self) -> None:
            audit, engine = auditor(1.0)
            batch = text_batch(["é" * AUDIT_MAX_BYTES, "short"])
            tokens = engine.encode(batch.text)
            audit.check(batch, tokens)
            assert engine.encoded[1:] == [AUDIT_MAX_BYTES]  # the head is encoded again, by the fast engine too
            assert (audit.docs, audit.bytes) == (2, AUDIT_MAX_BYTES + 5)

        def test_the_head_ends_with_a_whole_character(self) -> None:
            audit, engine = auditor(1.0)
            batch = text_batch(["a" + "é" * AUDIT_MAX_BYTES])
            audit.check(batch, engine.encode(batch.text))
            assert audit.bytes == AUDIT_MAX_BYTES - 1

        def test_a_difference_in_the_head_is_found(self) -> None:
            audit, engine = auditor(1.0, word="bad")
            batch = text_batch(["bad" + "x" * AUDIT_MAX_BYTES])
            with pytest.raises(ParityError):
                audit.check(batch, engine.encode(batch.text))
