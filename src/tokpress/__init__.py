"""tokpress: tokenize a corpus once, exactly; read it in every training run.

    store = tokpress.build(["data/*.jsonl.zst"], tokenizer="tokenizer.json", out="tokens")
    store = tokpress.open("tokens")

The public names are below. They are imported when first used, so that `import tokpress` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokpress.api import build, open, pack  # noqa: A004
    from tokpress.engines.train import train_tokenizer
    from tokpress.errors import TokpressError
    from tokpress.store.reader import Store

__version__ = "0.1.0"

_HOMES = {
    "Store": "tokpress.store.reader",
    "TokpressError": "tokpress.errors",
    "build": "tokpress.api",
    "open": "tokpress.api",
    "pack": "tokpress.api",
    "train_tokenizer": "tokpress.engines.train",
}
__all__ = ["Store", "TokpressError", "__version__", "build", "open", "pack", "train_tokenizer"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tokpress' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
