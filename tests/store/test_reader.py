"""A store read back: by document, by token, as text, from anywhere."""

from __future__ import annotations

import base64
import json
import multiprocessing
import operator
import os
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokpress
from tokpress.errors import StoreError
from tokpress.records import MANIFEST, PLAN

from .tampering import reseal

END = 256  # of the `bytes` tokenizer
TEXTS = ["", "a", "bcd", "", "", "ein längerer Text, der eine Scherbe füllt", "x" * 100, "", "y", "zz", ""]


def build(directory: Path, texts: Sequence[str], **options: object) -> tokpress.Store:
    directory.mkdir(exist_ok=True)
    source = directory / "texts.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return tokpress.build(source, **({"tokenizer": "bytes", "out": directory / "store"} | options))  # type: ignore[arg-type]


def encoded(text: str) -> list[int]:
    return [*text.encode(), END]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tokpress.Store:
    built = build(tmp_path_factory.mktemp("reader"), TEXTS, shard_size=8, unit_size=40)
    shards = built.manifest.splits["train"].shards
    assert len(shards) > 6
    assert any(not shard.docs for shard in shards)
    return tokpress.open(built.path)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., tokpress.Store]:
    return lambda texts, **options: build(tmp_path, texts, **options)


class TestDocuments:
    def test_come_back_in_order(self, store: tokpress.Store) -> None:
        assert [store.doc(i).tolist() for i in range(len(TEXTS))] == [encoded(text) for text in TEXTS]

    def test_are_counted(self, store: tokpress.Store) -> None:
        assert len(store) == store.num_docs == len(TEXTS)
        assert store.num_tokens == sum(len(encoded(text)) for text in TEXTS)
        assert store.doc_lengths().tolist() == [len(encoded(text)) for text in TEXTS]

    def test_are_views_into_the_mapped_file(self, store: tokpress.Store) -> None:
        for i in range(len(TEXTS)):
            shard, _ = store._locate(i)
            assert np.shares_memory(store.doc(i), shard.ids)
            assert store.doc(i).dtype == np.dtype("<u2")

    def test_cannot_be_written_to(self, store: tokpress.Store) -> None:
        with pytest.raises(ValueError, match="read-only"):
            store.doc(2)[0] = 0

    def test_are_counted_from_the_end_too(self, store: tokpress.Store) -> None:
        assert [store[-1 - i].tolist() for i in range(len(TEXTS))] == [encoded(text) for text in reversed(TEXTS)]

    @pytest.mark.parametrize("i", [len(TEXTS), len(TEXTS) + 100, -len(TEXTS) - 1])
    def test_outside_are_an_index_error_that_names_the_index(self, store: tokpress.Store, i: int) -> None:
        for ask in (store.doc, store.__getitem__, store.where, store.text, store.shard_of):
            with pytest.raises(IndexError, match=rf"document {i} is outside"):
                ask(i)

    @given(st.slices(len(TEXTS)))
    def test_slices_are_those_of_a_list(self, store: tokpress.Store, which: slice) -> None:
        assert [doc.tolist() for doc in store[which]] == [encoded(text) for text in TEXTS[which]]

    def test_iterating_gives_what_indexing_gives(self, store: tokpress.Store) -> None:
        assert [doc.tolist() for doc in store] == [store[i].tolist() for i in range(len(store))]

    def test_take_numpy_s_integers(self, store: tokpress.Store) -> None:
        assert store[np.int64(2)].tolist() == encoded(TEXTS[2])  # type: ignore[call-overload]


class TestTokens:
    @given(st.data())
    def test_are_the_documents_end_to_end(self, store: tokpress.Store, data: st.DataObject) -> None:
        every = [token for text in TEXTS for token in encoded(text)]
        start = data.draw(st.integers(0, len(every)))
        stop = data.draw(st.integers(start, len(every)))
        tokens = store.tokens(start, stop)
        assert tokens.tolist() == every[start:stop]
        assert tokens.dtype == np.dtype("<u2")

    def test_within_a_shard_are_a_view(self, store: tokpress.Store) -> None:
        shard = store._shard(0)
        assert np.shares_memory(store.tokens(1, 4), shard.ids)

    @pytest.mark.parametrize(("start", "stop"), [(-1, 3), (3, 2), (0, 10**6), (10**6, 10**6)])
    def test_outside_are_an_index_error(self, store: tokpress.Store, start: int, stop: int) -> None:
        with pytest.raises(IndexError, match=f"tokens {start}:{stop} are outside"):
            store.tokens(start, stop)


class TestSpans:
    @given(st.lists(st.integers(0, len(TEXTS) - 1)))
    def test_are_where_documents_stand_in_the_stream(self, store: tokpress.Store, docs: list[int]) -> None:
        starts, stops = store.spans(np.array(docs, np.int64))
        assert [store.tokens(a, b).tolist() for a, b in zip(starts.tolist(), stops.tolist(), strict=True)] == [
            encoded(TEXTS[doc]) for doc in docs
        ]

    @pytest.mark.parametrize("doc", [-1, len(TEXTS)])
    def test_outside_are_an_index_error(self, store: tokpress.Store, doc: int) -> None:
        with pytest.raises(IndexError, match=f"document {doc} is outside"):
            store.spans(np.array([0, doc]))

    @pytest.mark.parametrize("block_docs", [1, 2, 100])
    def test_all_ends_come_in_blocks(self, store: tokpress.Store, block_docs: int) -> None:
        blocks = list(store.end_blocks(block_docs))
        assert max(map(len, blocks)) <= block_docs
        assert np.concatenate(blocks).tolist() == np.cumsum(store.doc_lengths()).tolist()


class TestText:
    def test_is_what_went_in(self, store: tokpress.Store) -> None:
        assert [store.text(i) for i in range(len(TEXTS))] == TEXTS
        assert store.text(-2) == TEXTS[-2]

    @pytest.mark.parametrize("bos", [False, True])
    @pytest.mark.parametrize("eos", [False, True])
    def test_leaves_out_the_tokens_that_the_build_added(
        self, make: Callable[..., tokpress.Store], bpe: Path, bos: bool, eos: bool
    ) -> None:
        texts = ["", "<|endoftext|>", "a"]
        store = make(texts, tokenizer=bpe, bos=bos, eos=eos, bos_token="<|endoftext|>")
        assert [store.text(i) for i in range(3)] == texts
        assert [len(doc) - bos - eos for doc in (store[0], store[2])] == [0, 1]

    @pytest.mark.parametrize("frame", [{}, {"bos": True, "bos_token": "<|endoftext|>"}])
    def test_of_a_record_that_was_cut_is_all_of_its_piece(
        self, make: Callable[..., tokpress.Store], frame: dict[str, Any]
    ) -> None:
        """A piece that does not begin with BOS, or end with EOS, has no token to leave out."""
        text = "a record that is cut into pieces"
        store = make([text], max_length=8, overlong="split", **frame)
        assert len(store) > 3
        assert "".join(store.text(i) for i in range(len(store))) == text

    def test_decoding_shows_special_tokens(self, store: tokpress.Store) -> None:
        assert store.decode(store[2]) == "bcd<|endoftext|>"
        assert store.decode([97, 98]) == "ab"

    def test_needs_nothing_but_the_store(self, make: Callable[..., tokpress.Store], tmp_path: Path) -> None:
        make(TEXTS).path.rename(tmp_path / "elsewhere")
        (tmp_path / "texts.jsonl").unlink()
        assert tokpress.open(tmp_path / "elsewhere").text(5) == TEXTS[5]


class TestWhere:
    def test_is_the_record_s_own_place(self, store: tokpress.Store) -> None:
        for i, text in enumerate(TEXTS):
            path, position = store.where(i)
            assert json.loads(Path(path).read_bytes()[position:].splitlines()[0]) == {"text": text}

    def test_tells_inputs_apart(self, tmp_path: Path) -> None:
        paths = []
        for i in range(5):
            paths.append(tmp_path / f"{i}.txt")
            paths[-1].write_text(f"document {i}")
        store = tokpress.build(paths, tokenizer="bytes", out=tmp_path / "store", shard_size=30)
        assert [store.where(i) for i in range(5)] == [(str(path), 0) for path in paths]

    def test_names_the_shard(self, store: tokpress.Store) -> None:
        names = {receipt.name for receipt in store.manifest.splits["train"].shards if receipt.docs}
        assert {store.shard_of(i) for i in range(len(store))} == names


class TestUnusualStores:
    def test_without_documents(self, make: Callable[..., tokpress.Store]) -> None:
        store = make([], limit=0)
        assert (len(store), store.num_tokens, list(store), store[:]) == (0, 0, [], [])
        assert store.tokens(0, 0).tolist() == []
        assert store.tokens(0, 0).dtype == np.dtype("<u2")
        assert store.doc_lengths().tolist() == []
        assert store.verify().ok
        with pytest.raises(IndexError):
            store.doc(0)
        with pytest.raises(IndexError):
            store.doc(-1)

    def test_with_nothing_but_empty_documents(self, make: Callable[..., tokpress.Store]) -> None:
        store = make(["", "", ""], eos=False)
        assert [doc.tolist() for doc in store] == [[], [], []]
        assert store.num_tokens == 0
        assert store.tokens(0, 0).tolist() == []
        assert store.verify().ok

    def test_with_a_document_larger_than_a_shard(self, make: Callable[..., tokpress.Store]) -> None:
        store = make(["a", "b" * 10_000, "c"], shard_size=100)
        assert [receipt.docs for receipt in store.manifest.splits["train"].shards] == [2, 1]
        assert [store.text(i) for i in range(3)] == ["a", "b" * 10_000, "c"]
        assert store.verify().ok

    def test_of_32_bit_ids(self, make: Callable[..., tokpress.Store], tmp_path: Path) -> None:
        ranks = tmp_path / "ranks.tiktoken"
        ranks.write_bytes(b"".join(base64.b64encode(bytes([i])) + b" %d\n" % i for i in range(256)))
        store = make(
            TEXTS, tokenizer=ranks, pattern="gpt2", added_tokens={"<end>": 70_000}, eos_token="<end>", shard_size=16
        )
        assert store.dtype == np.dtype("<u4")
        assert store.doc(2).tolist() == [*b"bcd", 70_000]
        assert [store.text(i) for i in range(len(TEXTS))] == TEXTS
        assert store.verify().ok

    def test_of_more_shards_than_a_process_may_have_open_files(self, make: Callable[..., tokpress.Store]) -> None:
        store = make([str(i) for i in range(200)], shard_size=1)
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        assert sum(len(doc) for doc in store) == store.num_tokens
        assert len(store._shards) == 200
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208

    def test_under_a_path_that_is_no_utf_8(self, make: Callable[..., tokpress.Store], tmp_path: Path) -> None:
        odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe"))
        make(TEXTS).path.rename(odd)
        assert tokpress.open(odd).text(2) == TEXTS[2]


class TestOtherProcesses:
    def test_a_pickled_store_opens_its_own_files(self, store: tokpress.Store) -> None:
        assert store.text(5) == TEXTS[5]  # maps a shard and loads the tokenizer
        data = pickle.dumps(store)
        assert len(data) < 20_000
        copy: tokpress.Store = pickle.loads(data)
        assert len(copy._shards) == 0
        assert "engine" not in vars(copy)
        assert [doc.tolist() for doc in copy] == [doc.tolist() for doc in store]
        assert copy.text(5) == TEXTS[5]

    def test_a_spawned_process_can_read_it(self, store: tokpress.Store) -> None:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            ids = pool.apply(operator.methodcaller("doc", 2), (store,))
            text = pool.apply(operator.methodcaller("text", 5), (store,))
        assert ids.tolist() == encoded(TEXTS[2])
        assert text == TEXTS[5]


class TestOpening:
    def test_takes_a_path_or_a_string(self, store: tokpress.Store) -> None:
        assert tokpress.open(str(store.path)).fingerprint == tokpress.open(store.path).fingerprint == store.fingerprint

    def test_reads_nothing_but_the_manifest(self, store_copy: Path) -> None:
        for path in store_copy.rglob("*"):
            if path.is_file() and path.name != MANIFEST:
                path.unlink()
        assert len(tokpress.open(store_copy)) == 15

    def test_says_what_it_is(self, store: tokpress.Store) -> None:
        assert (
            repr(store)
            == f"Store({str(store.path)!r}, split='train', num_docs=11, num_tokens={store.num_tokens:,}, dtype=uint16)"
        )

    def test_an_unknown_split_names_those_there_are(self, store: tokpress.Store) -> None:
        with pytest.raises(StoreError, match=r"no split 'val'.*train"):
            tokpress.open(store.path, split="val")
        with pytest.raises(StoreError, match=r"no split 'val'.*train"):
            store.split("val")
        assert len(store.split("train")) == len(store)

    def test_an_unfinished_store_says_how_to_go_on(self, store_copy: Path) -> None:
        (store_copy / MANIFEST).unlink()
        with pytest.raises(StoreError, match=r"not finished.*`tokpress build` command again"):
            tokpress.open(store_copy)

    def test_no_store_says_how_to_make_one(self, tmp_path: Path) -> None:
        for path in (tmp_path, tmp_path / "nowhere"):
            with pytest.raises(StoreError, match=r"no store at .*tokpress build"):
                tokpress.open(path)


class TestDamagedStores:
    """An error names the file and the command that looks further."""

    @pytest.mark.parametrize("extension", ["bin", "ends", "pos"])
    @pytest.mark.parametrize("damage", ["missing", "short", "long", "empty", "directory"])
    def test_a_shard_s_file(self, store_copy: Path, extension: str, damage: str) -> None:
        path = store_copy / "shards" / f"train-00000-000.{extension}"
        data = path.read_bytes()
        path.unlink()
        if damage == "directory":
            path.mkdir()
        elif damage != "missing":
            path.write_bytes({"short": data[:-1], "long": data + b"\0", "empty": b""}[damage])
        store = tokpress.open(store_copy)
        said = "is missing" if damage in ("missing", "directory") else f"bytes instead of {len(data)}"
        for read in (lambda: store.doc(0), lambda: store.tokens(0, 3), lambda: list(store), lambda: store.where(0)):
            with pytest.raises(StoreError, match=rf"{path} .*{said}.*tokpress verify {store_copy}"):
                read()
        assert store.doc(-1).tolist()  # what is whole can be read

    def test_counts_that_the_files_do_not_bear_out(self, store_copy: Path) -> None:
        manifest = json.loads((store_copy / MANIFEST).read_bytes())
        tokens = manifest["splits"]["train"]["shards"][0]["tokens"]
        manifest["splits"]["train"]["shards"][0]["tokens"] = tokens + 1
        (store_copy / MANIFEST).write_text(json.dumps(manifest))
        with pytest.raises(StoreError, match=rf"000\.bin has {2 * tokens} bytes instead of {2 * tokens + 2}"):
            tokpress.open(store_copy).doc(0)

    def test_a_plan_that_is_gone(self, store_copy: Path) -> None:
        (store_copy / PLAN).unlink()
        store = tokpress.open(store_copy)
        assert len(store.doc(0)) == 4  # the ids do not need it
        with pytest.raises(StoreError, match=rf"{store_copy / PLAN} .*tokpress verify"):
            store.where(0)

    @pytest.mark.parametrize("damage", ["missing", "damaged", "unknown kind"])
    def test_a_tokenizer_that_cannot_be_loaded(self, store_copy: Path, damage: str) -> None:
        path = store_copy / "tokenizer" / "tokenizer.json"
        if damage == "missing":
            path.unlink()
        elif damage == "damaged":
            path.write_text("{}")
        else:
            manifest = json.loads((store_copy / MANIFEST).read_bytes())
            manifest["tokenizer"]["kind"] = "unheard-of"
            (store_copy / MANIFEST).write_text(json.dumps(manifest))
        with pytest.raises(
            StoreError, match=rf"tokenizer in {store_copy / 'tokenizer'} cannot be loaded.*tokpress verify"
        ):
            tokpress.open(store_copy).text(0)

    def test_the_totals_of_the_manifest_are_not_trusted(self, store_copy: Path) -> None:
        before = tokpress.open(store_copy)
        split = before.manifest.splits["train"]
        reseal(store_copy, splits={"train": type(split)(docs=10**6, tokens=10**6, shards=split.shards)})
        after = tokpress.open(store_copy)
        assert (after.num_docs, after.num_tokens) == (before.num_docs, before.num_tokens) == (split.docs, split.tokens)

    def test_verify_is_at_hand(self, store_copy: Path) -> None:
        store = tokpress.open(store_copy)
        assert store.verify().ok
        (store_copy / PLAN).unlink()
        assert [problem.file for problem in store.verify().problems] == [PLAN]
