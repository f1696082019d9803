"""Python imports this before a script, if this directory is on PYTHONPATH: from then on the outermost module of torch that
is called while it trains records what it is given. Then whatever file of this name the user has.
"""

import os
import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
MODULE = "torch.nn.modules.module"


def watch(module: ModuleType) -> None:
    import torch

    from tokpress.resuming.record import record_step

    call: Any = module.Module.__call__
    inside = 0

    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        if not inside and self.training and torch.is_grad_enabled() and next(self.parameters(), None) is not None:
            record_step([*args, kwargs])
        inside += 1
        try:
            return call(self, *args, **kwargs)
        finally:
            inside -= 1

    module.Module.__call__ = recorded


class Watched(MetaPathFinder, Loader):
    """Loads torch's module as it is, and changes one method of it."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            self.loader: Any = spec.loader
            spec.loader = self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self.loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        after_import(module)


def after_import(module: ModuleType) -> None:
    """`torch` itself is not whole yet: the change is made with the first module."""
    made: Any = module.Module.__init__

    def first(self: Any, *args: Any, **kwargs: Any) -> None:
        if module.Module.__init__ is first:
            module.Module.__init__ = made
            watch(module)
        made(self, *args, **kwargs)

    module.Module.__init__ = first


def go_on() -> None:
    """The one that would have been imported without us."""
    sys.path[:] = [path for path in sys.path if not path or os.path.abspath(path) != HERE]
    ours = sys.modules.pop("sitecustomize")
    try:
        import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = ours


sys.meta_path.insert(0, Watched())
go_on()
