"""`tokenizer.json`, encoded by Hugging Face's `tokenizers`: the reference for every tokenizer published in that form."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import tokenizers

from tokpress.batches import Ids, TokenBatch
from tokpress.engines.base import MAX_ID, StringEngine, byte_starts, from_lists, known_ids, no_panic
from tokpress.errors import TokenizerError
from tokpress.records import SpecialTokenPolicy, TokenizerFiles, TokenizerInfo

TOKENIZER_JSON = "tokenizer.json"
# Files beside it that name the special tokens (and, for chats, the template).
COMPANIONS = ("tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


_LONG_NUMBER = re.compile(rb":\s*[0-9]{8}")


class _AddedToken(msgspec.Struct):
    id: Any = None
    content: Any = None


class _Model(msgspec.Struct):
    vocab: Any = None


class _Ids(msgspec.Struct):
    """What of a `tokenizer.json` says which ids there are."""

    model: _Model = msgspec.field(default_factory=_Model)
    added_tokens: list[_AddedToken] | None = None


class HuggingFaceEngine(StringEngine):
    name = "huggingface"
    memory_per_byte = 140

    def __init__(self, files: TokenizerFiles, policy: SpecialTokenPolicy) -> None:
        self._tokenizer = _load(files.files[TOKENIZER_JSON])
        # A file may ask for these; a corpus must not be cut or padded by its tokenizer.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.post_processor = None  # it adds what we do not ask for, and hides where a token's space starts
        self._tokenizer.encode_special_tokens = policy == "text"
        if getattr(self._tokenizer.model, "dropout", None):
            raise TokenizerError("the tokenizer uses BPE dropout: its ids are random. Set model.dropout to null.")
        self._byte_level = repr(self._tokenizer.decoder).startswith("ByteLevel")
        added = sorted(self._tokenizer.get_added_tokens_decoder().items())
        self.added_tokens = {token.content: i for i, token in added}  # special ones and others; found in text whole
        special_tokens = {token.content: i for i, token in added if token.special}
        names = _named_tokens(files.files)
        for token in names.values():
            if (i := self._tokenizer.token_to_id(token)) is not None:
                special_tokens.setdefault(token, i)
        self.info = TokenizerInfo(
            kind=files.kind,
            fingerprint=files.fingerprint,
            vocab_size=_vocab_size(self._tokenizer),
            special_tokens=special_tokens,
            bos_token=names.get("bos_token"),
            eos_token=names.get("eos_token"),
        )

    def encode_strings(self, documents: list[str], *, threads: int = 1) -> TokenBatch:
        # The library spreads a batch over all cores. One document is one thread's work: so a caller that has threads of its
        # own, or one core, is not given more, and TOKENIZERS_PARALLELISM stays what the user's process says it is.
        parts = [documents] if threads > 1 else [[document] for document in documents]
        encode = self._tokenizer.encode_batch_fast
        return from_lists([encoding.ids for part in parts for encoding in encode(part, add_special_tokens=False)])

    def token_starts(self, text: pa.LargeStringArray) -> list[Sequence[int]]:
        documents: list[str] = text.to_pylist()
        encode = self._tokenizer.encode_batch
        return [
            byte_starts(document, [start for start, _ in encode([document], add_special_tokens=False)[0].offsets])
            for document in documents
        ]

    def decode(self, ids: Ids | Sequence[int]) -> str:
        known = known_ids(ids, self.info.vocab_size)
        if self._byte_level:  # the library takes an added "é" for a byte
            return b"".join(map(self.token_bytes, known)).decode("utf-8", "replace")
        return self._tokenizer.decode(known, skip_special_tokens=False)

    def token_bytes(self, token: int) -> bytes:
        piece = self._tokenizer.id_to_token(token)
        if piece is None or piece in self.added_tokens:
            return (piece or "").encode()
        if self._byte_level:
            return bytes(BYTE_OF_CHAR[char] for char in piece if char in BYTE_OF_CHAR)
        if len(piece) == 6 and piece.startswith("<0x"):
            return bytes([int(piece[3:5], 16)])
        return piece.replace("\u2581", " ").encode()


def _load(data: bytes) -> tokenizers.Tokenizer:
    failure = f"{TOKENIZER_JSON} cannot be loaded by `tokenizers`"
    _check_ids(data)
    with no_panic(failure):
        try:
            tokenizer = tokenizers.Tokenizer.from_buffer(data)
        except Exception as error:
            raise TokenizerError(f"{failure}: {error}. Get the file again from where it comes from.") from error
    if not tokenizer.get_vocab_size():
        raise TokenizerError(f"{TOKENIZER_JSON} has an empty vocabulary. Make one: tokpress train-tokenizer --help")
    return tokenizer


def _check_ids(data: bytes) -> None:
    """Before a library sees them. Only a file with a long number somewhere is looked through: that takes a while."""
    if not _LONG_NUMBER.search(data):
        return
    try:
        sections = msgspec.json.decode(data, type=_Ids)
    except (msgspec.DecodeError, RecursionError):
        return  # for the library to say
    vocab = sections.model.vocab if isinstance(sections.model.vocab, dict) else {}
    for token, i in (*((each.content, each.id) for each in sections.added_tokens or []), *vocab.items()):
        if isinstance(i, int) and i > MAX_ID:
            raise TokenizerError(
                f"{TOKENIZER_JSON} gives {token!r} the id {i:,}, and no vocabulary has so many tokens: the highest that is "
                f"taken is {MAX_ID:,}. Get the file again from where it comes from."
            )


def _vocab_size(tokenizer: tokenizers.Tokenizer) -> int:
    """One more than the highest id. So many ids as tokens, from 0 on: then there is no other, and the vocabulary need not be
    made a dictionary, which takes twice as long."""
    count = tokenizer.get_vocab_size(with_added_tokens=True)
    if None not in map(tokenizer.id_to_token, range(count)):
        return count
    return max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1


def _named_tokens(files: Mapping[str, bytes]) -> dict[str, str]:
    """`bos_token` and `eos_token` as the companions name them: a string, or an object with its content."""
    names: dict[str, str] = {}
    for companion in reversed(COMPANIONS[:2]):  # tokenizer_config.json has the last word
        try:
            entries = msgspec.json.decode(files.get(companion, b"{}"), type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise TokenizerError(f"{companion} beside the tokenizer is not a JSON object: {error}") from error
        for key in ("bos_token", "eos_token"):
            value = entries.get(key)
            content = value.get("content") if isinstance(value, dict) else value
            if isinstance(content, str):
                names[key] = content
    return names


def _byte_chars() -> dict[int, str]:
    """The printable stand-in for each byte that byte-level tokenizers write their vocabulary with."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (byte for byte in range(256) if byte not in printable)
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


CHAR_OF_BYTE = _byte_chars()
BYTE_OF_CHAR = {char: byte for byte, char in CHAR_OF_BYTE.items()}
