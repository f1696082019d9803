"""OLMo-core's own datasets read our dolma exports: documents, loss tokens and the order of a resumed loader."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokpress

pytestmark = pytest.mark.filterwarnings("ignore")
SEQ_LEN = 128
EOS = 256


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> tokpress.Store:
    """Of two or three turns, each of which ends with EOS: found by EOS, each would be two or three documents."""
    directory = tmp_path_factory.mktemp("chats")
    with (directory / "chats.jsonl").open("w") as file:
        for i in range(40):
            turns = [{"role": role, "content": f"{role[0]} {i} " * (1 + i % 3)} for role in ("user", "assistant")]
            file.write(json.dumps({"messages": turns * (1 + i % 2)}) + "\n")
    (directory / "chat.jinja").write_text(
        "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
    )
    return tokpress.build(
        directory / "chats.jsonl",
        tokenizer="bytes",
        messages_field="messages",
        chat_template=directory / "chat.jinja",
        out=directory / "store",
    )


def config(olmo: Any, kind: str, out: Path, work: Path, **options: Any) -> Any:
    paths = sorted((out / "train").glob("part-*.npy"))
    return getattr(olmo, kind)(
        paths=[str(path) for path in paths],
        label_mask_paths=[str(path.with_name("labels_mask_" + path.name)) for path in paths],
        tokenizer=olmo.TokenizerConfig(vocab_size=257, eos_token_id=EOS, pad_token_id=EOS),
        sequence_length=SEQ_LEN,
        work_dir=str(work),
        **options,
    )


def loss_tokens(item: Any) -> list[int]:
    ids, mask = item["input_ids"].tolist(), item["label_mask"].tolist()
    return [token for token, counts in zip(ids, mask, strict=True) if counts]


def expected(store: tokpress.Store) -> list[list[int]]:
    return sorted(store.doc(i)[np.asarray(store.mask(i)) == 1].tolist() for i in range(store.num_docs))


def test_chats_are_refused_as_they_are(chats: tokpress.Store, tmp_path: Path) -> None:
    with pytest.raises(tokpress.TokpressError, match="would cut documents"):
        tokpress.export(chats, trainer="olmo-core", out=tmp_path / "out")


def test_a_document_a_row_is_an_instance(peer: Any, chats: tokpress.Store, tmp_path: Path) -> None:
    olmo = peer("olmo_core.data")
    tokpress.export(chats, trainer="olmo-core", out=tmp_path / "out", max_length=SEQ_LEN)
    data = config(olmo, "NumpyFSLDatasetConfig", tmp_path / "out", tmp_path / "work").build()
    data.prepare()
    assert len(data) == chats.num_docs
    assert sorted(loss_tokens(data[i]) for i in range(len(data))) == expected(chats)
    labels = peer("olmo_core.data.utils").get_labels({key: data[0][key][None] for key in ("input_ids", "label_mask")})
    assert int((labels != -100).sum()) == int(np.asarray(chats.mask(0))[1:].sum())


@pytest.mark.parametrize("tables", [True, False])
def test_its_packing_has_whole_chats_by_our_tables_only(
    peer: Any, chats: tokpress.Store, tmp_path: Path, tables: bool
) -> None:
    """Without them it cuts at each EOS: the loss tokens are all there, the chats are not."""
    olmo = peer("olmo_core.data")
    tokpress.export(chats, trainer="olmo-core", out=tmp_path / "out", lossy=True)
    made = config(
        olmo,
        "NumpyPackedFSLDatasetConfig",
        tmp_path / "out",
        tmp_path / "work",
        generate_doc_lengths=True,
        use_array_if_local=False if tables else None,
    )
    data = made.build()
    data.prepare()
    items = [data[i] for i in range(len(data))]
    assert sum(len(loss_tokens(item)) for item in items) == sum(map(len, expected(chats)))
    lengths = []
    for item in items:
        bounds = np.cumsum([0, *item["doc_lens"].tolist()])
        real = [stop - start for start, stop in itertools.pairwise(bounds) if item["label_mask"][start:stop].any()]
        lengths += real
    whole = sorted(len(chats.doc(i)) for i in range(chats.num_docs))
    assert (sorted(lengths) == whole) is tables


def test_plain_text_is_found_by_eos(peer: Any, tmp_path: Path) -> None:
    """And its own loader, stopped, goes on with the very next batch."""
    olmo = peer("olmo_core.data")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": f"text {i} " * 9}) + "\n" for i in range(60)))
    store = tokpress.build(tmp_path / "a.jsonl", tokenizer="bytes", out=tmp_path / "store")
    tokpress.export(store, trainer="olmo-core", out=tmp_path / "out")
    made = olmo.NumpyFSLDatasetConfig(
        paths=[str(tmp_path / "out" / "train" / "part-0-00000.npy")],
        tokenizer=olmo.TokenizerConfig(vocab_size=257, eos_token_id=EOS, pad_token_id=EOS),
        sequence_length=16,
        work_dir=str(tmp_path / "work"),
    )
    data = made.build()
    data.prepare()
    stream = store.tokens(0, store.num_tokens).tolist()
    found = [data[i]["input_ids"].tolist() for i in range(len(data))]
    assert found == [stream[at : at + 16] for at in range(0, len(stream) - 15, 16)]

    def loader() -> Any:
        collator = olmo.DataCollator(pad_token_id=EOS)
        made = olmo.NumpyDataLoaderConfig(global_batch_size=64, seed=3, num_workers=0).build(data, collator=collator)
        made.reshuffle(epoch=1)
        return made

    whole = [batch["input_ids"].tolist() for batch in loader()]
    interrupted, first = loader(), []
    for batch in interrupted:
        first.append(batch["input_ids"].tolist())
        if len(first) == 5:
            break
    state = interrupted.state_dict()
    resumed = loader()
    resumed.load_state_dict(state)
    assert first + [batch["input_ids"].tolist() for batch in resumed] == whole
