"""Which engines there are.

In: the table below, and what installed packages add to it: each entry point of the group `tokpress.engines` is an
`EngineSpec`. Out: for a kind of tokenizer its reference, and the fast engines in the order in which they are tried. An
engine's own module is imported when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any, Literal

from tokpress.errors import TokenizerError

AUTO = "auto"  # for --engine: the first fast one that is proved equal, else the reference
GROUP = "tokpress.engines"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    name: str  # as in --engine
    kinds: tuple[str, ...]  # of tokenizers that it encodes, see TokenizerFiles
    role: Literal["reference", "fast"]  # what defines the ids; or what is used where it is proved equal to that
    make: str  # "module:name"; called with files and policy it returns an Engine or, if it is fast, a FastEncoder
    rank: int = 0  # of fast ones: the lowest is tried first
    needs: str = ""  # a module of a package that may be missing: then the engine is passed over
    extra: str = ""  # of tokpress, which brings that package

    @property
    def missing(self) -> str:
        """Why it cannot be used here, if its package is not installed."""
        if not self.needs or find_spec(self.needs) is not None:
            return ""
        return f"{self.needs} is not installed. Run: pip install 'tokpress[{self.extra}]'"

    def load(self) -> Callable[..., Any]:
        if self.missing:
            raise TokenizerError(f"the engine {self.name} cannot be used: {self.missing}")
        module, _, name = self.make.partition(":")
        try:
            maker: Callable[..., Any] = getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise TokenizerError(f"the engine {self.name} cannot be imported: {error}. Install it again.") from error
        return maker


_OURS = (
    EngineSpec(
        name="gigatoken",
        kinds=("huggingface", "sentencepiece", "tiktoken"),
        role="fast",
        make="tokpress.engines.gigatoken:load",
        rank=1,
    ),
    EngineSpec(
        name="native",
        kinds=("sentencepiece",),
        role="fast",
        make="tokpress.engines.native:load",
        needs="tokpress_native",
        extra="native",
    ),
    EngineSpec(  # it says itself whether its package is missing: only a unigram model needs it
        name="native-json",
        kinds=("huggingface",),
        role="fast",
        make="tokpress.engines.native_json:load",
        rank=2,
    ),
    EngineSpec(
        name="huggingface",
        kinds=("huggingface",),
        role="reference",
        make="tokpress.engines.huggingface:HuggingFaceEngine",
    ),
    EngineSpec(
        name="sentencepiece",
        kinds=("sentencepiece",),
        role="reference",
        make="tokpress.engines.sentencepiece:SentencePieceEngine",
    ),
    EngineSpec(name="tiktoken", kinds=("tiktoken",), role="reference", make="tokpress.engines.tiktoken:TiktokenEngine"),
    EngineSpec(name="bytes", kinds=("bytes",), role="reference", make="tokpress.engines.bytes:BytesEngine"),
)


@cache
def all_engines() -> tuple[EngineSpec, ...]:
    specs = [*_OURS]
    for entry in entry_points(group=GROUP):
        try:
            spec = entry.load()
        except Exception as error:  # noqa: BLE001 - whatever a package does when it is imported
            spec = error
        if not isinstance(spec, EngineSpec) or spec.name in (AUTO, *(known.name for known in specs)):
            package = entry.dist.name if entry.dist else entry.value
            reason = f"its name {spec.name!r} is taken" if isinstance(spec, EngineSpec) else f"no EngineSpec: {spec!r}"
            raise TokenizerError(
                f"the engine {entry.name!r} of the package {package} cannot be used: {reason}. Remove it."
            )
        specs.append(spec)
    return tuple(specs)


def engine_names() -> list[str]:
    """What may be asked for."""
    return [AUTO, *(spec.name for spec in all_engines())]


def reference_for(kind: str) -> EngineSpec:
    for spec in all_engines():
        if spec.role == "reference" and kind in spec.kinds:
            return spec
    raise TokenizerError(f"no engine is known for {kind!r} tokenizers. Is a package missing that brought one?")


def fast_for(kind: str, asked: str = AUTO) -> list[EngineSpec]:
    """Fast engines for such a tokenizer, in the order in which they are tried: all that are installed, or the one that is
    asked for."""
    found = [spec for spec in _fast(kind) if spec.name == asked or (asked == AUTO and not spec.missing)]
    return sorted(found, key=lambda spec: spec.rank)


def missing_for(kind: str, asked: str = AUTO) -> dict[str, str]:
    """Fast engines that would be tried if they were installed, and what to run."""
    return {spec.name: spec.missing for spec in _fast(kind) if asked == AUTO and spec.missing}


def _fast(kind: str) -> list[EngineSpec]:
    return [spec for spec in all_engines() if spec.role == "fast" and kind in spec.kinds]
