"""Real text and a real tokenizer for the benchmarks, made once and kept in bench/.data (never committed).

The text is documentation and code from Debian packages, as JSON lines (about 1.3 GB). It is made by a script that lies
beside the project (../shared/bench/make_corpus.py); any other directory of .jsonl files with a "text" field does as well:
TOKPRESS_BENCH_CORPUS=/path/to/jsonl. The tokenizer is Llama 3's, 128,256 tokens, from the llama-models package.
"""

from __future__ import annotations

import heapq
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

from tokpress.engines.tiktoken import PATTERNS, as_tokenizer_json, rank_files

ROOT = Path(__file__).parent.parent
DATA = ROOT / "bench" / ".data"
MAKE_CORPUS = ROOT.parent / "shared" / "bench" / "make_corpus.py"
_SPECIAL_TOKENS = {"<|begin_of_text|>": 128_000, "<|end_of_text|>": 128_001}


def corpus_files() -> list[Path]:
    """The .jsonl files of real text, made if they are not there yet."""
    directory = Path(os.environ.get("TOKPRESS_BENCH_CORPUS", DATA / "corpus"))
    if not any(directory.glob("*.jsonl")):
        if not MAKE_CORPUS.is_file():
            sys.exit(
                f"no text for the benchmark: set TOKPRESS_BENCH_CORPUS to a directory of .jsonl files ({directory})"
            )
        print("making the corpus, a few minutes ...", file=sys.stderr)
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run([sys.executable, MAKE_CORPUS, directory, "--mb", "3000"], check=True)
    return sorted(directory.glob("*.jsonl"))


def jsonl_of(size: int, *, prose: bool = False) -> Path:
    """One file of so many bytes of the corpus, which is repeated if it is too small; of its prose alone if asked for, whose
    documents are as long as web pages are (3 kB), not source files (22 kB)."""
    DATA.mkdir(parents=True, exist_ok=True)
    path = DATA / f"{size // 10**6}MB{'-prose' if prose else ''}.jsonl"
    if not path.is_file() or path.stat().st_size < size:
        with path.open("wb") as file:
            for line in _lines_forever([path for path in corpus_files() if not prose or path.stem != "code"]):
                file.write(line)
                if file.tell() >= size:
                    break
    return path


def in_two_files(source: Path) -> str:
    """The same lines in two files, for tools that give a worker whole files; a glob of them."""
    parts = [DATA / "parts" / f"{source.stem}-{i}.jsonl" for i in range(2)]
    if not all(part.is_file() for part in parts):
        parts[0].parent.mkdir(exist_ok=True)
        lines = source.read_bytes().splitlines(keepends=True)
        for i, part in enumerate(parts):
            part.write_bytes(b"".join(lines[i::2]))
    return str(DATA / "parts" / f"{source.stem}-*.jsonl")


def all_jsonl() -> Path:
    """The whole corpus in one file, no document twice."""
    return jsonl_of(sum(path.stat().st_size for path in corpus_files()))


def _lines_forever(paths: list[Path]) -> Iterator[bytes]:
    """Lines of these files, mixed so that any stretch holds each file's share; from the start again at the end."""
    sizes = {path: path.stat().st_size for path in paths}
    while True:
        with ExitStack() as stack:
            queue = [(0.0, str(path), stack.enter_context(path.open("rb"))) for path in sizes]
            while queue:
                _, name, file = heapq.heappop(queue)
                if line := file.readline():
                    yield line
                    heapq.heappush(queue, (file.tell() / sizes[Path(name)], name, file))


def llama3_ranks() -> Path:
    """Llama 3's tokenizer as Meta publishes it: a rank file."""
    spec = find_spec("llama_models")
    if spec is None or spec.origin is None:
        sys.exit("the llama-models package carries the tokenizer: pip install llama-models")
    return Path(spec.origin).parent / "llama3" / "tokenizer.model"


def llama3() -> Path:
    """A directory with Llama 3's tokenizer in Hugging Face's form."""
    reserved = {f"<|reserved_special_token_{i}|>": 128_002 + i for i in range(254)}
    return _tokenizer("llama3", llama3_ranks().read_bytes(), _SPECIAL_TOKENS | reserved)


def llama3_50k() -> Path:
    """The same with the first 50,000 tokens only, which is a tokenizer, too: one whose ids have 16 bits, as GPT-2's have."""
    ranks = b"".join(llama3_ranks().read_bytes().splitlines(keepends=True)[:50_000])
    return _tokenizer("llama3-50k", ranks, {"<|begin_of_text|>": 50_000, "<|end_of_text|>": 50_001})


def mistral() -> Path:
    """Mistral's SentencePiece model: BPE with byte fallback, 32,000 pieces."""
    spec = find_spec("mistral_common")
    if spec is None or spec.origin is None:
        sys.exit("the mistral-common package carries the SentencePiece model: pip install mistral-common")
    return Path(spec.origin).parent / "data" / "tokenizer.model.v1"


def unigram() -> Path:
    """A unigram model of 32,000 pieces with SentencePiece's own normalisation, trained once on 24 MB of the corpus."""
    import sentencepiece

    path = DATA / "spm-unigram-32000-nmt_nfkc.model"
    if not path.is_file():
        source = jsonl_of(24 * 10**6)
        texts = (json.loads(line)["text"] for line in source.open())
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(line[:4000] for text in texts for line in text.split("\n") if line.strip()),
            model_prefix=str(path.with_suffix("")),
            model_type="unigram",
            vocab_size=32_000,
            hard_vocab_limit=False,
            max_sentence_length=16_384,
            minloglevel=2,
        )
    return path


def _tokenizer(name: str, ranks: bytes, special_tokens: dict[str, int]) -> Path:
    directory = DATA / name
    if not (directory / "tokenizer_config.json").is_file():
        files = rank_files(ranks, PATTERNS["llama3"], special_tokens)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "tokenizer.json").write_bytes(as_tokenizer_json(files))
        names = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
        (directory / "tokenizer_config.json").write_text(json.dumps(names))
    return directory
