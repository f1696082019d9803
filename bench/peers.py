"""The peers' own ways to tokenize a corpus, in the environment of bench/peers.txt: `peers.py NAME FILE TOKENIZER OUT`.

datasets    Dataset.map(batched, num_proc=2) + save_to_disk
datatrove   JsonlReader + DocumentTokenizer, LocalPipelineExecutor with 2 tasks and 2 workers
in-memory   gigatoken encodes the whole file in memory, then a write a document
batched     the same, then one write for all: as Megatron-LM's preprocess_data_fast.py does it since August 2026
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ["TOKENIZERS_PARALLELISM"] = "false"
END_OF_TEXT = 128_001


def run_datasets(source: str, tokenizer_json: str, out: str) -> None:
    import datasets
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(tokenizer_json)

    def encode(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        encodings = tokenizer.encode_batch_fast(batch["text"], add_special_tokens=False)
        return {"input_ids": [encoding.ids for encoding in encodings]}

    data = datasets.load_dataset("json", data_files=source, split="train", cache_dir=f"{out}-cache")
    data.map(encode, batched=True, num_proc=2, remove_columns=data.column_names).save_to_disk(out)


def run_datatrove(source: str, tokenizer_json: str, out: str) -> None:
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    path = Path(source)  # a glob
    steps = [
        JsonlReader(str(path.parent), glob_pattern=path.name),
        DocumentTokenizer(out, tokenizer_name_or_path=tokenizer_json, eos_token="<|end_of_text|>"),
    ]
    LocalPipelineExecutor(steps, tasks=2, workers=2, logging_dir=f"{out}-logs").run()


def run_in_memory(source: str, tokenizer_json: str, out: str) -> None:
    import numpy as np

    with Path(out).open("wb") as file:
        for document in _encode_files(source, tokenizer_json):
            file.write(np.asarray(document, np.int32).tobytes())


def run_batched(source: str, tokenizer_json: str, out: str) -> None:
    import awkward
    import numpy as np

    encoded = _encode_files(source, tokenizer_json)
    ends = np.cumsum(np.asarray(awkward.num(encoded, axis=1)))
    ids = np.insert(np.asarray(awkward.flatten(encoded), np.int32), ends, END_OF_TEXT)
    with Path(out).open("wb") as file:
        file.write(ids.tobytes())


def _encode_files(source: str, tokenizer_json: str) -> Any:
    import gigatoken

    tokenizer = gigatoken.Tokenizer(tokenizer_json)
    return tokenizer.encode_files(gigatoken.JsonlFileSource([source], field="text"), parallel=True)


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    ways = {"datasets": run_datasets, "datatrove": run_datatrove, "in-memory": run_in_memory, "batched": run_batched}
    ways[name](*arguments)
