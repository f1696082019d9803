"""One training loop, four ways to get its batches; each says what a step's time is made of.

    python examples/loop_that_tokenizes.py --data 'data/*.jsonl' --tokenizer spm.model --tokenize one_by_one
    python examples/loop_that_tokenizes.py --data 'data/*.jsonl' --tokenizer spm.model --tokenize parallel
    python examples/loop_that_tokenizes.py --data 'data/*.jsonl' --tokenizer spm.model --tokenize live
    python examples/loop_that_tokenizes.py --data 'data/*.jsonl' --tokenizer spm.model --tokenize pretokenized

The model is a stand-in. What counts is the line at the end: how much of a step is tokenizing or waiting for data.
"""

from __future__ import annotations

import argparse
import glob
import json
import logging
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from typing import Any

import torch

import tokpress


def texts(pattern: str) -> Iterator[str]:
    """The records again and again, as a loop that never ends reads them."""
    for path in cycle(sorted(glob.glob(pattern))):  # noqa: PTH207 - an absolute pattern is one, too
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            for line in file:
                yield json.loads(line)["text"]


def batches(given: argparse.Namespace, meter: tokpress.StepMeter) -> Iterator[Any]:
    """`input_ids` of a batch, a step each."""
    if given.tokenize == "live":
        live = tokpress.LiveDataset(
            given.data,
            tokenizer=given.tokenizer,
            seq_len=given.seq_len,
            batch_size=given.batch_size,
            max_epochs=given.steps,
        )
        return (batch["input_ids"] for batch in live)
    if given.tokenize == "pretokenized":
        tokpress.build(given.data, tokenizer=given.tokenizer, out=given.store)
        data = tokpress.PretokenizedDataset(given.store, seq_len=given.seq_len)
        loader = tokpress.Loader(data, batch_size=given.batch_size, max_epochs=given.steps)
        return (batch["input_ids"] for batch in loader)
    tokenizer = tokpress.ParallelTokenizer(
        given.tokenizer, workers=1 if given.tokenize == "one_by_one" else None, verbose=given.verbose
    )
    return _encoded(given, tokenizer, meter)


def _encoded(given: argparse.Namespace, tokenizer: Callable[..., Any], meter: tokpress.StepMeter) -> Iterator[Any]:
    records = texts(given.data)
    while True:
        some = list(islice(records, given.batch_size))
        with meter.phase("tokenize"):
            calls = [[text] for text in some] if given.tokenize == "one_by_one" else [some]
            ids = [row for call in calls for row in tokenizer(call, max_length=given.seq_len, pad_id=0)]
        yield torch.stack([torch.nn.functional.pad(torch.as_tensor(row), (0, given.seq_len - len(row))) for row in ids])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, metavar="GLOB", help="JSONL files")
    parser.add_argument("--tokenizer", required=True, metavar="SPEC")
    ways = ["one_by_one", "parallel", "live", "pretokenized"]
    parser.add_argument("--tokenize", choices=ways, default="pretokenized")
    parser.add_argument("--store", default="tokens", metavar="DIR", help="of --tokenize pretokenized")
    parser.add_argument("--seq_len", type=int, default=512)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--verbose", action="store_true", help="a line for each batch that is tokenized")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")

    meter = tokpress.StepMeter(tokens_per_step=given.batch_size * given.seq_len)
    embedding = torch.nn.Embedding(200_000, 16, sparse=True)
    total = torch.zeros(())
    for _step, ids in zip(range(given.steps), meter.wrap(batches(given, meter)), strict=False):
        with meter.phase("compute"):
            total += embedding(torch.as_tensor(ids).long()).detach().mean()  # no .item(): nothing waits for a device
    with meter.step(), meter.phase("sync"):
        total.item()
    print(f"{given.tokenize}: {meter.line()}")


if __name__ == "__main__":
    main()
