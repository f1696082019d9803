"""Tokenizing inside a training loop: what it costs, and what each way out of it leaves.

    python bench/training.py            prints Markdown, about five minutes
    python bench/training.py --quick    a minute

The SentencePiece model is Mistral's (32,000 pieces, from the mistral-common package), the text prose of the corpus in
samples of about 2,000 tokens. A training step is a pause of 50 ms that leaves the processor free, as a step on a GPU does; a
step on the CPU would compete with the tokenizer, and is not what is measured here. Ratios are medians over rounds, of runs
that follow each other: this machine's speed changes from minute to minute.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
from collections.abc import Callable, Iterable
from time import perf_counter, sleep

import corpus
import measure
import numpy as np
import pyarrow as pa
import sentencepiece

from tokpress import ParallelTokenizer
from tokpress.config import TokenizerConfig
from tokpress.diagnose.tokenizing import Way, compare_ways
from tokpress.engines.base import Engine
from tokpress.engines.load import fast_engine, load_files, reference_engine

BATCH, SEQ_LEN, STEP_SECONDS = 8, 2048, 0.05
SAMPLE_CHARS = 6200  # about 2,000 tokens of this model


def samples(count: int, size: int = SAMPLE_CHARS) -> list[str]:
    """So many stretches of the corpus."""
    with corpus.jsonl_of(20 * 10**6, prose=True).open() as file:
        text = ""
        while len(text) < count * size:
            text += json.loads(file.readline())["text"]
    return [text[i * size : (i + 1) * size] for i in range(count)]


def seconds(action: Callable[[], object], least: float = 0.2) -> float:
    """Of one call, in the mean over as many as take `least` seconds."""
    calls, began = 0, perf_counter()
    while (passed := perf_counter() - began) < least or not calls:
        action()
        calls += 1
    return passed / calls


def arrays(rows: Iterable[list[int]]) -> list[object]:
    """What a model is given, and what `ParallelTokenizer` returns."""
    return [np.array(row) for row in rows]


def parallel(rounds: int) -> None:
    """8 samples of 2,000 tokens: a pool of two against what a loop does, a call for each sample."""
    texts = samples(BATCH)
    in_arrow = [pa.array([text], pa.large_string()) for text in texts]
    model = sentencepiece.SentencePieceProcessor(model_file=str(corpus.mistral()))
    tokens = sum(map(len, model.encode(texts))) // BATCH
    with (
        ParallelTokenizer(corpus.mistral(), engine="sentencepiece", workers=2) as tokenizer,
        ParallelTokenizer(corpus.mistral(), workers=2) as chosen,
    ):
        chosen(texts * 20)  # the engine is proved on the first texts
        ways: dict[str, Callable[[], object]] = {
            "one by one: `[np.array(model.encode(text)) for text in texts]`": lambda: arrays(map(model.encode, texts)),
            "one by one, left as lists": lambda: [model.encode(text) for text in texts],
            "one by one, tokpress's own engine": lambda: [tokenizer.engine.encode(text) for text in in_arrow],
            "in a batch: `model.encode(texts, num_threads=1)`": lambda: arrays(model.encode(texts, num_threads=1)),
            "the library's threads: `num_threads=2`": lambda: arrays(model.encode(texts, num_threads=2)),
            "`ParallelTokenizer(workers=2)`, the library": lambda: tokenizer(texts),
            f"`ParallelTokenizer(workers=2)`, {chosen.engine.name}": lambda: chosen(texts),
        }
        found: dict[str, list[float]] = {name: [] for name in ways}
        for way in ways.values():
            way()
        for _ in range(3 * rounds):
            for name, way in ways.items():
                found[name].append(seconds(way, 0.1))
    loops = list(found.values())[:3]
    print(f"| {BATCH} samples of {tokens:,} tokens, SentencePiece | ms | ms a sample | against the three loops |")
    print("|---|---|---|---|")
    for name, took in found.items():
        ratios = (statistics.median(loop / mine for loop, mine in zip(each, took, strict=True)) for each in loops)
        ms = statistics.median(took) * 1e3
        against = " / ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"| {name} | {ms:.1f} | {ms / BATCH:.2f} | {against} |", flush=True)
    print()


def small(rounds: int) -> None:
    """Batches around the size from which on the pool is used, against the same call without a pool."""
    with (
        ParallelTokenizer(corpus.mistral(), engine="sentencepiece", workers=1) as plain,
        ParallelTokenizer(corpus.mistral(), engine="sentencepiece", workers=2) as pool,
    ):
        pool(samples(BATCH))
        print(f"| two texts; shared from {pool.crossover_bytes:,} bytes on | one worker, ms | two, ms | one / two |")
        print("|---|---|---|---|")
        for size in (20, 100, 500, 1000, 2000, 4000, 8000, 16000):
            texts = samples(2, size)
            pairs = [
                (seconds(lambda: plain(texts), 0.05), seconds(lambda: pool(texts), 0.05))  # noqa: B023
                for _ in range(rounds)
            ]
            one, two = (statistics.median(pair[i] for pair in pairs) * 1e3 for i in range(2))
            ratio = statistics.median(pair[0] / pair[1] for pair in pairs)
            print(f"| of {size:,} characters | {one:.3f} | {two:.3f} | {ratio:.2f} |", flush=True)
    print()


def locks() -> None:
    """How long a call keeps another thread from running: what decides between threads and processes."""
    texts = pa.array(samples(64), pa.large_string())
    print("| engine | a call for 64 samples, ms | longest that another thread could not run, ms |\n|---|---|---|")
    for engine in _engines():
        engine.encode(texts)
        took, pause = _longest_pause(lambda: engine.encode(texts))  # noqa: B023
        print(f"| {engine.name} | {took * 1e3:.1f} | {pause * 1e3:.1f} |", flush=True)
    print()


def _engines() -> list[Engine]:
    sentencepiece = reference_engine(load_files(TokenizerConfig(spec=str(corpus.mistral()))), "text")
    llama = load_files(TokenizerConfig(spec=str(corpus.llama3())))
    huggingface = reference_engine(llama, "text")
    ranks = TokenizerConfig(spec=str(corpus.llama3_ranks()), pattern="llama3")
    return [
        sentencepiece,
        huggingface,
        reference_engine(load_files(ranks), "text"),
        fast_engine("gigatoken", llama, "text", huggingface),
    ]


def _longest_pause(call: Callable[[], object]) -> tuple[float, float]:
    over = threading.Event()
    pauses = [0.0]

    def tick() -> None:
        last = perf_counter()
        while not over.is_set():
            sleep(0.0005)
            now = perf_counter()
            pauses.append(now - last)
            last = now

    thread = threading.Thread(target=tick)
    thread.start()
    sleep(0.05)
    pauses.clear()
    took = seconds(call, 0)
    over.set()
    thread.join()
    return took, max(pauses, default=took)


def loop(rounds: int, steps: int) -> None:
    """A training loop of 50 ms a step, in every way."""
    source = corpus.jsonl_of(20 * 10**6, prose=True)
    for label, tokenizer in (
        ("SentencePiece, Mistral 32k", corpus.mistral()),
        ("tokenizer.json, Llama 3 128k", corpus.llama3()),
    ):
        runs: list[list[Way]] = [
            compare_ways(
                source,
                tokenizer=tokenizer,
                seq_len=SEQ_LEN,
                batch_size=BATCH,
                step_seconds=STEP_SECONDS,
                workers=2,
                steps=steps,
            )
            for _ in range(rounds)
        ]
        print(
            f"| {label}; batch {BATCH} x {SEQ_LEN:,}, step 50 ms | ms to make a batch | step waits, ms | share | tokens/s |"
        )
        print("|---|---|---|---|---|")
        for ways in zip(*runs, strict=True):
            way = sorted(ways, key=lambda way: way.data_wait)[len(ways) // 2]
            make, wait = way.seconds_per_batch * 1e3, way.data_wait * 1e3
            print(
                f"| {way.name} | {make:.2f} | {wait:.2f} | {way.share:.1%} | {way.tokens_per_second:,.0f} |", flush=True
            )
        print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    rounds, steps = (3, 20) if args.quick else (args.rounds, 100)
    print(f"{measure.machine()}\n", flush=True)
    parallel(rounds)
    small(rounds)
    locks()
    loop(1 if args.quick else 3, steps)


if __name__ == "__main__":
    main()
