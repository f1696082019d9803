"""An option is added by declaring one field: this adds one to a copy of the package, and sees it everywhere.

Nothing else of the copy is touched. What is looked at runs in a process of its own, with the copy in place of the package.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tokpress

ROOT = Path(tokpress.__file__).parent
BEFORE = "    # json: the field's value as JSON"
FIELD = """    shout: Annotated[
        int, Option("How loud.", "changed", group="Store", kind="size", name="shout_size", at_least=1, live=True)
    ] = 1000
"""
LOOK = r"""
import contextlib, inspect, io, json, pydoc, sys
from pathlib import Path

import tokpress
from tokpress.cli.build import command
from tokpress.options import build_config, output_options, stored_config
from tokpress.live.dataset import LiveDataset
from tokpress.reference import options_page
from tokpress.run import deep
from tokpress.run.coordinator import check_options
from tokpress.errors import UsageError

def printed(*words):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        command.main(list(words), standalone_mode=False)
    return out.getvalue()

def plan(out, *words):
    command.main(["a.jsonl", "--tokenizer", "bytes", "--out", out, "--quiet", *words], standalone_mode=False)
    return json.loads(Path(out, "plan.json").read_text())["options"]

def refused(function):
    try:
        function()
    except (UsageError, TypeError) as error:
        return str(error)

Path("a.jsonl").write_text('{"text": "hello"}\n' * 50)
Path("c.toml").write_text('[store]\nshout_size = "3kB"\n')
usual = ["a.jsonl", "--tokenizer", "bytes", "--out", "o", "--print-config"]
live = {"tokenizer": "bytes", "seq_len": 8, "batch_size": 1, "output": "numpy", "workers": 1}
seen = []
deep.reading = lambda config, reading=deep.reading: seen.append(config.read.shout) or reading(config)
facts = {
    "file": tokpress.__file__,
    "flags": [flag for parameter in command.params for flag in parameter.opts],
    "help": printed("--help"),
    "help(build)": pydoc.plain(pydoc.render_doc(tokpress.build)),
    "signature": inspect.signature(tokpress.build).parameters["shout_size"].default,
    "page": options_page(),
    "keyword": build_config("bytes", {"shout_size": "2kB"}).read.shout,
    "default": build_config("bytes", {}).read.shout,
    "bounds": refused(lambda: check_options(build_config("bytes", {"shout_size": 0}))),
    "misspelt": refused(lambda: tokpress.build("a.jsonl", tokenizer="bytes", out="x", shout_siez=5)),
    "plan": plan("plain").get("shout"),
    "plan of the flag": plan("flagged", "--shout-size", "2kB")["shout"],
    "plan of the file": plan("filed", "--config", "c.toml")["shout"],
    "flag over file": plan("both", "--config", "c.toml", "--shout-size", "7kB")["shout"],
    "another store": refused(lambda: tokpress.build("a.jsonl", tokenizer="bytes", out="filed", shout_size=4)),
    "the same store": tokpress.build("a.jsonl", tokenizer="bytes", out="filed", shout_size=3000).num_docs,
    "printed": printed(*usual, "--shout-size", "2kB"),
    "read back": stored_config(output_options(build_config("bytes", {"shout_size": 5}), None, None)).read.shout,
    "live": LiveDataset("a.jsonl", shout_size=9, **live).state_dict()["options"]["shout"],
    "live by default": LiveDataset("a.jsonl", **live).state_dict()["options"].get("shout"),
    "deep": deep.reencode_sample(tokpress.open("filed"), 5).problems or seen,
}
print(json.dumps(facts))
"""


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What there is to see of an option that one field declares."""
    path = tmp_path_factory.mktemp("copy")
    copy = shutil.copytree(ROOT, path / "tokpress", ignore=shutil.ignore_patterns("__pycache__"))
    source = (copy / "config.py").read_text()
    assert source.count(BEFORE) == 1
    (copy / "config.py").write_text(source.replace(BEFORE, FIELD + BEFORE))
    environment = {**os.environ, "PYTHONPATH": str(path)}
    result = subprocess.run([sys.executable, "-c", LOOK], cwd=path, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert Path(found["file"]).parent == copy
    return found


class TestOneField:
    def test_is_a_flag(self, facts: Any) -> None:
        assert "--shout-size" in facts["flags"]
        assert "--shout-size SIZE" in facts["help"]
        assert "How loud.  [default: 1kB]" in facts["help"]

    def test_is_a_keyword(self, facts: Any) -> None:
        assert (facts["keyword"], facts["default"]) == (2000, 1000)
        assert facts["signature"] == 1000
        assert facts["misspelt"].endswith("Did you mean 'shout_size'?")

    def test_is_documented(self, facts: Any) -> None:
        assert "shout_size: How loud. Default: 1kB." in facts["help(build)"]
        assert "| `--shout-size` | `shout_size` | How loud. | `1kB` | output, live |" in facts["page"]

    def test_is_kept_in_its_bounds(self, facts: Any) -> None:
        assert facts["bounds"].startswith("--shout-size is 0, but must be at least 1.")

    def test_is_in_the_plan_and_leaves_older_plans_alone(self, facts: Any) -> None:
        assert facts["plan"] is None
        assert facts["plan of the flag"] == 2000
        assert facts["read back"] == 5

    def test_makes_another_store(self, facts: Any) -> None:
        assert "options.shout: was 3000, is 4" in facts["another store"]
        assert facts["the same store"] == 50

    def test_is_read_from_a_file_and_printed_as_one(self, facts: Any) -> None:
        assert (facts["plan of the file"], facts["flag over file"]) == (3000, 7000)
        assert 'shout_size = "2kB"' in facts["printed"].partition("[store]")[2]

    def test_is_taken_by_a_live_data_set(self, facts: Any) -> None:
        assert (facts["live"], facts["live by default"]) == (9, None)

    def test_is_read_back_by_verify_deep(self, facts: Any) -> None:
        assert facts["deep"] == [3000]
