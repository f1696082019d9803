"""Counts and times the calls that starve a training loop, inside the user's own process.

In: the environment that `tokpress diagnose` sets. Out: a JSON file for each process, when it ends. Calls of tokenizers, of
data loaders, and of whatever makes the host wait for the device (`.item()`, `float(loss)`, ...) are wrapped when their
library is imported. Steps are those of a torch optimizer, and only what happens between the first and the last of them
counts. So shares are measured, however small they are, and whichever program started the process.

It runs in any environment, with or without tokpress: the standard library alone. A wrapped call costs about 5 microseconds
more.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib.util
import json
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter
from typing import Any

DIRECTORY_VARIABLE = "TOKPRESS_WATCH"  # where reports go
TRACER_VARIABLE = "TOKPRESS_WATCH_TRACER"  # a process that may look into this one, and its children
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_STANDARD_LIBRARY = os.path.dirname(os.__file__)
_SET_PTRACER = 0x59616D61  # prctl: Linux lets only ancestors look into a process, unless it says otherwise
_READS = ("item", "tolist", "cpu", "__float__", "__int__", "__bool__", "__index__")
_TOKENIZERS = {
    "sentencepiece": "SentencePieceProcessor",
    "tokenizers": "Tokenizer",
    "tiktoken.core": "Encoding",
    "transformers.tokenization_utils_base": "PreTrainedTokenizerBase",
    "gigatoken": "Tokenizer",
    "tokpress.live.parallel": "ParallelTokenizer",
}
_LOADERS = {  # module -> the class whose __next__ is the loop's wait for a batch
    "torch.utils.data.dataloader": "_BaseDataLoaderIter",
    "tokpress.loader.batches.prefetch": "Prefetcher",
}

Site = tuple[str, str, int]  # kind, file, line


class Watch:
    """The ledger of a process: calls, seconds and texts for each line that calls."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._stacks = _Stacks()
        self._libraries: dict[str, bool] = {}  # file -> whether it belongs to one
        self._torch_files = ""
        self.missed: list[str] = []  # libraries that could not be watched
        self.begin()

    def begin(self) -> None:
        """At the start of a process, a forked one too."""
        self._began = perf_counter()
        self._main = threading.get_ident()
        self._open: dict[Site, list[float]] = {}  # since the last step
        self._closed: dict[Site, list[float]] = {}  # of whole steps
        self._beside: dict[str, list[float]] = {}  # in other threads: no part of a step
        self._optimizer: Any = None  # whose steps count, if there are several
        self._steps = -1  # the first one only begins them
        self._first = self._last = 0.0
        self._stacks.calls = []

    def timed(
        self,
        kind: str,
        function: Callable[..., Any],
        count: Callable[..., int],
        ignores: Callable[..., bool] | None = None,
    ) -> Callable[..., Any]:
        """The same function, with what a call took in the ledger; calls inside of it are not counted twice."""

        def watched(*args: Any, **kwargs: Any) -> Any:
            calls = self._stacks.calls
            if (calls and any(call[0] == kind for call in calls)) or (
                ignores is not None and ignores(sys._getframe(1), *args)
            ):
                return function(*args, **kwargs)
            call: list[Any] = [kind, 0.0]  # and the seconds of other kinds inside it
            calls.append(call)
            began = perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                took = perf_counter() - began
                calls.pop()
                if calls:
                    calls[-1][1] += took
                self._enter(kind, sys._getframe(1), took - call[1], count(*args, **kwargs))

        watched.__name__ = getattr(function, "__name__", "watched")
        watched.__doc__ = function.__doc__
        watched.__wrapped__ = function  # type: ignore[attr-defined] # for inspect.signature
        return watched

    def _enter(self, kind: str, frame: Any, seconds: float, texts: int) -> None:
        if threading.get_ident() != self._main:
            entry = self._beside.setdefault(kind, [0, 0.0, 0])
        else:
            entry = self._open.setdefault((kind, *self._line(frame)), [0, 0.0, 0])
        entry[0] += 1
        entry[1] += seconds
        entry[2] += texts

    def _line(self, frame: Any) -> tuple[str, int]:
        """The user's own line, if a library made the call for it."""
        caller = frame
        while frame is not None and self._is_library(frame.f_code.co_filename):
            frame = frame.f_back
        frame = frame or caller
        return frame.f_code.co_filename, frame.f_lineno

    def _is_library(self, file: str) -> bool:
        known = self._libraries.get(file)
        if known is None:
            known = file.startswith(("<frozen", _PACKAGE, _STANDARD_LIBRARY)) or "-packages" + os.sep in file
            self._libraries[file] = known
        return known

    def stepped(self, optimizer: Any, *_: Any) -> None:
        """After each step of each optimizer."""
        if threading.get_ident() != self._main:
            return
        if self._optimizer is None:
            self._optimizer = optimizer
        if optimizer is not self._optimizer:
            return
        now = perf_counter()
        self._steps += 1
        if self._steps == 0:
            self._open.clear()
            self._beside.clear()
            self._first = self._last = now
            self._announce()
            return
        self._last = now
        for site, (calls, seconds, texts) in self._open.items():
            entry = self._closed.setdefault(site, [0, 0.0, 0])
            entry[0] += calls
            entry[1] += seconds
            entry[2] += texts
        self._open.clear()

    def _announce(self) -> None:
        """Tells `tokpress diagnose` that this process trains, and lets it look."""
        tracer = os.environ.get(TRACER_VARIABLE)
        if tracer and sys.platform == "linux":
            with suppress(OSError, AttributeError):
                ctypes.CDLL(None).prctl(_SET_PTRACER, ctypes.c_ulong(int(tracer)), 0, 0, 0)
        self._save(f"training-{os.getpid()}.json", {"pid": os.getpid(), "rank": _rank(), "meter": _has_meter()})

    def write(self) -> None:
        looped = self._steps > 0
        entries = self._closed if looped else self._open
        if not looped and not entries and not self._beside:
            return  # a process that has nothing to do with it: a launcher, a compiler
        self._save(
            f"watch-{os.getpid()}.json",
            {
                "pid": os.getpid(),
                "rank": _rank(),
                "steps": max(self._steps, 0),
                "seconds": self._last - self._first if looped else perf_counter() - self._began,
                "device": _device(),
                "missed": self.missed,
                "lines": [
                    {"kind": kind, "file": file, "line": line, "calls": calls, "seconds": seconds, "texts": texts}
                    for (kind, file, line), (calls, seconds, texts) in entries.items()
                ],
                "beside": [
                    {"kind": kind, "calls": calls, "seconds": seconds, "texts": texts}
                    for kind, (calls, seconds, texts) in self._beside.items()
                ],
            },
        )

    def _save(self, name: str, content: dict[str, Any]) -> None:
        """Whole or not at all: somebody is waiting for it. Without its directory nobody is any more."""
        path = os.path.join(self._directory, name)
        with suppress(OSError):
            with open(path + ".tmp", "w", encoding="utf-8") as file:
                json.dump(content, file)
            os.replace(path + ".tmp", path)

    def patch(self, name: str, module: Any) -> None:
        """Wraps what is to be watched in a module that was just imported."""
        if name in _TOKENIZERS:
            self._patch_tokenizer(getattr(module, _TOKENIZERS[name]))
        elif name in _LOADERS:
            loader = getattr(module, _LOADERS[name])
            loader.__next__ = self.timed("data", loader.__next__, _none)
        elif name == "torch":
            self._patch_torch(module)
        elif name == "torch.optim.optimizer":
            module.register_optimizer_step_post_hook(self.stepped)
        elif name == "multiprocessing.util":
            module.register_after_fork(self, Watch._forked)

    def _patch_tokenizer(self, tokenizer: Any) -> None:
        for name in dir(tokenizer):
            public = not name.startswith(("_", "async")) or name == "__call__"
            if public and ("encode" in name.lower() or name == "__call__") and name in vars(tokenizer):
                function = getattr(tokenizer, name)
                if callable(function):
                    setattr(tokenizer, name, self.timed("tokenize", function, _texts))

    def _patch_torch(self, torch: Any) -> None:
        self._torch_files = os.path.dirname(torch.__file__)

        def ignores(frame: Any, tensor: Any = None, *_: Any) -> bool:
            # Torch's own reads are not the user's to avoid. Where there is a GPU a tensor in memory makes nobody wait;
            # where there is none, results (not ids, lengths, ...) stand for what would be on a GPU.
            if frame.f_code.co_filename.startswith(self._torch_files):
                return True
            if tensor is None:
                return False
            return bool(tensor.is_cpu and (torch.cuda.is_initialized() or not tensor.is_floating_point()))

        for name in _READS:
            setattr(torch.Tensor, name, self.timed("sync", getattr(torch.Tensor, name), _none, ignores))
        torch.cuda.synchronize = self.timed("sync", torch.cuda.synchronize, _none, lambda frame, *_: ignores(frame))

    def _forked(self) -> None:
        """In a process that `multiprocessing` forked; it ends without running what `atexit` knows."""
        from multiprocessing.util import Finalize

        self.begin()
        Finalize(None, self.write, exitpriority=0)


class _Stacks(threading.local):
    """Watched calls that are running in a thread, from the outside in."""

    def __init__(self) -> None:
        self.calls: list[list[Any]] = []


class AfterImport:
    """Finds modules as Python would, and patches those that are watched as soon as they are there."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._finding: set[str] = set()
        self._names = {*_TOKENIZERS, *_LOADERS, "torch", "torch.optim.optimizer", "multiprocessing.util"}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:  # noqa: ARG002 - as Python calls it
        if name not in self._names or name in self._finding:
            return None
        self._finding.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._finding.discard(name)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            try:
                self._watch.patch(name, module)
            except (
                AttributeError,
                TypeError,
            ) as error:  # a version that is made otherwise: the script must run all the same
                self._watch.missed.append(f"{name}: {error}")

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _texts(_self: Any = None, text: Any = None, *_: Any, **others: Any) -> int:
    """How many texts a call was given."""
    given = next(iter(others.values()), None) if text is None else text
    return len(given) if isinstance(given, (list, tuple)) else 1


def _none(*_: Any, **__: Any) -> int:
    return 0


def _rank() -> int:
    rank = os.environ.get("RANK", "0")
    return int(rank) if rank.isdecimal() else 0


def _device() -> str:
    torch = sys.modules.get("torch")
    return "cuda" if torch is not None and torch.cuda.is_initialized() else "cpu"


def _has_meter() -> bool:
    return "tokpress.metering.meter" in sys.modules


def start() -> None:
    directory = os.environ.get(DIRECTORY_VARIABLE)
    if directory:
        watch = Watch(directory)
        sys.meta_path.insert(0, AfterImport(watch))  # has the one method that is called
        process = os.getpid()
        atexit.register(lambda: watch.write() if os.getpid() == process else None)
