"""What an engine is.

In: `pa.LargeStringArray`. Out: `TokenBatch` with u32 ids. An engine adds no BOS or EOS; `documents.frame` does.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from itertools import chain
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokpress.batches import Ids, Int64s, TokenBatch, large_strings, text_bytes
from tokpress.errors import CannotEncode, IdRangeError, TokenizerError, TokpressError
from tokpress.records import TokenizerInfo

MAX_ID = 2**24 - 1  # libraries make tables as long as the highest id: one of 32 bits would take 64 GB


class Engine(Protocol):
    """Encodes documents. All engines of one tokenizer give the same ids."""

    name: str
    info: TokenizerInfo
    version: str = ""  # of the library, where ids depend on it: SentencePiece's do
    memory_per_byte: int = 140  # held, at the worst, to encode a byte of text: measured on one long document
    least_bytes: int = 0  # of text that are worth a call, if it is a fast one: its reference is sooner done with less

    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
        """Documents -> ids, in order, on up to so many threads; the result does not depend on their number."""
        ...

    def encode_strings(self, documents: list[str], *, threads: int = 1) -> TokenBatch:
        """The same for documents that are Python's strings."""
        return self.encode(large_strings(documents), threads=threads)

    def memory_for(self, text: pa.LargeStringArray) -> int:
        """Bytes that encoding this may take."""
        return self.memory_per_byte * text_bytes(text)

    def decode(self, ids: Ids | Sequence[int]) -> str:
        """Ids -> text, special tokens included; bytes that are not UTF-8 become U+FFFD. An id that the vocabulary leaves
        out is no text; one beyond it is an IdRangeError."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """The bytes one id stands for, as far as the tokenizer defines them."""
        ...

    def token_starts(self, text: pa.LargeStringArray) -> list[Sequence[int]]:  # noqa: ARG002 - this one cannot say
        """For each document the byte at which each of its tokens starts, as the library says. Asked only of documents
        whose tokens' bytes are not those of the text (see `starts`)."""
        raise TokenizerError(
            f"{self.name} does not say where its tokens start, and their bytes are not those of the text. "
            "No mask can be made with this tokenizer."
        )


class StringEngine(Engine):
    """An engine whose library takes Python's strings."""

    def encode(self, text: pa.LargeStringArray, *, threads: int = 1) -> TokenBatch:
        """Raises CannotEncode for what the library refuses: a word model without an unknown token, for example."""
        try:
            return self.encode_strings(text.to_pylist(), threads=threads)
        except (TokpressError, MemoryError):
            raise
        except Exception as error:
            raise CannotEncode(f"{self.name} cannot encode this text: {error}") from error

    @abstractmethod
    def encode_strings(self, documents: list[str], *, threads: int = 1) -> TokenBatch: ...


def byte_starts(document: str, starts: Sequence[int]) -> Sequence[int]:
    """Characters at which tokens start, as bytes."""
    if document.isascii():
        return starts
    codes = np.frombuffer(document.encode("utf-32-le"), np.uint32)
    sizes = 1 + (codes >= 0x80).astype(np.int64) + (codes >= 0x800) + (codes >= 0x10000)
    bytes_before: list[int] = np.concatenate([[0], np.cumsum(sizes)])[np.asarray(starts, np.int64)].tolist()
    return bytes_before


def from_lists(documents: Sequence[Sequence[int]]) -> TokenBatch:
    """What the reference libraries return (a list a document) as flat arrays."""
    ends = _ends(documents)
    total = int(ends[-1]) if len(ends) else 0
    return TokenBatch(np.fromiter(chain.from_iterable(documents), np.uint32, total), ends)


def from_arrays(documents: Sequence[npt.NDArray[np.int32]]) -> TokenBatch:
    """The same of libraries that return an array a document."""
    if len(documents) == 1:  # as it is, without a copy
        return TokenBatch(documents[0].view(np.uint32), np.array([len(documents[0])]))
    joined = np.concatenate(documents) if documents else np.empty(0, np.int32)
    return TokenBatch(joined.view(np.uint32), _ends(documents))


def _ends(documents: Sequence[Sized]) -> Int64s:
    return np.cumsum(np.fromiter(map(len, documents), np.int64, len(documents)))


def known_ids(ids: Ids | Sequence[int], vocab_size: int) -> list[int]:
    """Ids as the libraries take them, once it is sure that all of them are the vocabulary's."""
    listed: list[int] = np.asarray(ids).tolist()
    if listed and not 0 <= min(listed) <= max(listed) < vocab_size:
        wrong = next(token for token in listed if not 0 <= token < vocab_size)
        raise IdRangeError(f"id {wrong} is outside the tokenizer's vocabulary of {vocab_size} tokens.")
    return listed


@contextmanager
def no_panic(failure: str, error_type: type[TokenizerError] = TokenizerError) -> Iterator[None]:
    """A panic of a library written in Rust passes every `except Exception`; here it becomes an error of ours."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise error_type(f"{failure}: {error}") from None


def concat_tokens(batches: Sequence[TokenBatch]) -> TokenBatch:
    if len(batches) == 1:
        return batches[0]
    offsets = np.cumsum([0, *(len(batch.ids) for batch in batches)])
    return TokenBatch(
        np.concatenate([batch.ids for batch in batches]),
        np.concatenate([batch.ends + offset for batch, offset in zip(batches, offsets, strict=False)]),
    )


def parse_literals(
    encode: Callable[[list[str]], Sequence[Sequence[int]]], documents: Iterable[str], special_tokens: Mapping[str, int]
) -> list[list[int]]:
    """For libraries that cannot do it themselves: special-token literals become ids, the text between is encoded alone."""
    split = literal_splitter(special_tokens)
    result: list[list[int]] = []
    for document in documents:
        pieces = split(document)
        plain = iter(encode([piece for piece in pieces if piece not in special_tokens]))
        result.append([])
        for piece in pieces:
            result[-1] += [special_tokens[piece]] if piece in special_tokens else next(plain)
    return result


def literal_splitter(special_tokens: Mapping[str, int]) -> Callable[[str], list[str]]:
    """Cuts a document into special tokens and the text between them."""
    if not special_tokens:
        return lambda document: [document]
    longest_first = sorted(special_tokens, key=len, reverse=True)
    literal = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")
    return lambda document: [piece for piece in literal.split(document) if piece]
