"""Every engine and every kind of tokenizer goes through the suite that we ship, and the suite finds out who breaks it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from tokpress.batches import Ids, TokenBatch, large_strings
from tokpress.engines import conformance
from tokpress.engines.base import Engine
from tokpress.engines.bytes import BytesEngine
from tokpress.engines.conformance import PROMISES, ConformanceError, Subject, conform
from tokpress.records import SpecialTokenPolicy, TokenizerFiles

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
        huge_bytes=100_000 if engine == "gigatoken" else 50_000,
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


class Wrapped(Engine):
    """The engine for bytes, to be broken in one way or another."""

    name = "wrapped"

    def __init__(self, files: TokenizerFiles, policy: SpecialTokenPolicy) -> None:
        self.right = BytesEngine(files, policy)
        self.info = self.right.info

    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
        return self.right.encode(text, threads=threads)

    def decode(self, ids: Ids | Sequence[int]) -> str:
        return self.right.decode(ids)

    def token_bytes(self, token: int) -> bytes:
        return self.right.token_bytes(token)


class WideIds(Wrapped):
    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
        tokens = super().encode(text)
        return TokenBatch(tokens.ids.astype(np.uint64), tokens.ends)


class NarrowEnds(Wrapped):
    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
        tokens = super().encode(text)
        return TokenBatch(tokens.ids, tokens.ends.astype(np.int32))


class MoreIdsThanDocuments(Wrapped):
    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
        tokens = super().encode(text)
        return TokenBatch(np.append(tokens.ids, np.uint32(0)), tokens.ends)


class EndsBackwards(Wrapped):
    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
        tokens = super().encode(text)
        return TokenBatch(tokens.ids, tokens.ends[::-1])


class SkipsEmptyDocuments(Wrapped):
    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
        return super().encode(large_strings([document for document in text.to_pylist() if document]))


class MarksEmptyDocuments(Wrapped):
    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
        return super().encode(large_strings([document or "\0" for document in text.to_pylist()]))


class IdsBeyondTheVocabulary(Wrapped):
    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
        tokens = super().encode(text)
        return TokenBatch(tokens.ids + np.uint32(300), tokens.ends)


class ForgetsTheOffset(Wrapped):
    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
        _, offsets, data = text.buffers()
        if offsets is None:
            return super().encode(text)
        return super().encode(pa.LargeStringArray.from_buffers(len(text), offsets, data))


class AddsASpaceAfterTheFirst(Wrapped):
    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
        documents = text.to_pylist()
        return super().encode(
            large_strings(documents[:1] + [document and f" {document}" for document in documents[1:]])
        )


class LosesTheLastDocumentWithThreads(Wrapped):
    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
        documents = text.to_pylist()
        return super().encode(large_strings([*documents[:-1], ""] if threads > 1 else documents))


class ReusesItsMemory(Wrapped):
    def __init__(self, files: TokenizerFiles, policy: SpecialTokenPolicy) -> None:
        super().__init__(files, policy)
        self.memory = np.empty(2**20, np.uint32)

    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
        tokens = super().encode(text)
        self.memory[: len(tokens.ids)] = tokens.ids
        return TokenBatch(self.memory[: len(tokens.ids)], tokens.ends)


class CutsLongDocuments(Wrapped):
    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
        return super().encode(large_strings([document[:10_000] for document in text.to_pylist()]))


class Normalizes(Wrapped):
    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
        return super().encode(large_strings([document.replace("\r\n", "\n") for document in text.to_pylist()]))


class HidesSpecialTokens(Wrapped):
    def decode(self, ids: Ids | Sequence[int]) -> str:
        return super().decode(ids).replace("<|endoftext|>", "")


class DecodesAnything(Wrapped):
    def decode(self, ids: Ids | Sequence[int]) -> str:
        return super().decode([min(token, 256) for token in np.asarray(ids).tolist()])


class NamesItsBytesWrongly(Wrapped):
    def token_bytes(self, token: int) -> bytes:
        return super().token_bytes(token).upper()


class ParsesThoughItShouldNot(Wrapped):
    def __init__(self, files: TokenizerFiles, policy: SpecialTokenPolicy) -> None:
        super().__init__(files, "parse" if policy == "text" else "text")


class HasAnotherFingerprint(Wrapped):
    def __init__(self, files: TokenizerFiles, policy: SpecialTokenPolicy) -> None:
        super().__init__(files, policy)
        self.info = msgspec.structs.replace(self.info, fingerprint="0" * 64)


class HasASpecialTokenBeyondItsVocabulary(Wrapped):
    def __init__(self, files: TokenizerFiles, policy: SpecialTokenPolicy) -> None:
        super().__init__(files, policy)
        self.info = msgspec.structs.replace(self.info, special_tokens={"<|endoftext|>": 257})


BROKEN: list[tuple[type[Wrapped], str]] = [
    (WideIds, "ids are uint64"),
    (NarrowEnds, "ends are int32"),
    (MoreIdsThanDocuments, "the last document ends at"),
    (EndsBackwards, "the ends go backwards"),
    (SkipsEmptyDocuments, "documents come back as"),
    (MarksEmptyDocuments, "'' has the tokens"),
    (IdsBeyondTheVocabulary, "outside the vocabulary"),
    (ForgetsTheOffset, "as a slice: document 0"),
    (AddsASpaceAfterTheFirst, "all texts in one batch: document 1"),
    (LosesTheLastDocumentWithThreads, "encoding with 2 threads"),
    (ReusesItsMemory, "a later call changed an earlier result"),
    (CutsLongDocuments, "a document of 863607 characters has"),
    (Normalizes, "comes back as"),
    (HidesSpecialTokens, "comes back as"),
    (DecodesAnything, "id 257, outside the vocabulary, is decoded as"),
    (NamesItsBytesWrongly, "the bytes of"),
    (ParsesThoughItShouldNot, "with the policy 'text' 'a<|endoftext|>b' becomes"),
    (HasAnotherFingerprint, "the fingerprint is not that of the files"),
    (HasASpecialTokenBeyondItsVocabulary, "'<|endoftext|>' has id 257, outside the 257 tokens"),
]


class TestSuite:
    def test_a_sound_engine_passes(self) -> None:
        conform(Subject(Wrapped, TokenizerFiles("bytes", {}), "text"))

    @pytest.mark.parametrize(("engine", "message"), BROKEN, ids=lambda value: getattr(value, "__name__", ""))
    def test_a_broken_promise_is_named(self, engine: type[Wrapped], message: str) -> None:
        with pytest.raises(ConformanceError) as raised:
            conform(Subject(engine, TokenizerFiles("bytes", {}), "text"))
        assert message in str(raised.value)

    def test_promises_that_are_not_made_are_not_asked_for(self) -> None:
        conform(Subject(Normalizes, TokenizerFiles("bytes", {}), "text", lossless=False, whole_bytes=False))

    def test_every_promise_is_kept_track_of(self) -> None:
        """Public functions of the module, but for the one that runs them."""
        public = {name for name, value in vars(conformance).items() if inspect.isfunction(value) and name[0] != "_"}
        ours = {name for name in public if vars(conformance)[name].__module__ == conformance.__name__}
        assert {promise.__name__ for promise in PROMISES} == ours - {"conform"}
