"""Stands in for packages that a peer imports but does not use for tokens: pictures, clouds."""

from __future__ import annotations

import importlib.machinery
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

UNUSED = frozenset(
    {"torchvision", "transformers", "azure", "google", "oci", "paramiko", "boto3", "botocore"}
    | {"snappy", "zstd", "brotli", "pynvml"}
)


class _Nothing(types.ModuleType):
    """Any name in it is an empty class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _Finder:
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:  # noqa: ARG002
        if name.partition(".")[0] in UNUSED:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        module = _Nothing(spec.name)
        module.__path__ = []  # a package: what is inside it is looked for here, too
        return module

    def exec_module(self, module: types.ModuleType) -> None: ...


@contextmanager
def stand_in() -> Iterator[None]:
    """While a peer is imported and used; afterwards nothing of it is left for others to find."""
    finder: Any = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name, module in sys.modules.items() if isinstance(module, _Nothing)]:
            del sys.modules[name]
