"""PretokenizedDataset: like a list of sequences, from any process, and damage is named where it is met."""

from __future__ import annotations

import multiprocessing
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tokpress
from tokpress.errors import StoreError, UsageError
from tokpress.loader.dataset import checked_dtype
from tokpress.loader.memory import stream as stream_module
from tokpress.loader.memory.ranges import ragged
from tokpress.loader.memory.read_ahead import expect_order

from .conftest import SEQ_LEN, build, make_texts

Data = tokpress.PretokenizedDataset


class TestSequences:
    def test_are_the_stream_cut_every_seq_len(self, store: tokpress.Store, data: Data) -> None:
        assert len(data) == store.num_tokens // SEQ_LEN
        for i in range(len(data)):
            assert data[i]["input_ids"].tolist() == store.tokens(i * SEQ_LEN, (i + 1) * SEQ_LEN).tolist()

    def test_come_in_batches_the_same(self, data: Data) -> None:
        chosen = [5, 0, 5, len(data) - 1]
        assert data.batch(chosen)["input_ids"].tolist() == [data[i]["input_ids"].tolist() for i in chosen]
        assert data.batch(np.array(chosen))["labels"].shape == (4, SEQ_LEN)
        assert data.batch([])["input_ids"].shape == (0, SEQ_LEN)

    @pytest.mark.parametrize("output", ["numpy", "torch"])
    @given(st.integers(1, 400), st.data())
    def test_of_any_length_in_any_order(
        self, store: tokpress.Store, output: Any, seq_len: int, draw: st.DataObject
    ) -> None:
        data = Data(store, seq_len=seq_len, output=output, fields=["input_ids"])
        chosen = draw.draw(st.lists(st.integers(0, len(data) - 1), min_size=1, max_size=9))
        for row, i in zip(data.batch(chosen)["input_ids"], chosen, strict=True):
            assert row.tolist() == store.tokens(i * seq_len, (i + 1) * seq_len).tolist()

    def test_when_another_thread_is_just_mapping_their_shard(
        self, store: tokpress.Store, data: Data, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        expected = data.batch([0])["input_ids"]
        fresh = tokpress.PretokenizedDataset(tokpress.open(store.path), seq_len=SEQ_LEN, output="numpy")

        def slow(array: npt.NDArray[Any], *, scattered: bool) -> None:
            sleep(0.05)
            expect_order(array, scattered=scattered)

        def first_row(thread: int) -> npt.NDArray[Any]:
            sleep(0.01 * thread)
            row: npt.NDArray[Any] = fresh.batch([0])["input_ids"]
            return row

        monkeypatch.setattr(stream_module, "expect_order", slow)
        with ThreadPoolExecutor(4) as threads:
            assert all(np.array_equal(row, expected) for row in threads.map(first_row, range(4)))

    @pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint16, np.uint32])
    def test_have_the_dtype_that_was_asked_for(self, store: tokpress.Store, dtype: type) -> None:
        data = Data(store, seq_len=8, dtype=dtype, output="numpy", fields=["input_ids"])
        batch = data.batch([3, 1, 4, 1])["input_ids"]
        assert batch.dtype == dtype
        assert batch[2].tolist() == store.tokens(32, 40).tolist()

    def test_count_from_the_end_too(self, data: Data) -> None:
        assert data[-1]["input_ids"].tolist() == data[len(data) - 1]["input_ids"].tolist()

    @pytest.mark.parametrize("beyond", [0, 100, -(10**9)])
    def test_outside_are_an_index_error(self, data: Data, beyond: int) -> None:
        with pytest.raises(IndexError, match=f"sequence {len(data) + beyond} is outside"):
            data[len(data) + beyond]

    def test_with_shifted_labels_every_token_but_the_first_is_a_label_once(self, store: tokpress.Store) -> None:
        data = Data(store, seq_len=SEQ_LEN, shift_labels=True, output="numpy")
        batch = data.batch(range(len(data)))
        stream = store.tokens(0, store.num_tokens).tolist()
        assert batch["input_ids"].reshape(-1).tolist() == stream[: len(data) * SEQ_LEN]
        assert batch["labels"].reshape(-1).tolist() == stream[1 : len(data) * SEQ_LEN + 1]

    @pytest.mark.parametrize("overlap", [1, 3])
    def test_with_shifted_labels_share_as_many_tokens_as_is_asked_for(
        self, store: tokpress.Store, overlap: int
    ) -> None:
        data = Data(store, seq_len=SEQ_LEN, shift_labels=True, overlap=overlap, output="numpy")
        stream = store.tokens(0, store.num_tokens).tolist()
        for i in (0, 1, len(data) - 1):
            start = i * (SEQ_LEN + 1 - overlap)
            assert data[i]["input_ids"].tolist() == stream[start : start + SEQ_LEN]

    def test_may_be_of_a_dtype_that_just_holds_the_vocabulary(self) -> None:
        assert checked_dtype(np.uint16, 2**16, needs_sign=False) == np.dtype(np.uint16)
        with pytest.raises(UsageError, match="uint16 cannot hold the 65,537 ids"):
            checked_dtype(np.uint16, 2**16 + 1, needs_sign=False)


class TestPadding:
    @pytest.mark.parametrize(("options", "pad_id"), [({}, 256), ({"pad_id": 7}, 7), ({"pad_id": 0}, 0)])
    def test_is_eos_unless_an_id_is_given_be_it_0(
        self, store: tokpress.Store, options: dict[str, int], pad_id: int
    ) -> None:
        data = Data(store, seq_len=100, method="pad", output="numpy", **options)  # type: ignore[arg-type]
        for doc in (0, 1):
            length = len(store.doc(doc))
            assert data[doc]["input_ids"][length:].tolist() == [pad_id] * (100 - length)


class TestTensors:
    def test_where_torch_is_installed(self, store: tokpress.Store) -> None:
        data = Data(store, seq_len=SEQ_LEN)
        assert isinstance(data[0]["input_ids"], torch.Tensor)
        assert data.batch([0, 1])["labels"].dtype == torch.int64

    def test_are_arrays_without_it(self, store: tokpress.Store) -> None:
        code = (
            "import sys; sys.modules['torch'] = None\n"
            "import importlib.util as util; find = util.find_spec\n"
            "util.find_spec = lambda name, package=None: None if name == 'torch' else find(name, package)\n"
            "import tokpress\n"
            f"data = tokpress.PretokenizedDataset({str(store.path)!r}, seq_len=16)\n"
            "batch = next(iter(tokpress.Loader(data, batch_size=2)))\n"
            "print(type(batch['input_ids']).__name__, type(data[0]['labels']).__name__)\n"
            "try: tokpress.make_dataloader(data, batch_size=2)\n"
            "except tokpress.TokpressError as error: print(error)\n"
            "try: tokpress.PretokenizedDataset(data.store, seq_len=16, output='torch')\n"
            "except tokpress.TokpressError as error: print(error)\n"
        )
        lines = subprocess.check_output([sys.executable, "-c", code], text=True).splitlines()
        assert lines[0] == "ndarray ndarray"
        assert all("pip install 'tokpress[torch]'" in line for line in lines[1:])
        assert len(lines) == 3


def read_there(data: Data, i: int) -> list[int]:
    return data[i]["input_ids"].tolist()  # type: ignore[no-any-return]


class TestPickling:
    def test_a_copy_reads_the_same(self, data: Data) -> None:
        data.batch([0, 1, 2])  # with maps open
        pickled = pickle.dumps(data)
        assert len(pickled) < 100_000
        copy = pickle.loads(pickled)
        assert copy.batch([2, 0])["input_ids"].tolist() == data.batch([2, 0])["input_ids"].tolist()

    def test_into_a_process_started_afresh(self, data: Data) -> None:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.apply(read_there, (data, 3)) == read_there(data, 3)

    def test_best_fit_too(self, tmp_path: Path) -> None:
        store = build(tmp_path, make_texts(20, 0))
        tokpress.pack(store.path, seq_len=32, method="bestfit")
        data = Data(store, seq_len=32, method="bestfit", output="numpy", verify="first-touch")
        data.batch([0, 1])
        copy = pickle.loads(pickle.dumps(data))
        assert copy[1]["input_ids"].tolist() == data[1]["input_ids"].tolist()


class TestDamage:
    @pytest.fixture
    def copy(self, store: tokpress.Store, tmp_path: Path) -> Path:
        return Path(shutil.copytree(store.path, tmp_path / "copy"))

    def victim(self, directory: Path, extension: str = "bin") -> Path:
        return sorted((directory / "shards").glob(f"*.{extension}"))[3]

    def read_all(self, directory: Path, **options: Any) -> None:
        data = Data(directory, seq_len=SEQ_LEN, output="numpy", fields=["input_ids", "position_ids"], **options)
        for batch in tokpress.Loader(data, batch_size=4):
            assert batch["input_ids"].shape == (4, SEQ_LEN)

    @pytest.mark.parametrize("extension", ["bin", "ends"])
    def test_a_missing_shard_is_named(self, copy: Path, extension: str) -> None:
        victim = self.victim(copy, extension)
        victim.unlink()
        with pytest.raises(StoreError, match=f"{victim.name} is missing.*tokpress verify {copy}"):
            self.read_all(copy)

    @pytest.mark.parametrize("extension", ["bin", "ends"])
    def test_a_short_shard_is_named(self, copy: Path, extension: str) -> None:
        victim = self.victim(copy, extension)
        victim.write_bytes(victim.read_bytes()[:-8])
        with pytest.raises(StoreError, match=f"{victim.name} has .* bytes instead of .*tokpress verify {copy}"):
            self.read_all(copy)

    @pytest.mark.parametrize("extension", ["bin", "ends", "pos"])
    def test_a_changed_shard_is_named_when_first_touched(self, copy: Path, extension: str) -> None:
        victim = self.victim(copy, extension)
        data = bytearray(victim.read_bytes())
        data[8] ^= 1
        victim.write_bytes(data)
        with pytest.raises(
            StoreError, match=f"{victim.name} was changed after the build.*tokpress verify {copy}.*build"
        ):
            self.read_all(copy, verify="first-touch")

    def test_a_changed_shard_is_named_in_another_process_too(self, copy: Path) -> None:
        """The workers of a torch `DataLoader` get a pickled dataset, and are those who read."""
        pickled = pickle.dumps(Data(copy, seq_len=SEQ_LEN, output="numpy", verify="first-touch"))
        victim = self.victim(copy)
        victim.write_bytes(bytes([victim.read_bytes()[0] ^ 1]) + victim.read_bytes()[1:])
        there = pickle.loads(pickled)
        with pytest.raises(StoreError, match=f"{victim.name} was changed after the build"):
            there.batch(range(len(there)))

    def test_what_is_not_touched_is_not_read(self, copy: Path) -> None:
        self.victim(copy).unlink()
        data = Data(copy, seq_len=SEQ_LEN, output="numpy", verify="first-touch")
        assert data[0]["input_ids"].shape == (SEQ_LEN,)

    def test_a_sound_store_passes(self, copy: Path) -> None:
        self.read_all(copy, verify="first-touch")


class TestNumbers:
    def test_negative_ones_count_from_the_end(self, store: tokpress.Store) -> None:
        data = Data(store, seq_len=SEQ_LEN, output="numpy")
        assert data.batch([-1, 0])["input_ids"].tolist() == [
            data[-1]["input_ids"].tolist(),
            data[0]["input_ids"].tolist(),
        ]

    @pytest.mark.parametrize("numbers", [[1.5], ["a"], [None], None, [2**70], [True]])
    def test_what_is_no_whole_number_is_a_type_error(self, store: tokpress.Store, numbers: Any) -> None:
        with pytest.raises(TypeError, match="Give whole numbers"):
            Data(store, seq_len=SEQ_LEN, output="numpy").batch(numbers)


class TestMistakes:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"fields": ["tokens"]}, "give some of input_ids, labels"),
            ({"fields": []}, "give some of input_ids, labels"),
            ({"output": "jax"}, 'Give "auto", "numpy" or "torch"'),
            ({"verify": "always"}, 'Give "size" or "first-touch"'),
            ({"dtype": "uint8"}, "dtype=uint8 cannot hold the 257 ids"),
            ({"dtype": "float32"}, "dtype=float32 cannot hold"),
            ({"dtype": "uint16"}, "no place for an ignored label"),
            ({"method": "first-fit"}, "no packing method 'first-fit'"),
        ],
    )
    def test_are_named(self, store: tokpress.Store, options: dict[str, Any], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            Data(store, **({"seq_len": SEQ_LEN} | options))

    def test_a_split_that_there_is_not(self, store: tokpress.Store) -> None:
        with pytest.raises(StoreError, match="no split 'val'"):
            Data(store, seq_len=SEQ_LEN, split="val")


def test_ragged_ranges() -> None:
    which, within = ragged(np.array([2, 0, 3]))
    assert (which.tolist(), within.tolist()) == ([0, 0, 2, 2, 2], [0, 1, 0, 1, 2])
