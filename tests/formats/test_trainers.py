"""--for: whatever is exported, the trainer has loss on the store's tokens and on no others, or it is refused."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tokpress
from tokpress.errors import UsageError
from tokpress.formats.trainers import TRAINERS

from . import readers
from .conftest import MakeStore
from .stores import EOS, Lengths, documents, flat, furnish, masks_of

few = settings(deadline=None, max_examples=15, suppress_health_check=list(HealthCheck))
SEQ_LEN = 24
# Of every trainer, the options with which it reads all of a store: rows that hold each document whole.
PADDED: dict[str, Any] = {"max_length": SEQ_LEN}
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "hf": [{}, PADDED, {"to": "parquet"}],
    "trl": [{}, PADDED, {"to": "parquet"}],
    "axolotl": [{}, PADDED, {"to": "parquet"}],
    "llm-foundry": [{}],
    "megatron-bridge": [PADDED],
    "levanter": [PADDED],
    "olmo-core": [{}, PADDED],
}
documents_of_some_length = st.lists(st.lists(st.integers(1, SEQ_LEN), max_size=6), min_size=1, max_size=3)


def read(out: Path, trainer: str) -> list[tuple[list[int], list[int]]]:
    """Of every row: its ids, and the places of tokens that the trainer has loss on, by what its source says it does."""
    if trainer == "megatron-bridge":
        rows = np.load(out / "train.npy", allow_pickle=True) if (out / "train.npy").exists() else []
        found = []
        for row in rows:
            bounds = [*row["seq_start_id"], len(row["input_ids"])]
            places = []
            for start, stop in itertools.pairwise(bounds):  # labels are the ids after the first of a document
                mask, inputs = row["loss_mask"][start : stop - 1], row["input_ids"][start : stop - 1]
                places += [start + i + 1 for i, counts in enumerate(mask) if counts and inputs[i] != EOS]
            found.append((row["input_ids"].tolist(), places))
        return found
    if trainer == "llm-foundry":
        rows = []
        for sample in mds_json(out / "train"):
            ids, labels = [], []
            for turn in sample:
                ids += turn["input_ids"] + turn["labels"]
                labels += [0] * len(turn["input_ids"]) + [1] * len(turn["labels"])
            if ids and ids[-1] != EOS:
                ids, labels = [*ids, EOS], [*labels, 1]
            rows.append((ids, [i for i, counts in enumerate(labels) if counts]))
        return rows
    options = json.loads((out / "metadata.json").read_text())
    if trainer == "olmo-core":
        return olmo_core(out / "train", np.dtype(options["dtype"]), options["options"]["seq_len"])
    table = getattr(readers, options["options"]["to"])(out / "train")
    if trainer == "levanter":
        return [(row["input_ids"], [i + 1 for i, weight in enumerate(row["loss_weights"]) if weight]) for row in table]
    return [(row["input_ids"], [i for i, label in enumerate(row["labels"]) if label != -100]) for row in table]


def olmo_core(folder: Path, dtype: np.dtype[Any], seq_len: int | None) -> list[tuple[list[int], list[int]]]:
    """Documents by their tables, or rows of one length; the mask is of the token itself."""
    if seq_len is None:
        docs, masks = readers.dolma(folder, dtype.itemsize)
        assert masks is not None
    else:
        files = sorted(folder.glob("part-*.npy"))
        docs = [row for file in files for row in np.fromfile(file, dtype).reshape(-1, seq_len).tolist()]
        beside = [file.with_name("labels_mask_" + file.name) for file in files]
        masks = [row for file in beside for row in np.fromfile(file, "u1").reshape(-1, seq_len).tolist()]
    return [(doc, [i for i, counts in enumerate(mask) if counts]) for doc, mask in zip(docs, masks, strict=True)]


def mds_json(folder: Path) -> list[Any]:
    samples = []
    index = json.loads((folder / "index.json").read_text())
    for shard in index["shards"]:
        assert (shard["column_names"], shard["column_encodings"]) == (["turns"], ["json"])
        data = (folder / shard["raw_data"]["basename"]).read_bytes()
        count = int.from_bytes(data[:4], "little")
        places = np.frombuffer(data, "<u4", count + 1, 4).tolist()
        for start, stop in itertools.pairwise(places):
            assert int.from_bytes(data[start : start + 4], "little") == stop - start - 4
            samples.append(json.loads(data[start + 4 : stop]))
    return samples


def labelled(store: tokpress.Store) -> list[list[tuple[int, int]]]:
    """Of every document, place and id of the tokens in the loss; its first one is never predicted."""
    return [
        [(i, doc[i]) for i in range(1, len(doc)) if mask[i]]
        for doc, mask in zip(documents(store), masks_of(store), strict=True)
    ]


@pytest.mark.parametrize(
    ("trainer", "options"), [(trainer, options) for trainer in TRAINERS for options in OPTIONS[trainer]]
)
@few
@given(lengths=documents_of_some_length, dtype=st.sampled_from(["uint16", "uint32"]), seed=st.integers(0, 9))
def test_labelled_tokens_are_the_store_s(
    empty_store: Path,
    tmp_path_factory: pytest.TempPathFactory,
    trainer: str,
    options: Any,
    lengths: Any,
    dtype: str,
    seed: int,
) -> None:
    import shutil

    directory = tmp_path_factory.mktemp("trainer")
    made: Lengths = {"train": [[SEQ_LEN], *lengths]}
    path = furnish(Path(shutil.copytree(empty_store, directory / "s")), made, dtype=dtype, masks=True, seed=seed)
    store = tokpress.open(path)
    tokpress.export(store, trainer=trainer, out=directory / "out", lossy=trainer == "llm-foundry", **options)
    rows = read(directory / "out", trainer)
    found = [[(i, ids[i]) for i in places if i] for ids, places in rows]
    expected = labelled(store)
    if trainer == "llm-foundry":  # EOS after answers without one: said, and counted
        expected = [
            tokens if not tokens or tokens[-1][1] == EOS else [*tokens, (tokens[-1][0] + 1, EOS)] for tokens in expected
        ]
        firsts = [(doc, mask) for doc, mask in zip(documents(store), masks_of(store), strict=True)]
        expected = [
            [(1, EOS)] if not tokens and mask[0] and doc[0] != EOS else tokens
            for tokens, (doc, mask) in zip(expected, firsts, strict=True)
        ]
    assert found == expected


@pytest.mark.parametrize("trainer", ["hf", "trl", "axolotl", "levanter", "megatron-bridge", "olmo-core"])
@pytest.mark.parametrize("method", ["bestfit", "concat"])
def test_labelled_tokens_of_sequences_are_the_loader_s(
    make_store: MakeStore, tmp_path: Path, trainer: str, method: str
) -> None:
    store = make_store({"train": [[9, 12, 4], [8, 2, 14, 3]]}, masks=True)
    tokpress.pack(store.path, seq_len=16, method="bestfit")
    tokpress.export(store, trainer=trainer, out=tmp_path / "out", seq_len=16, method=method, lossy=True)
    across = trainer in ("levanter", "megatron-bridge")  # where the store's own bounds are kept
    data = tokpress.PretokenizedDataset(store, seq_len=16, method=method, mask_across_docs=across, output="numpy")
    batch = data.batch(range(len(data)))
    rows = read(tmp_path / "out", trainer)
    assert len(rows) == len(data)
    for (ids, places), expected, labels in zip(
        rows, batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True
    ):
        assert ids == expected[: len(ids)]
        assert [i for i in places if i] == [i for i, label in enumerate(labels) if label != -100 and i]


def test_padding_is_no_attention_and_no_label(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store({"train": [[3, 5]]})
    tokpress.export(store, trainer="hf", out=tmp_path / "out", max_length=6)
    rows = readers.arrow(tmp_path / "out" / "train")
    assert [row["attention_mask"] for row in rows] == [[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 0]]
    assert [[label == -100 for label in row["labels"]] for row in rows] == [
        [False] * 3 + [True] * 3,
        [False] * 5 + [True],
    ]


def test_lengths_of_packed_documents_add_up_to_their_row(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store({"train": [[3, 5, 9]]})
    tokpress.pack(store.path, seq_len=9, method="bestfit")
    tokpress.export(store, trainer="trl", out=tmp_path / "out", seq_len=9, method="bestfit")
    lengths = sorted(row["seq_lengths"] for row in readers.arrow(tmp_path / "out" / "train"))
    assert all(sum(row) == 9 for row in lengths)
    assert [9] in lengths
    assert sorted(flat(lengths)) == [1, 3, 5, 9]


class TestByDefault:
    @pytest.mark.parametrize("to", ["arrow", "parquet"])
    def test_a_masked_store_has_labels_that_trainers_read(self, make_store: MakeStore, tmp_path: Path, to: str) -> None:
        """`loss_mask` alone is read by none of them: TRL would have loss on the prompts without a word."""
        store = make_store({"train": [[9, 12], [4]]}, masks=True)
        tokpress.export(store, to=to, out=tmp_path / "out")
        rows = getattr(readers, to)(tmp_path / "out" / "train")
        expected = [
            [token if counts else -100 for token, counts in zip(doc, mask, strict=True)]
            for doc, mask in zip(documents(store), masks_of(store), strict=True)
        ]
        assert [row["labels"] for row in rows] == expected
        assert [row["attention_mask"] for row in rows] == [[1] * len(doc) for doc in documents(store)]


class TestSaid:
    def losses(self, made: Any) -> dict[str, tuple[int, int]]:
        return {loss.kind: (loss.tokens, loss.loss_tokens) for loss in made.losses or []}

    def test_tokens_that_stand_in_no_row(self, make_store: MakeStore, tmp_path: Path) -> None:
        store = make_store({"train": [[9, 30]]}, masks=True)
        lost = sum(masks_of(store)[1][16:])
        with pytest.raises(UsageError, match=rf"14 tokens stand in no row.*\({lost} of them in the loss\).*--lossy"):
            tokpress.export(store, trainer="hf", out=tmp_path / "out", max_length=16)
        assert not (tmp_path / "out").exists()
        made = tokpress.export(store, trainer="hf", out=tmp_path / "out", max_length=16, lossy=True)
        assert self.losses(made) == {"tokens-cut": (14, lost)}
        stored = json.loads((tmp_path / "out" / "metadata.json").read_text())
        assert stored["losses"][0]["loss_tokens"] == lost

    def test_without_a_mask_they_are_said_and_not_refused(self, make_store: MakeStore, tmp_path: Path) -> None:
        made = tokpress.export(make_store({"train": [[9, 30]]}), trainer="hf", out=tmp_path / "out", max_length=16)
        assert self.losses(made) == {"tokens-cut": (14, 0)}

    def test_documents_that_a_reader_finds_by_eos(self, make_store: MakeStore, tmp_path: Path) -> None:
        """OLMo-core cuts chats with EOS inside."""
        store = make_store({"train": [[20_000, 9]]}, eos=False)
        made = tokpress.export(store, to="dolma", out=tmp_path / "out")
        assert self.losses(made)["bounds-by-eos"] == (2, 0)
        plain = tokpress.export(make_store({"train": [[20_000, 9]]}), to="dolma", out=tmp_path / "plain")
        assert self.losses(plain) == {}

    def test_chats_with_eos_inside_are_refused_for_olmo_core_or_stand_in_rows(
        self, make_store: MakeStore, tmp_path: Path
    ) -> None:
        """Its datasets find documents by EOS, but for one that reads tables, and one that reads rows."""
        store = make_store({"train": [[9, 9]]}, masks=True, eos=False)
        ids = np.memmap(store.path / "shards" / "train-00000-000.bin", "<u2", "r+")
        ids[[3, 8, 17]] = EOS  # a template's own
        ids.flush()
        with pytest.raises(UsageError, match=r"would cut documents: train: 1 bounds are not where EOS.*--max-length N"):
            tokpress.export(store.path, trainer="olmo-core", out=tmp_path / "out")
        assert not (tmp_path / "out").exists()
        made = tokpress.export(store.path, trainer="olmo-core", out=tmp_path / "out", lossy=True)
        assert self.losses(made)["bounds-by-eos"] == (1, 0)
        rows = tokpress.export(store.path, trainer="olmo-core", out=tmp_path / "rows", max_length=9)
        assert "bounds-by-eos" not in self.losses(rows)
        expected = [doc + [EOS] * (9 - len(doc)) for doc in documents(tokpress.open(store.path))]
        assert [ids for ids, _ in read(tmp_path / "rows", "olmo-core")] == expected

    def test_loss_after_eos_that_megatron_bridge_leaves_out(self, make_store: MakeStore, tmp_path: Path) -> None:
        store = make_store({"train": [[9, 9]]}, masks=True)
        ids = np.memmap(store.path / "shards" / "train-00000-000.bin", "<u2", "r+")
        mask = np.memmap(store.path / "shards" / "train-00000-000.mask", "u1", "r+")
        ids[3], mask[4] = EOS, 1
        ids.flush()
        mask.flush()
        with pytest.raises(UsageError, match="1 tokens follow an EOS inside their document"):
            tokpress.export(store.path, trainer="megatron-bridge", out=tmp_path / "out", max_length=16)

    def test_long_documents_that_llm_foundry_cuts(self, make_store: MakeStore, tmp_path: Path) -> None:
        """It drops what is beyond its context, without a word."""
        store = make_store({"train": [[2048, 2100], [9]]})
        assert self.losses(tokpress.export(store, to="mds", out=tmp_path / "out")) == {"tokens-cut": (52, 0)}
        rows = tokpress.export(store, to="mds", out=tmp_path / "rows", seq_len=1024)
        assert self.losses(rows) == {"tokens-cut": ((2048 + 2100 + 9) % 1024, 0)}

    def test_answers_that_llm_foundry_ends(self, make_store: MakeStore, tmp_path: Path) -> None:
        store = make_store({"train": [[9, 9]]}, masks=True)
        np.memmap(store.path / "shards" / "train-00000-000.mask", "u1", "r+")[:] = [0] * 8 + [1] + [0] * 6 + [1, 0, 0]
        with pytest.raises(UsageError, match="1 tokens more, EOS, that LLM Foundry puts after answers"):
            tokpress.export(store.path, trainer="llm-foundry", out=tmp_path / "out")
        made = tokpress.export(store.path, trainer="llm-foundry", out=tmp_path / "out", lossy=True)
        assert [(loss.kind, loss.tokens) for loss in made.losses or []] == [("tokens-cut", 2), ("loss-changed", 1)]

    def test_a_mask_that_is_not_read_and_a_split_too_small(self, make_store: MakeStore, tmp_path: Path) -> None:
        made = tokpress.export(make_store({"train": [[9]]}, masks=True), to="mds", out=tmp_path / "out")
        assert "mask-not-read" in self.losses(made)
        made = tokpress.export(make_store({"train": [[9]]}), to="megatron", out=tmp_path / "small")
        assert self.losses(made) == {"too-small": (9, 0)}


class TestRefused:
    @pytest.mark.parametrize(
        ("masks", "options", "said"),
        [
            (True, {"trainer": "levanter"}, "rows of one length. Say which: --seq-len"),
            (True, {"trainer": "llm-foundry", "seq_len": 8}, "would have loss on everything in rows"),
            (False, {"trainer": "llm-foundry"}, "reads the first max_seq_len tokens of a document and drops the rest"),
            (True, {"trainer": "trl", "to": "mds"}, "--for trl reads --to arrow or parquet"),
            (True, {"trainer": "nemo"}, "--for 'nemo' is not known. Choose one of hf, trl"),
            (True, {}, "say which format: --to parquet, for example; or who reads it"),
        ],
    )
    def test_of_options(
        self, make_store: MakeStore, tmp_path: Path, masks: bool, options: dict[str, Any], said: str
    ) -> None:
        with pytest.raises(UsageError, match=said):
            tokpress.export(make_store({"train": [[3, 4]]}, masks=masks), out=tmp_path / "out", **options)

    def test_an_export_is_known_when_it_is_taken_for_a_store(self, make_store: MakeStore, tmp_path: Path) -> None:
        tokpress.export(make_store({"train": [[3, 4]]}), to="parquet", out=tmp_path / "out")
        with pytest.raises(tokpress.TokpressError, match=r"it is an export of one \(--to parquet\)"):
            tokpress.open(tmp_path / "out")
