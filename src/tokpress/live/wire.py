"""What a crew's processes and their owner say to each other.

In: texts or ids. Out: the same on the other side. Over the pipe go only a few numbers; texts and ids lie in memory that
both sides have mapped. No pickle.
"""

from __future__ import annotations

from multiprocessing.connection import Connection

import msgspec
import numpy as np
import pyarrow as pa

from tokpress.batches import TokenBatch, string_buffers
from tokpress.config import TokenizerConfig
from tokpress.live.shared import SharedMemory
from tokpress.records import TokenizerFiles


class Load(msgspec.Struct, frozen=True, tag=True):
    """The tokenizer lies in the reply memory: that of requests may hold the first one already."""

    size: int


class Encode(msgspec.Struct, frozen=True, tag=True):
    """Texts lie in the request memory: their offsets, then their bytes."""

    texts: int
    size: int


class Encoded(msgspec.Struct, frozen=True, tag=True):
    """Ids lie in the reply memory: where each text ends, then all of them."""

    texts: int
    ids: int


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The engine raised an error."""

    error: str


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Said aloud, because a fork of the owner may hold the pipe open after the owner has closed it."""


Message = Load | Encode | Encoded | Refused | Stop


class Tokenizer(msgspec.Struct, frozen=True):
    files: TokenizerFiles
    config: TokenizerConfig


def send(pipe: Connection, message: Message) -> None:
    pipe.send_bytes(msgspec.msgpack.encode(message))


def receive(pipe: Connection) -> Message:
    message: Message = msgspec.msgpack.decode(pipe.recv_bytes(), type=Message)
    return message


def put_tokenizer(memory: SharedMemory, files: TokenizerFiles, config: TokenizerConfig) -> Load:
    data = msgspec.msgpack.encode(Tokenizer(files, config))
    memory.room(len(data))[: len(data)] = data
    return Load(len(data))


def get_tokenizer(memory: SharedMemory, message: Load) -> Tokenizer:
    return msgspec.msgpack.decode(memory.room(message.size)[: message.size], type=Tokenizer)


def put_texts(memory: SharedMemory, text: pa.LargeStringArray) -> Encode:
    starts, data = string_buffers(text)
    size = int(starts[-1] - starts[0])
    room = np.frombuffer(memory.room(starts.nbytes + size), np.uint8)
    room[: starts.nbytes] = (starts - starts[0]).view(np.uint8)
    room[starts.nbytes : starts.nbytes + size] = data[starts[0] : starts[-1]]
    return Encode(len(text), size)


def get_texts(memory: SharedMemory, message: Encode) -> pa.LargeStringArray:
    """Without a copy: valid until the next message."""
    starts = 8 * (message.texts + 1)
    buffer = pa.py_buffer(memory.room(starts + message.size))
    return pa.LargeStringArray.from_buffers(message.texts, buffer[:starts], buffer[starts : starts + message.size])


def put_tokens(memory: SharedMemory, tokens: TokenBatch) -> Encoded:
    ends = 8 * len(tokens)
    room = np.frombuffer(memory.room(ends + 4 * len(tokens.ids)), np.uint8)
    room[:ends] = np.ascontiguousarray(tokens.ends).view(np.uint8)
    room[ends : ends + 4 * len(tokens.ids)] = np.ascontiguousarray(tokens.ids, np.uint32).view(np.uint8)
    return Encoded(len(tokens), len(tokens.ids))


def get_tokens(memory: SharedMemory, message: Encoded) -> TokenBatch:
    ends = 8 * message.texts
    room = memory.room(ends + 4 * message.ids)
    ids = np.frombuffer(room, np.uint32, message.ids, ends)
    return TokenBatch(ids.copy(), np.frombuffer(room, np.int64, message.texts).copy())
