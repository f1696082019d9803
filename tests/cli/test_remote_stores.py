"""Commands on stores that are not on this machine: the same answers, or what to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import serve_hub
from s3_server import ENVIRONMENT, serve

import tokpress

from .conftest import Cli

BUCKET, HUB = "s3://bucket/run", "hf://datasets/me/tokens"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("verbs")
    (directory / "in.jsonl").write_text("".join(json.dumps({"text": f"{i} " * 40}) + "\n" for i in range(100)))
    tokpress.build(directory / "in.jsonl", out=directory / "s", tokenizer="bytes", shard_size="5kB", unit_size="6kB")
    return directory / "s"


@pytest.fixture
def _places(store: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(
        "huggingface_hub.constants.HF_HUB_DISABLE_XET", True
    )  # the variable is read once, at the import
    environment = {"HF_HOME": str(tmp_path / "hf"), "HF_TOKEN": "hf_local"}
    environment |= ENVIRONMENT | {"TOKPRESS_CACHE_DIR": str(tmp_path / "cache"), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with serve() as bucket, serve_hub() as hub:
        monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.endpoint)
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        tokpress.copy(store, BUCKET)
        tokpress.publish(store, HUB)
        yield


@pytest.mark.usefixtures("_places")
@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of huggingface_hub, about its own client
@pytest.mark.parametrize("place", [BUCKET, HUB])
class TestRemote:
    def test_the_same_answers(self, cli: Cli, store: Path, place: str) -> None:
        for words in (
            ["inspect", "--doc", "3"],
            ["inspect", "--seq", "1", "--seq-len", "64"],
            ["inspect"],
            ["verify", "--deep"],
            ["pack", "--seq-len", "64"],
            ["pack", "--seq-len", "64", "--method", "pad"],
        ):
            there, here = (cli(words[0], where, *words[1:], "--json") for where in (place, store))
            assert (there.code, here.code) == (0, 0), there.err
            assert json.loads(there.out.replace(place, str(store))) == json.loads(here.out), words

    def test_a_plan_is_written_where_it_can_be(self, cli: Cli, place: str) -> None:
        made = cli("pack", place, "--seq-len", "64", "--method", "bestfit")
        if place == BUCKET:
            data = tokpress.PretokenizedDataset(place, seq_len=64, method="bestfit", output="numpy")
            assert (made.code, len(data) > 0) == (0, True)
        else:
            assert made.code == 2
            assert "tokpress publish STORE hf://datasets/me/tokens" in " ".join(made.err.split())

    @pytest.mark.parametrize("to", ["megatron", "npy", "parquet"])
    def test_an_export_says_that_it_has_to_be_copied(self, cli: Cli, tmp_path: Path, place: str, to: str) -> None:
        refused = cli("export", place, "--to", to, "--seq-len", "64", "--out", tmp_path / "e")
        assert refused.code == 2
        assert f"Copy it first: tokpress copy {place} STORE" in " ".join(refused.err.split())
        assert not (tmp_path / "e").exists()

    def test_copied_it_is_shown_and_told(self, cli: Cli, store: Path, tmp_path: Path, place: str) -> None:
        first = cli("copy", place, tmp_path / "s")
        assert (first.code, "every file compared" in first.out) == (0, True)
        assert "all of it was there" in cli("copy", place, tmp_path / "s").out
        assert json.loads(cli("copy", place, tmp_path / "s", "--json").out)["sent_files"] == 0
