"""The peers' own ways to tokenize a corpus, in the environment of bench/peers.txt: `peers.py NAME FILE TOKENIZER OUT`.

datasets    Dataset.map(batched, num_proc=2) + save_to_disk
datatrove   JsonlReader + DocumentTokenizer, LocalPipelineExecutor with 2 tasks and 2 workers
megatron    as Megatron-LM's fast script does it: gigatoken encodes the whole file in memory, then a write a document
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"


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


def run_megatron(source: str, tokenizer_json: str, out: str) -> None:
    import gigatoken
    import numpy as np

    tokenizer = gigatoken.Tokenizer(tokenizer_json)
    encoded = tokenizer.encode_files(gigatoken.JsonlFileSource([source], field="text"), parallel=True)
    with Path(out).open("wb") as file:
        for document in encoded:
            file.write(np.asarray(document, np.int32).tobytes())


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    {"datasets": run_datasets, "datatrove": run_datatrove, "megatron": run_megatron}[name](*arguments)
