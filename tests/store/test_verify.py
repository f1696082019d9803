"""`verify` finds whatever is not as it was written, and says where."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

import tokpress
from tokpress.errors import StoreError
from tokpress.records import MANIFEST, PLAN, Counts, Plan, Receipt
from tokpress.storage.local import LocalStorage
from tokpress.store.manifest import encode, read_manifest, read_record
from tokpress.store.verify import verify_store

from .tampering import damaged, file_entry, forge, reseal, store_files

FIRST = "shards/train-00000-000"
FIRST_REJECTS = "rejects/00000-000.jsonl"


def problem_files(directory: Path) -> set[str]:
    return {problem.file for problem in verify_store(directory).problems}


def blamed(directory: Path) -> set[str]:
    """The same, also where there is no manifest any more: then there is no report, and the error names it."""
    try:
        return problem_files(directory)
    except StoreError as error:
        return {MANIFEST} if MANIFEST in str(error) else set()


class TestSound:
    def test_a_store_as_built_is_sound(self, sound_store: Path) -> None:
        report = verify_store(sound_store)
        files = store_files(sound_store)
        assert report.ok
        assert report.problems == []
        assert report.files == len(files)
        assert report.bytes == sum(map(len, files.values()))
        assert (report.docs, report.tokens) == (15, sum(len(files[name]) // 2 for name in files if name[-4:] == ".bin"))

    def test_progress_adds_up_to_the_total(self, sound_store: Path) -> None:
        heard: list[tuple[int, int]] = []
        verify_store(sound_store, progress=lambda checked, total: heard.append((checked, total)))
        totals = {total for _, total in heard}
        assert totals == {sum(checked for checked, _ in heard)}

    def test_the_fixture_has_a_little_of_everything(self, sound_store: Path) -> None:
        manifest = read_manifest(LocalStorage(sound_store))
        shards = manifest.splits["train"].shards
        assert {shard.unit for shard in shards} == {0, 1, 2}
        assert max(shard.number for shard in shards) > 0
        assert [shard.docs for shard in shards if shard.unit == 2] == [0]
        assert set(manifest.rejects) == {"bad-json", "wrong-type", "missing-field"}

    def test_the_tiny_one_has_every_kind_of_file(self, tiny_store: Path) -> None:
        kinds = {Path(name).suffix for name in store_files(tiny_store)}
        assert kinds == {".json", ".jsonl", ".bin", ".ends", ".pos"}


class TestDamage:
    CHUNKS = 20
    KINDS = ("flip", "flip", "flip", "flip", "truncate", "truncate", "delete", "append", "empty", "swap")

    @pytest.mark.parametrize("seed", range(CHUNKS))
    def test_each_of_ten_thousand_damages_is_found(self, tiny_store: Path, seed: int) -> None:
        rng = random.Random(seed)
        files = store_files(tiny_store)
        for step in range(10_000 // self.CHUNKS):
            kind = rng.choice(self.KINDS)
            with damaged(tiny_store, files, kind, rng) as names:
                found = blamed(tiny_store)
                expected = {MANIFEST} if MANIFEST in names else set(names)
                assert expected <= found, f"seed {seed}, step {step}: {kind} of {names} was not found, but {found}"
        assert verify_store(tiny_store).ok

    @pytest.mark.parametrize("folder", ["shards", "tokenizer", "rejects"])
    def test_a_whole_directory_is_missed(self, store_copy: Path, folder: str) -> None:
        lost = {name for name in store_files(store_copy) if name.startswith(f"{folder}/")}
        shutil.rmtree(store_copy / folder)
        assert lost <= problem_files(store_copy)

    def test_a_wrong_size_is_told(self, store_copy: Path) -> None:
        (store_copy / PLAN).write_bytes(b"x" * 1234)
        assert "has 1,234 bytes instead of" in verify_store(store_copy).problems[0].message

    @pytest.mark.parametrize("name", [PLAN, f"{FIRST}.json", FIRST_REJECTS, "shards/train-00002-000.bin"])
    def test_something_that_is_no_file_is_named_and_not_waited_for(self, store_copy: Path, name: str) -> None:
        (store_copy / name).unlink()
        os.mkfifo(store_copy / name)  # reading it would block for ever
        assert name in problem_files(store_copy)

    @pytest.mark.parametrize(
        "name", ["shards/train-00000-007.bin", "shards/.hidden", "rejects/00009-000.jsonl", "tokenizer/x"]
    )
    def test_a_stranger_is_reported(self, store_copy: Path, name: str) -> None:
        (store_copy / name).write_bytes(b"?")
        assert problem_files(store_copy) == {name}

    def test_what_stands_beside_the_store_does_not_matter(self, store_copy: Path) -> None:
        (store_copy / "NOTES.txt").write_text("mine")
        assert verify_store(store_copy).ok


def first(receipt: Receipt) -> bool:
    return receipt.name == "train-00000-000"


def change_first(**changes: object) -> Callable[[Receipt], Receipt]:
    return lambda receipt: msgspec.structs.replace(receipt, **changes) if first(receipt) else receipt


def rewrite(path: Path, dtype: str, change: Callable[[np.ndarray[tuple[int], np.dtype[np.int64]]], object]) -> None:
    values = np.fromfile(path, dtype)
    change(values)
    values.tofile(path)


class TestForgery:
    """Every checksum fits; what they vouch for does not."""

    def test_forging_nothing_leaves_a_sound_store(self, store_copy: Path) -> None:
        before = store_files(store_copy)
        forge(store_copy)
        assert store_files(store_copy) == before

    @pytest.mark.parametrize(
        ("changes", "file", "said"),
        [
            (
                {"counts": Counts(read=9, written=7, rejected=2)},
                f"{FIRST}.json",
                "counts other documents than it holds",
            ),
            ({"counts": Counts(read=8, written=5, rejected=2)}, MANIFEST, "unit 0 lost records: 11 read, 8 written"),
            ({"counts": Counts(read=6, written=5, rejected=2)}, MANIFEST, "unit 0 lost records: 9 read, 8 written"),
            (
                {"counts": Counts(read=6, written=5, rejected=1)},
                f"{FIRST}.json",
                "the reasons of its rejects do not add up",
            ),
            (
                {"counts": Counts(read=6, written=5, rejected=1), "rejects": {"bad-json": 1}},
                FIRST_REJECTS,
                "holds {'bad-json': 1, 'wrong-type': 1}, but its shard's receipt says {'bad-json': 1}",
            ),
            ({"rejects": {"bad-json": 2}}, FIRST_REJECTS, "but its shard's receipt says {'bad-json': 2}"),
            ({"docs": 4}, f"{FIRST}.json", "counts other documents or tokens than its files hold"),
            ({"tokens": 3}, f"{FIRST}.json", "counts other documents or tokens than its files hold"),
            ({"max_id": 3}, f"{FIRST}.bin", "its receipt says 3"),
            ({"sources": [(0, 3)]}, f"{FIRST}.json", "the documents of its sources do not add up"),
            ({"sources": [(77, 5)]}, f"{FIRST}.json", "names an input that is not in the plan"),
            ({"next_input": None, "next_position": None}, MANIFEST, "shard train-00001-000 is not where"),
            ({"unit": 1, "number": 7}, MANIFEST, "shard train-00000-000 is not where"),
        ],
    )
    def test_a_receipt_that_tells_another_story(
        self, store_copy: Path, changes: dict[str, object], file: str, said: str
    ) -> None:
        assert verify_store(store_copy).ok
        forge(store_copy, change_first(**changes))
        problems = verify_store(store_copy).problems
        assert any(problem.file == file and said in problem.message for problem in problems), problems

    def test_a_receipt_on_disk_that_differs_from_the_manifest(self, store_copy: Path) -> None:
        receipt = read_manifest(LocalStorage(store_copy)).splits["train"].shards[0]
        (store_copy / f"{FIRST}.json").write_bytes(encode(msgspec.structs.replace(receipt, next_position=0)))
        files = read_manifest(LocalStorage(store_copy)).files
        reseal(store_copy, files=files | {f"{FIRST}.json": file_entry(store_copy / f"{FIRST}.json")})
        assert problem_files(store_copy) == {f"{FIRST}.json"}

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"totals": Counts(read=21, written=15, rejected=5)}, "totals"),
            ({"units": [Counts(read=10, written=8, rejected=1)] * 3}, "unit 0"),
            ({"units": [Counts()]}, "not where it should be"),
            ({"rejects": {"bad-json": 5}}, "rejects"),
            ({"fingerprint": "0" * 64}, "fingerprint"),
            ({"eos_id": None}, "fingerprint"),
        ],
    )
    def test_a_manifest_that_does_not_add_up(self, store_copy: Path, changes: dict[str, object], said: str) -> None:
        reseal(store_copy, **changes)
        report = verify_store(store_copy)
        assert any(problem.file == MANIFEST and said in problem.message for problem in report.problems)

    @pytest.mark.parametrize("change", [{"docs": 14}, {"tokens": 0}])
    def test_a_split_that_does_not_add_up(self, store_copy: Path, change: dict[str, int]) -> None:
        split = read_manifest(LocalStorage(store_copy)).splits["train"]
        reseal(store_copy, splits={"train": msgspec.structs.replace(split, **change)})
        report = verify_store(store_copy)
        assert any(problem.file == MANIFEST and "split train" in problem.message for problem in report.problems)

    @pytest.fixture
    def supervised(self, tmp_path: Path) -> Path:
        source = tmp_path / "a.jsonl"
        source.write_text('{"q": "question", "a": "a long answer"}\n' * 3)
        fields = {"prompt_field": "q", "completion_field": "a"}
        return tokpress.build(source, tokenizer="bytes", out=tmp_path / "store", max_length=12, **fields).path  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("place", "value", "said"),
        [(-1, 2, "holds 2"), (-1, 255, "holds 255"), (0, 1, "marks 13 tokens"), (-1, 0, "11")],
    )
    def test_a_mask_that_is_none_or_another(self, supervised: Path, place: int, value: int, said: str) -> None:
        assert verify_store(supervised).ok
        rewrite(supervised / f"{FIRST}.mask", "u1", lambda mask: mask.__setitem__(place, value))
        forge(supervised)
        [problem] = verify_store(supervised).problems
        assert problem.file == f"{FIRST}.mask"
        assert said in problem.message

    @pytest.mark.parametrize("field", ["loss_tokens", "continued", "truncated"])
    def test_a_split_of_supervised_data_that_does_not_add_up(self, supervised: Path, field: str) -> None:
        store = supervised
        split = read_manifest(LocalStorage(store)).splits["train"]
        reseal(store, splits={"train": msgspec.structs.replace(split, **{field: (getattr(split, field) or 0) + 1})})
        problems = [(problem.file, problem.message) for problem in verify_store(store).problems]
        assert problems == [(MANIFEST, "split train does not add up: loss tokens, continued or truncated records")]

    @pytest.mark.parametrize("which", range(6))
    def test_a_shard_that_was_taken_out_with_all_its_traces(self, store_copy: Path, which: int) -> None:
        manifest = read_manifest(LocalStorage(store_copy))
        split = manifest.splits["train"]
        gone = split.shards[which]
        for path in (store_copy / "shards").glob(f"{gone.name}.*"):
            path.unlink()
        split.shards.remove(gone)
        del manifest.files[gone.path("json")]
        reseal(store_copy, splits={"train": split}, files=manifest.files)
        forge(store_copy)
        report = verify_store(store_copy)
        assert any(gone.name in problem.message for problem in report.problems)

    def test_there_are_six_shards_to_take_out(self, sound_store: Path) -> None:
        assert len(read_manifest(LocalStorage(sound_store)).splits["train"].shards) == 6

    @pytest.mark.parametrize("name", [PLAN, f"{FIRST}.json"])
    def test_a_file_that_nothing_vouches_for(self, store_copy: Path, name: str) -> None:
        files = read_manifest(LocalStorage(store_copy)).files
        reseal(store_copy, files={key: entry for key, entry in files.items() if key != name})
        assert name in problem_files(store_copy)

    def test_ends_that_do_not_rise(self, store_copy: Path) -> None:
        rewrite(store_copy / f"{FIRST}.ends", "<i8", lambda ends: ends.__setitem__(0, ends[1] + 1))
        forge(store_copy)
        assert problem_files(store_copy) == {f"{FIRST}.ends"}

    def test_ends_that_begin_below_zero(self, store_copy: Path) -> None:
        rewrite(store_copy / f"{FIRST}.ends", "<i8", lambda ends: ends.__setitem__(0, -1))
        forge(store_copy)
        assert problem_files(store_copy) == {f"{FIRST}.ends"}

    def test_ends_that_do_not_close(self, store_copy: Path) -> None:
        rewrite(store_copy / f"{FIRST}.ends", "<i8", lambda ends: ends.__setitem__(-1, ends[-1] + 1))
        forge(store_copy)
        assert problem_files(store_copy) == {f"{FIRST}.ends"}

    def test_an_id_outside_the_vocabulary(self, store_copy: Path) -> None:
        vocab_size = read_manifest(LocalStorage(store_copy)).tokenizer.vocab_size
        rewrite(store_copy / f"{FIRST}.bin", "<u2", lambda ids: ids.__setitem__(0, vocab_size))
        forge(store_copy, change_first(max_id=vocab_size))
        report = verify_store(store_copy)
        assert {problem.file for problem in report.problems} == {f"{FIRST}.bin"}
        assert str(vocab_size) in report.problems[0].message

    @pytest.mark.parametrize("extension", ["bin", "ends", "pos"])
    @pytest.mark.parametrize("size", [0, 1, 9])
    def test_a_file_of_a_length_that_no_count_gives(self, store_copy: Path, extension: str, size: int) -> None:
        (store_copy / f"{FIRST}.{extension}").write_bytes(b"\1" * size)
        forge(store_copy)
        assert problem_files(store_copy) == {f"{FIRST}.json"}

    @pytest.mark.parametrize("lines", [[], [0], [0, 0, 1], ["not json"], ['{"reason": "bad-json"}']])
    def test_rejects_that_are_not_those_of_the_shard(self, store_copy: Path, lines: list[int | str]) -> None:
        path = store_copy / FIRST_REJECTS
        old = path.read_text().splitlines()
        path.write_text("".join(f"{old[line] if isinstance(line, int) else line}\n" for line in lines))
        forge(store_copy)
        assert problem_files(store_copy) == {FIRST_REJECTS}

    def test_rejects_under_another_reason(self, store_copy: Path) -> None:
        path = store_copy / FIRST_REJECTS
        path.write_text(path.read_text().replace("bad-json", "too-large"))
        forge(store_copy)
        assert problem_files(store_copy) == {FIRST_REJECTS}

    def test_rejects_that_only_the_manifest_counts_otherwise(self, store_copy: Path) -> None:
        rejects = read_manifest(LocalStorage(store_copy)).rejects
        reseal(store_copy, rejects=rejects | {"bad-json": rejects["bad-json"] + 1})
        assert problem_files(store_copy) == {MANIFEST}

    def test_rejects_that_were_taken_out_with_all_their_traces_but_the_receipt(self, store_copy: Path) -> None:
        (store_copy / FIRST_REJECTS).unlink()
        forge(store_copy)
        assert problem_files(store_copy) == {FIRST_REJECTS}

    def test_rejects_that_were_never_met(self, store_copy: Path) -> None:
        """A list of rejects where the receipt says there was none."""
        stranger = "rejects/00001-000.jsonl"
        shutil.copy(store_copy / FIRST_REJECTS, store_copy / stranger)
        reseal(
            store_copy,
            files=read_manifest(LocalStorage(store_copy)).files | {stranger: file_entry(store_copy / stranger)},
        )
        assert problem_files(store_copy) == {stranger}

    def test_rejects_of_a_shard_that_does_not_exist(self, store_copy: Path) -> None:
        stranger = "rejects/00077-000.jsonl"
        shutil.copy(store_copy / FIRST_REJECTS, store_copy / stranger)
        reseal(
            store_copy,
            files=read_manifest(LocalStorage(store_copy)).files | {stranger: file_entry(store_copy / stranger)},
        )
        assert problem_files(store_copy) == {stranger}

    def test_another_tokenizer(self, store_copy: Path) -> None:
        path = store_copy / "tokenizer" / "tokenizer_config.json"
        path.write_bytes(path.read_bytes() + b" ")
        forge(store_copy)
        assert problem_files(store_copy) == {"tokenizer"}

    def test_another_plan(self, store_copy: Path) -> None:
        plan = read_record(LocalStorage(store_copy), PLAN, Plan)
        other = msgspec.structs.replace(plan.tokenizer, vocab_size=7)
        (store_copy / PLAN).write_bytes(
            encode(msgspec.structs.replace(plan, units=plan.units[1:], inputs=plan.inputs[:1], tokenizer=other))
        )
        forge(store_copy)
        messages = [problem.message for problem in verify_store(store_copy).problems if problem.file == PLAN]
        assert len(messages) == 2
        assert "2 units" in messages[0]
        assert "another tokenizer" in messages[1]
        assert "shards/train-00001-000.json" in problem_files(store_copy)  # its documents are of an input that is gone

    def test_a_plan_that_is_none(self, store_copy: Path) -> None:
        (store_copy / PLAN).write_text("[]")
        forge(store_copy)
        assert problem_files(store_copy) == {PLAN}


class TestNoStore:
    def test_a_directory_that_does_not_exist(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="no such directory"):
            verify_store(tmp_path / "nowhere")

    def test_a_directory_without_a_store(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match=r"no manifest\.json"):
            verify_store(tmp_path)

    def test_an_unfinished_store(self, store_copy: Path) -> None:
        (store_copy / MANIFEST).unlink()
        with pytest.raises(StoreError, match=r"not finished.*tokpress build"):
            verify_store(store_copy)
