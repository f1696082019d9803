"""The native encoder beside the library on very many texts: `make native-exact` runs it, hours if all is asked for.

In: models (files, or the names of small variants), a directory of .jsonl files with real text (TOKPRESS_BENCH_CORPUS).
Out: a line for each model: how many documents and fuzzed texts were compared, id for id, and how many differ. The exit code
says whether one did.

    python tests/native/many.py spm.model bpe-nmt_nfkc --documents 100000 --fuzzed 200000

Documents are cut from the text, 100 to 4,000 characters; one in 2,000 is so long that a unigram model's score passes 1e5.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from time import perf_counter

import numpy as np
import sentencepiece
import tokpress_native

sys.path.insert(0, str(Path(__file__).parents[1]))

from engines.fuzz import fuzzed

from native.variants import variant

LITERALS = ["<user>", "<s>", "<ctrl>", "the", "ab", "abc", "日本", "a b", "  ", "▁the"]
PART = 2000  # texts that are compared at a time
LONG = 300_000  # characters


def documents(corpus: Path, seed: int) -> Iterator[str]:
    """Stretches of the files, in turns, from another place of each for another seed."""
    rng = random.Random(seed)
    files = [path.open("rb") for path in sorted(corpus.glob("*.jsonl"))]
    for file in files:
        file.seek(rng.randrange(os.fstat(file.fileno()).st_size // 2))
        file.readline()
    number = 0
    while True:
        for file in files:
            line = file.readline()
            if not line:
                file.seek(0)
                continue
            text = json.loads(line)["text"]
            at = 0
            while at < len(text):
                number += 1
                size = LONG if number % 2000 == 0 else min(4000, 100 + int(rng.expovariate(1 / 400)))
                document = text[at : at + size]
                yield (document * (size // len(document) + 1))[:size] if size == LONG else document
                at += size


def compare(model: bytes, texts: Iterator[str], count: int) -> tuple[int, int, int]:
    """Texts, their bytes, and how many differ: with and without AVX2, the cache as it comes, one thread and two."""
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    ways = [(tokpress_native.Tokenizer(model, simd=simd), threads) for simd, threads in ((True, 1), (False, 2))]
    done = size = differ = 0
    while part := list(islice(texts, min(PART, count - done))):
        expected = [library.encode(text, return_type="numpy") for text in part]
        for tokenizer, threads in ways:
            ids, ends = tokenizer.encode(part, threads=threads)
            for text, wanted, got in zip(part, expected, np.split(ids, ends[:-1]), strict=True):
                if not np.array_equal(wanted, got):
                    differ += 1
                    print(f"differs: {text[:200]!r}", flush=True)
        done += len(part)
        size += sum(len(text.encode()) for text in part)
    return done, size, differ


def many_fuzzed(seed: int) -> Iterator[str]:
    while True:
        yield from fuzzed(seed, PART, LITERALS)
        seed += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--fuzzed", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    corpus = Path(os.environ.get("TOKPRESS_BENCH_CORPUS", Path(__file__).parents[2] / "bench/.data/corpus"))
    if args.documents and not any(corpus.glob("*.jsonl")):
        sys.exit(f"no real text: set TOKPRESS_BENCH_CORPUS to a directory of .jsonl files ({corpus})")
    wrong = 0
    for name in args.models:
        model = Path(name).read_bytes() if Path(name).is_file() else variant(name)
        began = perf_counter()
        seed = args.seed * 1_000_003 + len(model)
        for kind, texts, count in (
            ("documents", documents(corpus, seed), args.documents),
            ("fuzzed texts", many_fuzzed(seed), args.fuzzed),
        ):
            done, size, differ = compare(model, texts, count) if count else (0, 0, 0)
            wrong += differ
            took = perf_counter() - began
            print(
                f"{Path(name).stem}: {done:,} {kind}, {size / 1e6:.0f} MB, {differ} differ ({took:.0f} s)", flush=True
            )
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
