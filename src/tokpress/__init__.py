"""tokpress: tokenize a corpus once, exactly; read it in every training run.

    store = tokpress.build(["data/*.jsonl.zst"], tokenizer="tokenizer.json", out="tokens")
    store = tokpress.open("tokens")
    loader = tokpress.Loader(tokpress.PretokenizedDataset("tokens", seq_len=2048), batch_size=16)

The public names are below. They are imported when first used, so that `import tokpress` costs nothing.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokpress import view
    from tokpress.api import build, build_share, dry_run, open, verify  # noqa: A004
    from tokpress.errors import TokpressError
    from tokpress.formats.export import export
    from tokpress.formats.import_ import import_tokens
    from tokpress.live.dataset import LiveDataset
    from tokpress.live.parallel import ParallelTokenizer, parallel_tokenize
    from tokpress.loader.dataset import PretokenizedDataset
    from tokpress.loader.loader import Loader
    from tokpress.loader.pairs import load_pretokenized_dataset
    from tokpress.loader.torch_data import make_dataloader
    from tokpress.metering.meter import StepMeter
    from tokpress.packing.pack import pack
    from tokpress.run import events
    from tokpress.run.event_log import read_events
    from tokpress.store.copy import copy
    from tokpress.store.publish import publish
    from tokpress.store.reader import Store
    from tokpress.train import train_tokenizer

__version__ = "0.1.0"

_HOMES = {
    "LiveDataset": "tokpress.live.dataset",
    "Loader": "tokpress.loader.loader",
    "ParallelTokenizer": "tokpress.live.parallel",
    "PretokenizedDataset": "tokpress.loader.dataset",
    "StepMeter": "tokpress.metering.meter",
    "Store": "tokpress.store.reader",
    "TokpressError": "tokpress.errors",
    "build": "tokpress.api",
    "build_share": "tokpress.api",
    "copy": "tokpress.store.copy",
    "dry_run": "tokpress.api",
    "export": "tokpress.formats.export",
    "import_tokens": "tokpress.formats.import_",
    "load_pretokenized_dataset": "tokpress.loader.pairs",
    "make_dataloader": "tokpress.loader.torch_data",
    "open": "tokpress.api",
    "pack": "tokpress.packing.pack",
    "parallel_tokenize": "tokpress.live.parallel",
    "publish": "tokpress.store.publish",
    "read_events": "tokpress.run.event_log",
    "train_tokenizer": "tokpress.train",
    "verify": "tokpress.api",
}
_MODULES = {"events": "tokpress.run.events", "view": "tokpress.view"}
__all__ = [
    "LiveDataset",
    "Loader",
    "ParallelTokenizer",
    "PretokenizedDataset",
    "StepMeter",
    "Store",
    "TokpressError",
    "__version__",
    "build",
    "build_share",
    "copy",
    "dry_run",
    "events",
    "export",
    "import_tokens",
    "load_pretokenized_dataset",
    "make_dataloader",
    "open",
    "pack",
    "parallel_tokenize",
    "publish",
    "read_events",
    "train_tokenizer",
    "verify",
    "view",
]


NOT_ON_WINDOWS = (
    "tokpress runs on Linux, and on macOS where that has what it needs. On Windows, use it inside WSL: run "
    "`wsl --install`, and then the same commands in the Linux that it gives you."
)


def __getattr__(name: str) -> Any:
    if sys.platform == "win32" and name in {*_HOMES, *_MODULES}:
        raise ImportError(NOT_ON_WINDOWS)
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tokpress' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
