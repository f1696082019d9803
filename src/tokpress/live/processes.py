"""A crew of processes, for engines that hold the interpreter's lock while they encode.

In: parts. Out: their ids, through shared memory without a name. A process that dies is replaced and its part is encoded
once more; if that kills a second one, the call fails and says which texts it was.

Processes are started by `subprocess`, not by `multiprocessing`: they do not import the caller's script again, need no
`if __name__ == "__main__"`, and may be started by a worker of a torch `DataLoader`, which may not have children of the
other kind. They do not see Ctrl-C: it is for the caller, and they end when it does.
"""

from __future__ import annotations

import os
import subprocess
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Pipe, wait
from typing import cast

from tokpress.batches import TokenBatch, large_strings
from tokpress.config import TokenizerConfig
from tokpress.errors import TokenizerError, TokpressError, WorkerDied
from tokpress.interpreter import start_python
from tokpress.live.base import Documents, T
from tokpress.live.shared import SharedMemory
from tokpress.live.wire import (
    Encoded,
    Message,
    Refused,
    Stop,
    get_tokens,
    put_texts,
    put_tokenizer,
    receive,
    send,
)
from tokpress.records import TokenizerFiles

_TRIES = 2  # of a part
_STOP_SECONDS = 3.0


class ProcessCrew:
    def __init__(self, files: TokenizerFiles, config: TokenizerConfig, workers: int) -> None:
        self._files, self._config = files, config
        self._lock = threading.Lock()  # a call at a time: each has all the processes
        self._members = [_Member(files, config) for _ in range(workers)]
        weakref.finalize(self, _stop, self._members, os.getpid())  # also when the interpreter exits

    @property
    def pids(self) -> list[int]:
        return [member.process.pid for member in self._members]

    def encode(self, parts: Sequence[Documents], finish: Callable[[TokenBatch], T]) -> list[T]:
        with self._lock:
            busy: dict[int, int] = {}  # number of a member -> of the part that it encodes
            try:
                return self._encode(parts, finish, busy)
            finally:
                for number in busy:  # an error or Ctrl-C: what these still say is of no use
                    self._replace(number)

    def _encode(self, parts: Sequence[Documents], finish: Callable[[TokenBatch], T], busy: dict[int, int]) -> list[T]:
        done: dict[int, T] = {}
        todo = deque(range(len(parts)))
        deaths: Counter[int] = Counter()
        failure: TokpressError | None = None
        while busy or (todo and failure is None):
            for number, member in enumerate(self._members):
                if todo and number not in busy and failure is None:
                    busy[number] = todo.popleft()
                    member.ask(parts[busy[number]])
            asked = {self._members[number].pipe: number for number in busy}
            for pipe in wait(list(asked)):
                number = asked[pipe]  # type: ignore[index]
                part = busy[number]
                match self._members[number].answer():
                    case TokenBatch() as tokens:
                        done[part] = finish(tokens)
                    case Refused(error):
                        failure = TokenizerError(error)
                    case None:
                        ended = self._replace(number)
                        deaths[part] += 1
                        todo.appendleft(part)
                        if deaths[part] == _TRIES:
                            failure = _died_of(parts, part, ended)
                del busy[number]  # not before: an interrupt may come at any moment
        if failure is not None:
            raise failure
        return [done[i] for i in range(len(parts))]

    def _replace(self, number: int) -> str:
        ended = self._members[number].end()
        self._members[number] = _Member(self._files, self._config)
        return ended

    def close(self) -> None:
        _stop(self._members, os.getpid())

    def abandon(self) -> None:
        while self._members:
            self._members.pop().abandon()


class _Member:
    """One process, and what is shared with it."""

    def __init__(self, files: TokenizerFiles, config: TokenizerConfig) -> None:
        self.request, self.reply = SharedMemory(), SharedMemory()
        self.pipe, theirs = Pipe()
        shared = (theirs.fileno(), self.request.descriptor, self.reply.descriptor)
        self.process = start_python("tokpress.live.worker", *shared, os.getpid(), descriptors=shared, new_session=True)
        theirs.close()  # so that a dead process's pipe ends
        self.say(put_tokenizer(self.reply, files, config))

    def ask(self, documents: Documents) -> None:
        self.say(put_texts(self.request, large_strings(documents)))

    def say(self, message: Message) -> None:
        with suppress(OSError):  # it is dead, and found dead when its answer is asked for
            send(self.pipe, message)

    def answer(self) -> TokenBatch | Refused | None:
        """None: the process is dead."""
        try:
            message = receive(self.pipe)
        except (EOFError, OSError):
            return None
        return get_tokens(self.reply, message) if isinstance(message, Encoded) else cast(Refused, message)

    def end(self, seconds: float = 0.0) -> str:
        """Waits for its end, then makes one; says how it went."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self.process.kill()
        code = self.process.wait()
        self.let_go()
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def let_go(self) -> None:
        self.pipe.close()
        self.request.close()
        self.reply.close()

    def abandon(self) -> None:
        self.let_go()
        self.process.returncode = 0  # it is another's to wait for


def _died_of(parts: Sequence[Documents], part: int, ended: str) -> WorkerDied:
    first = sum(len(earlier) for earlier in parts[:part])
    return WorkerDied(
        f"encoding texts {first} to {first + len(parts[part]) - 1} of this call ended a process {_TRIES} times ({ended}). "
        "Is there enough memory? To find the one, encode them one by one."
    )


def _stop(members: list[_Member], owner: int) -> None:
    if os.getpid() != owner:  # a fork that exits: they are its parent's
        while members:
            members.pop().abandon()
    for member in members:
        member.say(Stop())
    while members:
        members.pop().end(_STOP_SECONDS)
