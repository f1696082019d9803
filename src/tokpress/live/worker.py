"""The life of a crew's process: load the tokenizer, then encode whatever is asked for until the pipe ends.

In: descriptors of a pipe and of two pieces of shared memory, and the number of the process that owns it. Out: replies. It
ends with its owner: when the pipe does or, where a fork of the owner still holds the pipe open, when the owner is gone.
"""

from __future__ import annotations

import os
import sys
from multiprocessing.connection import Connection

import pyarrow as pa

from tokpress.engines.base import Engine
from tokpress.live.proof import load_engine
from tokpress.live.shared import SharedMemory
from tokpress.live.wire import (
    Encode,
    Load,
    Message,
    Refused,
    get_texts,
    get_tokenizer,
    put_tokens,
    receive,
    send,
)

_LOOK_SECONDS = 2.0  # between two looks whether the owner is still there


def main() -> None:
    pipe_number, request_number, reply_number, owner = map(int, sys.argv[1:])
    pipe = Connection(pipe_number)
    request, reply = SharedMemory(request_number), SharedMemory(reply_number)
    engine: Engine | None = None
    while True:
        while not pipe.poll(_LOOK_SECONDS):
            if os.getppid() != owner:
                return
        try:
            message = receive(pipe)
        except (EOFError, OSError):
            return
        match message:
            case Load():
                tokenizer = get_tokenizer(reply, message)
                engine = load_engine(tokenizer.files, tokenizer.config)
            case Encode() if engine is not None:
                send(pipe, _encode(engine, get_texts(request, message), reply))
            case _:
                return


def _encode(engine: Engine, text: pa.LargeStringArray, reply: SharedMemory) -> Message:
    try:
        return put_tokens(reply, engine.encode(text))
    except Exception as error:  # noqa: BLE001 - told to the owner, who finds out which text it is
        return Refused(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
