"""What every engine must do, as a suite that any engine can be put through: one of ours or yours.

In: a `Subject`, which says how an engine is made and what it promises. Out: nothing, or a `ConformanceError` that names
the promise and the document that breaks it. No test framework is needed:

    from tokpress.engines.conformance import Subject, conform
    conform(Subject(MyEngine, files, "text"))

To see each promise as a test of its own, parametrise over `PROMISES`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from tokpress.batches import TokenBatch, large_strings
from tokpress.engines.base import Engine
from tokpress.engines.parity import nasty_texts
from tokpress.errors import IdRangeError
from tokpress.records import SpecialTokenPolicy, TokenizerFiles

_TINY_DOCS = 5_000


class ConformanceError(AssertionError):
    """An engine breaks a promise."""


@dataclass(frozen=True)
class Subject:
    """An engine to be put through the suite, and which of the promises that not every tokenizer keeps it makes."""

    make: Callable[[TokenizerFiles, SpecialTokenPolicy], Engine]
    files: TokenizerFiles
    policy: SpecialTokenPolicy
    lossless: bool = True  # decode(encode(text)) == text
    whole_bytes: bool = True  # the bytes of a document's tokens, one after another, are the bytes of its text
    lost: str = ""  # characters that an otherwise lossless tokenizer does not keep
    huge_bytes: int = 1_000_000  # half a second for a slow engine

    @cached_property
    def engine(self) -> Engine:
        return self.make(self.files, self.policy)

    @cached_property
    def texts(self) -> list[str]:
        """Documents hard to get right, the tokenizer's own special tokens among them."""
        return nasty_texts(list(self.engine.info.special_tokens)[:20])

    @cached_property
    def kept_texts(self) -> list[str]:
        """Of these, what the tokenizer does not lose."""
        return [text.translate(dict.fromkeys(map(ord, self.lost))) for text in self.texts]


def conform(subject: Subject) -> None:
    """Checks every promise; raises ConformanceError at the first one that is broken."""
    for promise in PROMISES:
        promise(subject)


def describes_itself(subject: Subject) -> None:
    info = subject.engine.info
    _require(bool(subject.engine.name), "the engine has no name")
    _require(info.vocab_size > 0, f"the vocabulary has {info.vocab_size} tokens")
    _require(info.kind == subject.files.kind, f"the kind is {info.kind!r}, that of the files {subject.files.kind!r}")
    ids = list(info.special_tokens.values())
    _require(len(set(ids)) == len(ids), f"two special tokens have one id: {info.special_tokens}")
    _require(all(info.special_tokens), "a special token has no name")
    for name, token in info.special_tokens.items():
        _require(0 <= token < info.vocab_size, f"{name!r} has id {token}, outside the {info.vocab_size} tokens")


def fingerprint_is_that_of_the_files(subject: Subject) -> None:
    """The same for the same bytes, another one for any other byte, file name or kind."""
    files = subject.files
    _require(subject.engine.info.fingerprint == files.fingerprint, "the fingerprint is not that of the files")
    _require(replace(files, files=dict(files.files)).fingerprint == files.fingerprint, "the fingerprint is not stable")
    others = [replace(files, kind=files.kind + "x"), replace(files, files={**files.files, "more": b""})]
    for name, data in files.files.items():
        for i in {0, len(data) // 2, len(data) - 1} if data else ():
            changed = data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :]
            others.append(replace(files, files={**files.files, name: changed}))
    fingerprints = {files.fingerprint, *(other.fingerprint for other in others)}
    _require(len(fingerprints) == len(others) + 1, "different files have the same fingerprint")


def empty_batches_are_empty(subject: Subject) -> None:
    none = pa.array([], pa.large_string())
    for text in (none, large_strings(["a", "b"])[1:1], none.slice(0, 0)):
        _require_equal(_encode(subject, text), [], "an empty batch")


def empty_documents_have_no_tokens(subject: Subject) -> None:
    for texts in ([""], ["", ""], ["", "a", "", "", "b", ""]):
        tokens = _encode(subject, large_strings(texts))
        for i, text in enumerate(texts):
            _require(bool(len(tokens.doc(i))) == bool(text), f"{text!r} has the tokens {tokens.doc(i).tolist()}")


def documents_do_not_depend_on_their_batch(subject: Subject) -> None:
    """Together, one by one, reversed: a document's ids are the same."""
    alone = [_encode(subject, large_strings([text])).ids.tolist() for text in subject.texts]
    _require_equal(_encode(subject, large_strings(subject.texts)), alone, "all texts in one batch")
    _require_equal(_encode(subject, large_strings(subject.texts[::-1])), alone[::-1], "all texts, reversed")


def slices_are_read_in_place(subject: Subject) -> None:
    """An array that begins in the middle of its memory, and one that ends before its memory does."""
    text = large_strings(subject.texts)
    for start, stop in ((0, 5), (3, 4), (7, len(text)), (len(text) - 1, len(text))):
        alone = _lists(_encode(subject, large_strings(subject.texts[start:stop])))
        _require_equal(_encode(subject, text[start:stop]), alone, f"texts {start} to {stop} as a slice")


def threads_change_nothing(subject: Subject) -> None:
    text = large_strings(subject.texts * 3)
    expected = _lists(_encode(subject, text))
    for threads in (1, 2, 3):
        _require_equal(_encode(subject, text, threads=threads), expected, f"encoding with {threads} threads")


def results_last(subject: Subject) -> None:
    """What an engine has returned stays as it is, and so does what it was given."""
    text = large_strings(subject.texts)
    first = _encode(subject, text)
    before = _lists(first)
    _encode(subject, large_strings([text[::-1] for text in subject.texts]))
    _require(_lists(first) == before, "a later call changed an earlier result")
    _require_equal(_encode(subject, text), before, "the same batch again")
    _require(text.to_pylist() == subject.texts, "the engine changed the text")


def huge_documents_are_encoded(subject: Subject) -> None:
    words = "The quick brown Fuchs läuft 1234 mal über 漢字 und 🙂.\n\n    "
    huge = words * (subject.huge_bytes // len(words.encode()))
    tokens = _encode(subject, large_strings(["a", huge, "b"]))
    _require(
        len(tokens.doc(1)) > len(huge) // 50, f"a document of {len(huge)} characters has {len(tokens.doc(1))} tokens"
    )
    for i, text in enumerate(("a", huge, "b")):
        _require_lossless(subject, text, tokens.doc(i).tolist())


def many_documents_are_encoded(subject: Subject) -> None:
    tiny = ["", "a", " ", "é", "\n", "漢", "b c", "🙂"]
    alone = _lists(_encode(subject, large_strings(tiny)))
    times = _TINY_DOCS // len(tiny)
    _require_equal(_encode(subject, large_strings(tiny * times)), alone * times, f"{times * len(tiny)} tiny documents")


def text_comes_back(subject: Subject) -> None:
    """For lossless tokenizers: by decoding, and by putting the bytes of the tokens together."""
    tokens = _encode(subject, large_strings(subject.kept_texts))
    for i, text in enumerate(subject.kept_texts):
        _require_lossless(subject, text, tokens.doc(i).tolist())


def special_tokens_are_shown_by_name(subject: Subject) -> None:
    engine = subject.engine
    plain = _encode(subject, large_strings(["x"])).ids.tolist()
    for name, token in engine.info.special_tokens.items():
        shown = engine.decode([*plain, token, *plain])
        _require(name in shown, f"{name!r} between two words is decoded as {shown!r}")
        _require(engine.token_bytes(token) == name.encode(), f"the bytes of {name!r} are {engine.token_bytes(token)!r}")


def literals_follow_the_policy(subject: Subject) -> None:
    """A special token's name in a document is ordinary text, or with "parse" its id."""
    wanted = 1 if subject.policy == "parse" else 0
    for name, token in subject.engine.info.special_tokens.items() if subject.lossless else ():
        ids = _encode(subject, large_strings([f"a{name}b"])).ids.tolist()
        _require(ids.count(token) == wanted, f"with the policy {subject.policy!r} 'a{name}b' becomes {ids}")


def unknown_ids_are_refused(subject: Subject) -> None:
    _require(subject.engine.decode([]) == "", "no ids are decoded as something")
    for beyond in (subject.engine.info.vocab_size, 2**32 - 1):
        try:
            shown = subject.engine.decode([beyond])
        except IdRangeError:
            continue
        raise ConformanceError(f"id {beyond}, outside the vocabulary, is decoded as {shown!r}")


PROMISES: tuple[Callable[[Subject], None], ...] = (
    describes_itself,
    fingerprint_is_that_of_the_files,
    empty_batches_are_empty,
    empty_documents_have_no_tokens,
    documents_do_not_depend_on_their_batch,
    slices_are_read_in_place,
    threads_change_nothing,
    results_last,
    huge_documents_are_encoded,
    many_documents_are_encoded,
    text_comes_back,
    special_tokens_are_shown_by_name,
    literals_follow_the_policy,
    unknown_ids_are_refused,
)


def _encode(subject: Subject, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
    """Encodes, and checks what holds for every result: types, order, closure, range."""
    tokens = subject.engine.encode(text, threads=threads)
    _require(tokens.ids.dtype == np.uint32 and tokens.ids.ndim == 1, f"ids are {tokens.ids.dtype}, not flat u32")
    _require(tokens.ends.dtype == np.int64 and tokens.ends.ndim == 1, f"ends are {tokens.ends.dtype}, not flat i64")
    _require(len(tokens) == len(text), f"{len(text)} documents come back as {len(tokens)}")
    _require(bool((np.diff(tokens.ends, prepend=0) >= 0).all()), "the ends go backwards")
    end = int(tokens.ends[-1]) if len(tokens) else 0
    _require(end == len(tokens.ids), f"the last document ends at {end} of {len(tokens.ids)} ids")
    highest = int(tokens.ids.max(initial=0))
    _require(highest < subject.engine.info.vocab_size, f"id {highest} is outside the vocabulary")
    return tokens


def _lists(tokens: TokenBatch) -> list[list[int]]:
    return [tokens.doc(i).tolist() for i in range(len(tokens))]


def _require(condition: bool, broken: str) -> None:
    if not condition:
        raise ConformanceError(broken)


def _require_equal(tokens: TokenBatch, expected: Sequence[Sequence[int]], what: str) -> None:
    for i, (found, wanted) in enumerate(zip(_lists(tokens), expected, strict=True)):
        _require(found == wanted, f"{what}: document {i} has the ids {found[:20]} instead of {wanted[:20]}")


def _require_lossless(subject: Subject, text: str, ids: list[int]) -> None:
    if subject.lossless:
        shown = subject.engine.decode(ids)
        _require(shown == text, f"{text[:200]!r} comes back as {shown[:200]!r}")
    if subject.whole_bytes:
        joined = b"".join(map(subject.engine.token_bytes, ids))
        _require(joined == text.encode(), f"the bytes of {text[:200]!r} come back as {joined[:200]!r}")
