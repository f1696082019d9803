"""The native encoder beside Google's library, on text that neither has seen: one core, then two threads.

    python bench/spm.py            prints Markdown, about ten minutes and as long once to train the models
    python bench/spm.py --quick    Mistral's model and a unigram model of 32,000 pieces

With --model and --text it is one model, one kind of text: a part of a long run.
Text is prose, code and text of many languages from the corpus. "warm": the cache was filled from other text of that kind;
"empty": it was not. Both encode the same documents in turns, on one thread, timed by the thread's processor time, and every
id is compared. (A file sentencepiece.py beside the others would be what they, and mypy, import as the library.)
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, thread_time

import corpus
import measure
import numpy as np
import numpy.typing as npt
import sentencepiece
import tokpress_native

from tokpress.batches import Int64s, large_strings, string_buffers

KINDS = ("prose", "code", "multi")
TRAINED = {  # type, pieces, normalisation
    "unigram 32k, nmt_nfkc": ("unigram", 32_000, "nmt_nfkc"),
    "BPE 32k, nmt_nfkc": ("bpe", 32_000, "nmt_nfkc"),
    "unigram 200k, nmt_nfkc": ("unigram", 200_000, "nmt_nfkc"),
    "BPE 256k, identity": ("bpe", 256_000, "identity"),
}


def documents(kind: str, size: int, skip: int) -> list[str]:
    """So many bytes of that kind, from the `skip`th document on; none of more than 200 kB."""
    found: list[str] = []
    [path] = [path for path in corpus.corpus_files() if path.stem == kind]
    with path.open() as file:
        for number, line in enumerate(file):
            text = json.loads(line)["text"]
            if number < skip or len(text) > 200_000:
                continue
            found.append(text)
            size -= len(text.encode())
            if size <= 0:
                break
    return found


def trained(name: str) -> bytes:
    """A model of its own, trained once on every third document of each kind."""
    model_type, pieces, rule = TRAINED[name]
    path = corpus.DATA / f"spm-{model_type}-{pieces}-{rule}.model"
    if not path.is_file():
        lines = (
            line[:4000]
            for kind in KINDS
            for text in documents(kind, 24 * 10**6, 0)[::3]
            for line in text.split("\n")
            if line.strip()
        )
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lines,
            model_prefix=str(path.with_suffix("")),
            model_type=model_type,
            vocab_size=pieces,
            normalization_rule_name=rule,
            byte_fallback=rule == "identity",
            hard_vocab_limit=False,
            max_sentence_length=16_384,
            minloglevel=2,
        )
    return path.read_bytes()


def native_rate(tokenizer: tokpress_native.Tokenizer, buffers: tuple[Int64s, npt.NDArray[np.uint8]]) -> float:
    """MB of text a second of this thread."""
    began = thread_time()
    tokenizer.encode_buffers(*buffers)
    return len(buffers[1]) / 1e6 / (thread_time() - began)


def compare(name: str, model: bytes, size: int, rounds: int, kinds: Sequence[str]) -> None:
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    for kind in kinds:
        before = documents(kind, size, 0)
        texts = documents(kind, size, len(before) + 50)
        part = texts[: max(1, len(texts) // 8)]  # the library is slow
        warm_up, buffers, head = (string_buffers(large_strings(some)) for some in (before, texts, part))
        rates: dict[str, list[float]] = {"warm": [], "empty": [], "library": []}
        for _ in range(rounds):
            rates["empty"].append(native_rate(tokpress_native.Tokenizer(model), buffers))
            tokenizer = tokpress_native.Tokenizer(model)
            tokenizer.encode_buffers(*warm_up)
            rates["warm"].append(native_rate(tokenizer, buffers))
            began = thread_time()
            expected = [library.encode(text, return_type="numpy") for text in part]
            rates["library"].append(len(head[1]) / 1e6 / (thread_time() - began))
        ids, ends = tokenizer.encode_buffers(*head)
        assert all(map(np.array_equal, np.split(ids, ends[:-1]), expected)), f"{name}, {kind}: other ids"
        warm, empty, slow = (statistics.median(rates[way]) for way in ("warm", "empty", "library"))
        times = statistics.median(a / b for a, b in zip(rates["warm"], rates["library"], strict=True))
        cold = statistics.median(a / b for a, b in zip(rates["empty"], rates["library"], strict=True))
        print(f"| {name} | {kind} | {warm:.0f} | {empty:.0f} | {slow:.1f} | {times:.1f} | {cold:.1f} |", flush=True)


def threads(name: str, model: bytes, size: int, rounds: int) -> None:
    """By the clock: two threads beside one, in turns."""
    buffers = string_buffers(large_strings(documents("prose", size, 0)))
    tokenizer = tokpress_native.Tokenizer(model)
    tokenizer.encode_buffers(*buffers, threads=2)
    ratios = []
    for _ in range(rounds):
        taken = []
        for count in (1, 2):
            began = perf_counter()
            tokenizer.encode_buffers(*buffers, threads=count)
            taken.append(perf_counter() - began)
        ratios.append(taken[0] / taken[1])
    print(f"\n{name}: two threads {statistics.median(ratios):.2f} times as fast as one")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--model", default="", help="those with this in their name")
    parser.add_argument("--text", choices=KINDS, action="append", help="that kind alone; no threads then")
    args = parser.parse_args()
    quick: bool = args.quick
    size, rounds = (4 * 10**6, 3) if quick else (16 * 10**6, 5)
    models = {"Mistral v1, BPE 32k": Path(corpus.mistral()).read_bytes()}
    models |= {name: trained(name) for name in list(TRAINED)[: 1 if quick else None] if args.model in name}
    models = {name: model for name, model in models.items() if args.model in name}
    print(f"{measure.machine()}\n")
    print("| model | text | MB/s, warm | empty | library | times | empty |\n|---|---|---|---|---|---|---|", flush=True)
    for name, model in models.items():
        compare(name, model, size, rounds, args.text or KINDS)
    if args.text:
        return
    for name, model in list(models.items())[:2]:
        threads(name, model, 2 * size, rounds)


if __name__ == "__main__":
    main()
