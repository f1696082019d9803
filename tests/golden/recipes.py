"""Everything that has recorded digests, by name: the builds, imports, and loaders of several stores.

In: a directory with the recorded inputs (`lay_out`), which is the working directory. Out: digests. `record.py` writes them
to `digests.json`, the tests compare.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import tokpress

from .cases import ALL_FIELDS, CASES, HERE, MODIFIED_NS, STORE, Case, Options, build, made_of
from .digests import Digests, Fields, batches_digest, digest, documents_digest, store_digests

DIGESTS = HERE / "digests.json"
STORES = HERE / "stores"
LIBRARIES = ("gigatoken", "isal", "msgspec", "numpy", "pyarrow", "sentencepiece", "tiktoken", "tokenizers", "torch")
Recipe = Callable[[Fields], Digests]

# The format, the kept store that is exported to it, and the options of the import.
IMPORTS: dict[str, tuple[str, str, Options]] = {
    "megatron": ("megatron", "plain", {}),
    "datatrove": ("datatrove", "plain", {}),
    "dolma": ("dolma", "plain", {}),
    "nanogpt": ("nanogpt", "plain", {}),
    "llmc": ("llmc", "plain", {"copy": True}),
    "datatrove masks": ("datatrove", "masks", {}),
    "dolma masks": ("dolma", "masks", {"dtype": "uint16"}),
}
KEPT_IMPORTS = {"nanogpt": "imported"}  # an import whose store is in the repository, and its name there
MIXTURES: dict[str, Options] = {
    "weights": {"weights": {"plain": 3, "masks": 1, "chats": 0.5}, "max_epochs": 2},
    "two ranks, the second": {"seed": 5, "rank": 1, "world_size": 2},
    "stages": {"seed": 1, "stages": {20: {"masks": 1}, 60: {"chats": 1, "plain": 1}}},
    "used up": {"max_epochs": {"plain": 1, "masks": 3, "chats": 2}, "drop_last": False, "shuffle": "blocks"},
    "in order": {"shuffle": False, "max_epochs": 1},
}
STEPS = 60  # of a mixture that has no end


def load_recorded() -> dict[str, Any]:
    """`digests.json`; nothing but its sections where there is none yet."""
    if not DIGESTS.exists():
        return {"libraries": {}, "fields": {}, "state": {}, "digests": {}}
    recorded: dict[str, Any] = json.loads(DIGESTS.read_text("utf-8"))
    return recorded


def installed_libraries() -> dict[str, str]:
    return {name: version(name) for name in LIBRARIES}


def copy_kept(name: str, out: Path = STORE) -> tokpress.Store:
    """A store that an earlier version wrote, where it may be written to."""
    shutil.copytree(STORES / name, out)
    return tokpress.open(out)


def built(case: Case, fields: Fields) -> Digests:
    store = build(case)
    return {"store": store_digests(store.path, fields, case.leave_out), **(made_of(store) if case.complete else {})}


def kept(name: str, fields: Fields) -> Digests:
    store = copy_kept(name)
    return {"store": store_digests(store.path, fields), **made_of(store)}


def import_store(name: str) -> tokpress.Store:
    form, source, options = IMPORTS[name]
    store = copy_kept(source, Path("kept"))
    tokpress.export(store, to=form, out="tokens", copy=True)
    for path in Path("tokens").rglob("*"):
        os.utime(path, ns=(MODIFIED_NS, MODIFIED_NS))
    found = sorted(Path("tokens").glob("train*.bin"))  # where a split is no directory, its files begin with its name
    return tokpress.import_tokens(
        found or "tokens/train", format=form, tokenizer="tokenizers/bpe", out=STORE, **options
    )


def imported(name: str, fields: Fields) -> Digests:
    store = import_store(name)
    return {"store": store_digests(store.path, fields), "documents": documents_digest(store)}


def mixture(seq_len: int = 24, **options: Any) -> tokpress.Loader:
    """Of three stores that an earlier version wrote."""
    data = {
        name: tokpress.PretokenizedDataset(STORES / name, seq_len=seq_len, fields=ALL_FIELDS, output="numpy")
        for name in ("plain", "masks", "chats")
    }
    return tokpress.Loader(data, batch_size=4, **options)


def mixed(fields: Fields) -> Digests:
    found: Digests = {}
    for name, options in MIXTURES.items():
        loader = mixture(**options)
        found[name] = batches_digest(islice(loader, STEPS))
        seen = [
            (s.sample, s.source, s.sequence, s.doc, s.first_token, s.tokens, s.path, s.position)
            for s in loader.where(3)
        ]
        found[f"{name}: documents of step 3"] = digest(json.dumps(seen).encode())
        found[f"{name}: steps of document 9"] = str(loader.when(9, source="plain"))
    return found


def saved_state() -> dict[str, Any]:
    """What a run would keep after 7 steps."""
    loader = mixture(seed=11, weights={"plain": 2, "masks": 1, "chats": 1})
    batches_digest(islice(loader, 7))
    return loader.state_dict()


def resumed(fields: Fields) -> Digests:
    """From the state that was recorded, with the ranks as they were and with others."""
    found: Digests = {}
    state = load_recorded()["state"]
    for ranks in (1, 3):
        loader = mixture(seed=11, weights={"plain": 2, "masks": 1, "chats": 1}, rank=ranks - 1, world_size=ranks)
        loader.load_state_dict(state)
        found[f"rank {ranks - 1} of {ranks}"] = batches_digest(islice(loader, 20))
    return found


def other_loaders(fields: Fields) -> Digests:
    """torch's own `DataLoader` over a store, and pairs."""
    found: Digests = {}
    for shuffle in (True, False, "blocks"):
        loader = tokpress.make_dataloader(
            STORES / "plain", seq_len=8, batch_size=4, shuffle=shuffle, seed=4, rank=1, world_size=2, num_workers=0
        )
        found[f"make_dataloader, shuffle={shuffle}"] = batches_digest(loader)
    pairs = tokpress.load_pretokenized_dataset(STORES / "masks", seq_len=40, shuffle=True, seed=2)
    for number in ("first", "second"):
        passed = ({"input_ids": ids, "target_ids": targets} for ids, targets in pairs)
        found[f"load_pretokenized_dataset, {number} pass"] = batches_digest(passed)
    return found


def blocks(fields: Fields) -> Digests:
    """Blocks are of a megabyte, so this takes more text than the recorded inputs have."""
    path = Path("hex.jsonl")
    rng = random.Random(0)
    path.write_text("".join(json.dumps({"text": rng.randbytes(500).hex()}) + "\n" for _ in range(2_400)))
    store = tokpress.build(path, tokenizer="bytes", out=STORE, shard_size="1MB")
    data = tokpress.PretokenizedDataset(store, seq_len=512, fields=["input_ids"], dtype="int32", output="numpy")
    return {
        f"seed {seed}, rank {rank} of {ranks}": batches_digest(
            tokpress.Loader(data, batch_size=16, shuffle="blocks", seed=seed, rank=rank, world_size=ranks)
        )
        for seed, rank, ranks in [(0, 0, 1), (1, 0, 1), (1, 1, 2)]
    }


RECIPES: dict[str, Recipe] = {
    **{f"build {name}": partial(built, case) for name, case in CASES.items()},
    **{f"store {name}": partial(kept, name) for name, case in CASES.items() if case.kept},
    **{f"import {name}": partial(imported, name) for name in IMPORTS},
    "load mixtures": mixed,
    "load from a saved state": resumed,
    "load in other ways": other_loaders,
    "load blocks": blocks,
}
