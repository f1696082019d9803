"""The same inputs and options give the same bytes as before: stores, packs, exports, batches.

`digests.json` has what an earlier version wrote. If a test fails here, the bytes that users get have changed. Where that was
wanted, and only there, `python tests/golden/record.py --help` says how to record the new ones.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

import tokpress
from tokpress.cli import main
from tokpress.engines import table

from .cases import CASES, STORE, build, lay_out
from .digests import Fields, export_digests, first_difference, pack_digests, store_digests
from .recipes import RECIPES, copy_kept, installed_libraries, load_recorded

RECORDED = load_recorded()
FIELDS: Fields = RECORDED["fields"]

# Options as flags: what they build is what the keywords build.
COMMANDS = {
    "plain": "--tokenizer tokenizers/bpe --unit-size 9kB --shard-size 3kB",
    "wide": "--tokenizer tokenizers/ranks.tiktoken --pattern cl100k --special-token '<|endoftext|>=70000' --keep id",
    "bos": "--tokenizer tokenizers/bpe --bos --bos-token '<|begin|>' --no-eos",
    "separator": r"--tokenizer tokenizers/bpe --separator '\n---\n' --unit-size 500",
    "masks": "--tokenizer tokenizers/bpe --prompt-field question --completion-field answer --max-length 40 "
    "--overlong split --unit-size 5000",
    "split-field": "--tokenizer tokenizers/sp-unigram.model --split-field set --keep id,meta.url --unit-size 9000",
    "val-inputs": "--tokenizer bytes --val-inputs inputs/val.jsonl --val-inputs inputs/b.jsonl.gz",
    "chats-dated": "--tokenizer tokenizers/bpe --messages-field messages --chat-template inputs/dated.jinja "
    "--date 2024-07-26 --loss last",
}


@pytest.fixture(autouse=True)
def without_native(monkeypatch: pytest.MonkeyPatch) -> None:
    """Audited documents are counted, and are none with a reference: what is recorded is without the optional engine."""
    specs = tuple(spec for spec in table.all_engines() if spec.name != "native")
    monkeypatch.setattr(table, "all_engines", lambda: specs)


@pytest.fixture(autouse=True)
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorded inputs, in the working directory."""
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)


def run(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """A command line, in this process."""
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0


def check(name: str, found: dict[str, Any]) -> None:
    """Fails with the first file that differs, and with the libraries that may be why."""
    difference = first_difference(RECORDED["digests"][name], found)
    if difference:
        before, now = RECORDED["libraries"], installed_libraries()
        moved = [f"{library} {before[library]} -> {now[library]}" for library in now if before[library] != now[library]]
        pytest.fail(
            f"{name}: {difference}" + (f" (recorded with other libraries: {', '.join(moved)})" if moved else "")
        )


class TestRecordedDigests:
    @pytest.mark.parametrize("name", [name for name in RECIPES if not name.startswith("store ")])  # see test_stores.py
    def test_what_is_made_of_the_recorded_inputs_is_what_it_was(self, name: str) -> None:
        check(name, RECIPES[name](FIELDS))

    def test_nothing_is_recorded_that_is_no_longer_compared(self) -> None:
        assert list(RECORDED["digests"]) == list(RECIPES)

    @pytest.mark.parametrize("name", ["many-units", "masks-and-splits"])
    def test_two_processes_write_the_same(self, name: str) -> None:
        store = build(CASES[name], workers=2)
        check(f"build {name}", {**RECORDED["digests"][f"build {name}"], "store": store_digests(store.path, FIELDS)})


class TestCommandLine:
    @pytest.mark.parametrize("name", COMMANDS)
    def test_flags_build_what_the_keywords_build(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        paths = shlex.join(f"inputs/{path}" for path in CASES[name].inputs)
        run(monkeypatch, f"tokpress build {paths} {COMMANDS[name]} --max-rejects 100% --out {STORE} --quiet")
        check(f"build {name}", {**RECORDED["digests"][f"build {name}"], "store": store_digests(STORE, FIELDS)})

    def test_packs_and_exports_are_those_of_the_functions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        build(CASES["masks"])
        for flags in ("--seq-len 24", "--seq-len 64", "--seq-len 64 --long-docs truncate"):
            run(monkeypatch, f"tokpress pack {STORE} --method bestfit {flags}")
        run(monkeypatch, f"tokpress export {STORE} --to npy --max-length 48 --out npy")
        run(monkeypatch, f"tokpress export {STORE} --to mds --seq-len 24 --method bestfit --out mds")
        run(monkeypatch, f"tokpress verify {STORE} --deep")
        recorded = RECORDED["digests"]["store masks"]
        assert first_difference(recorded["packs"], pack_digests(STORE)) == ""
        assert first_difference(recorded["exports"]["npy"], export_digests(Path("npy"))) == ""
        assert first_difference(recorded["exports"]["mds bestfit"], export_digests(Path("mds"))) == ""

    def test_an_import_is_that_of_the_function(self, monkeypatch: pytest.MonkeyPatch) -> None:
        store = build(CASES["one-shard"])
        tokpress.export(store, to="llmc", out="tokens")
        imported = tokpress.import_tokens("tokens", format="llmc", tokenizer="bytes", out="by-function")
        run(monkeypatch, "tokpress import tokens --from llmc --tokenizer bytes --out by-command")
        found = store_digests(Path("by-command"), FIELDS)
        assert first_difference(store_digests(imported.path, FIELDS), found) == ""


class TestComparison:
    """The net itself: what it lets pass and what it does not."""

    def edited(self, old: str, new: str) -> str:
        store = copy_kept("wide").path
        before = store_digests(store, FIELDS)
        plan = store / "plan.json"
        assert old in plan.read_text()
        plan.write_text(plan.read_text().replace(old, new))
        return first_difference(before, store_digests(store, FIELDS))

    @pytest.mark.parametrize("neighbour", ["format_version", "mtime_ns", "separator", "stop", "vocab_size"])
    def test_a_field_may_be_added_anywhere(self, neighbour: str) -> None:
        assert self.edited(f'"{neighbour}":', f'"added": {{"cores": 2}}, "{neighbour}":') == ""

    def test_no_field_may_change(self) -> None:
        assert self.edited('"size": ', '"size": 1').startswith("plan.json: inputs was ")

    def test_no_field_may_go(self) -> None:
        assert self.edited('"separator":', '"seperator":').startswith("plan.json: options was ")

    def test_a_new_and_a_missing_file_are_named(self) -> None:
        assert first_difference({"a": "1"}, {"a": "1", "b": "2"}) == "b was not there, is 2"
        assert first_difference({"a": {"x": "1", "y": "2"}}, {"a": {"x": "1"}}) == "a: y was 2, is not there"
