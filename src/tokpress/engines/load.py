"""From what a user calls a tokenizer to its files, and from files to engines.

In: a path to a `tokenizer.json`, a `tekken.json`, a SentencePiece `.model` or a rank file; a directory; a hub id; the name
of a tiktoken encoding; "bytes". Out: `TokenizerFiles`, then the reference engine and, where there is one, the fast engine.
"""

from __future__ import annotations

import os
from pathlib import Path

from tokpress.config import TokenizerConfig
from tokpress.engines.base import Engine
from tokpress.engines.fast import FastEngine
from tokpress.engines.lookalike import refuse_what_is_none
from tokpress.engines.table import fast_for, reference_for
from tokpress.errors import TokenizerError
from tokpress.records import SpecialTokenPolicy, TokenizerFiles

_IN_A_DIRECTORY = ("tokenizer.json", "tekken.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model")


def reference_engine(files: TokenizerFiles, policy: SpecialTokenPolicy) -> Engine:
    engine: Engine = reference_for(files.kind).load()(files, policy)
    return engine


def fast_engine(name: str, files: TokenizerFiles, policy: SpecialTokenPolicy, reference: Engine) -> FastEngine:
    """Raises TokenizerError if there is no such engine for this tokenizer, or if it does not take it."""
    for spec in fast_for(files.kind, name):
        return FastEngine(spec.name, spec.load()(files, policy), reference)
    raise TokenizerError(f"{name} is not used for {files.kind} tokenizers: the reference library encodes them.")


def load_files(config: TokenizerConfig) -> TokenizerFiles:
    spec = config.spec
    if spec == "bytes":
        return TokenizerFiles("bytes", {})
    path = Path(os.path.expanduser(spec))  # noqa: PTH111 - leaves an unknown ~user as it is
    if spec and path.is_dir():
        path = _in_directory(path)
    if path.is_file():
        return _from_file(path, config)
    from tokpress.engines.tiktoken import encoding_names, named_encoding

    if spec in encoding_names():
        return named_encoding(spec)
    if spec.endswith((".json", ".model", ".tiktoken", "/")) or spec.startswith((".", "/", "~")) or spec.count("/") > 1:
        raise TokenizerError(f"no tokenizer at {spec}. Check the path, or make one: tokpress train-tokenizer --help")
    return _from_hub(spec)


def open_files(kind: str, directory: Path, names: list[str]) -> TokenizerFiles:
    """The files as a store keeps them."""
    return TokenizerFiles(kind, {name: (directory / name).read_bytes() for name in names})


def _in_directory(directory: Path) -> Path:
    for name in _IN_A_DIRECTORY:
        if (directory / name).is_file():
            return directory / name
    others = [*directory.glob("*.model"), *directory.glob("*.tiktoken")]
    if len(others) == 1:
        return others[0]
    found = "several to choose from, name one: " + ", ".join(sorted(path.name for path in others))
    missing = f"it holds none of {', '.join(_IN_A_DIRECTORY)}. Make one: tokpress train-tokenizer --help"
    raise TokenizerError(f"no tokenizer in {directory}: {found if others else missing}")


def _from_file(path: Path, config: TokenizerConfig) -> TokenizerFiles:
    """By content, not by name: Llama 3 ships a rank file called tokenizer.model."""
    data = path.read_bytes()
    if not _looks_like_ranks(data):
        refuse_what_is_none(path, data)
    if data.lstrip()[:1] == b"{":
        from tokpress.engines.tekken import is_tekken, tekken_files

        return tekken_files(data) if is_tekken(data) else _huggingface(path)
    if _looks_like_ranks(data):
        return _ranks(path, data, config)
    return TokenizerFiles("sentencepiece", {"tokenizer.model": data})


def _looks_like_ranks(data: bytes) -> bool:
    first, _, rank = data[:1024].partition(b"\n")[0].partition(b" ")
    return rank.strip().isdigit() and first.isascii() and len(first) % 4 == 0


def _huggingface(path: Path) -> TokenizerFiles:
    """A `tokenizer.json`, whatever its name, with what stands beside it."""
    from tokpress.engines.huggingface import COMPANIONS, TOKENIZER_JSON

    companions = [path.with_name(name) for name in COMPANIONS if path.with_name(name).is_file()]
    return TokenizerFiles(
        "huggingface", {TOKENIZER_JSON: path.read_bytes()} | {file.name: file.read_bytes() for file in companions}
    )


def _ranks(path: Path, data: bytes, config: TokenizerConfig) -> TokenizerFiles:
    from tokpress.engines.tiktoken import PATTERNS, PUBLISHED, rank_files

    pattern, special_tokens = PUBLISHED.get(path.name.removesuffix(".tiktoken"), (None, {}))
    pattern = config.pattern or pattern
    if pattern is None:
        raise TokenizerError(
            f"{path} is a rank file: it does not say how text is split. "
            f"Say it with --pattern {'|'.join(PATTERNS)} or --pattern 'REGEX'."
        )
    return rank_files(data, PATTERNS.get(pattern, pattern), config.added_tokens or special_tokens)


def _from_hub(repo: str) -> TokenizerFiles:
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    from tokpress.engines.huggingface import COMPANIONS, TOKENIZER_JSON

    wanted = [TOKENIZER_JSON, *COMPANIONS]
    try:
        # All of one commit, in few requests; or what an earlier download left here, if the hub is out of reach.
        path = Path(huggingface_hub.snapshot_download(repo, allow_patterns=wanted), TOKENIZER_JSON)
    except LocalEntryNotFoundError as error:
        raise TokenizerError(
            f"{repo!r} is no file here, and the hub cannot be reached ({error.__cause__ or error}). Check the path; or, for "
            f"a hub id, download it where there is a network: hf download {repo} {' '.join(wanted)}"
        ) from error
    except (HfHubHTTPError, ValueError) as error:
        raise TokenizerError(
            f"{repo!r} is neither a file here nor a tokenizer on the hub ({error}). Check the name; for a gated one, "
            "log in first: hf auth login"
        ) from error
    if not path.is_file():
        raise TokenizerError(f"the hub's {repo!r} has no {TOKENIZER_JSON}. Give a path to its files.")
    return _huggingface(path)
