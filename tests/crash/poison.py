"""A tokenizer that does not survive certain documents: loaded into every process of a build, ahead of all else."""

from __future__ import annotations

import os
from pathlib import Path

POISONED = """
import importlib.machinery, os, signal, sys, time

def poison(module):
    from tokpress.errors import CannotEncode
    encode = module.BytesEngine.encode
    def poisoned(self, text, *, threads=1):
        joined = "".join(text.to_pylist())
        if "!!segfault" in joined: os.kill(os.getpid(), signal.SIGSEGV)
        if "!!abort" in joined: os.abort()
        if "!!exit" in joined: os._exit(3)
        if "!!hang" in joined: time.sleep(3600)
        if "!!panic" in joined: raise type("PanicException", (BaseException,), {})("a library in Rust gave up")
        if "!!refused" in joined: raise CannotEncode("bytes cannot encode this text: no id for a word")
        if "!!memory" in joined:
            held = []
            while True: held.append(b"x" * 50_000_000)
        return encode(self, text, threads=threads)
    module.BytesEngine.encode = poisoned

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "tokpress.engines.bytes":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (execute(module), poison(module))
        return spec

sys.meta_path.insert(0, Finder)
"""


def poisoned(directory: Path) -> dict[str, str]:
    """The environment of such a process."""
    site = directory / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(POISONED)
    return {"PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])}
