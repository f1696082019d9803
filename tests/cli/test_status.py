"""`tokpress status`: what is done of a store in a directory or a bucket, by whom, and what is left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import write_jsonl
from s3_server import ENVIRONMENT, S3Server, serve

import tokpress
from tokpress.cli import tokpress as command

SHARES = 3


@pytest.fixture(params=["directory", "bucket"])
def out(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "directory":
        yield str(tmp_path / "store")
        return
    with serve() as server:
        for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": server.endpoint}.items():
            monkeypatch.setenv(name, value)
        yield "s3://bucket/store"


@pytest.fixture
def corpus(tmp_path: Path, texts: list[str]) -> Path:
    return write_jsonl(tmp_path / "texts.jsonl", texts[:120])


def do_share(corpus: Path, out: str, index: int) -> None:
    tokpress.build_share(
        corpus, tokenizer="bytes", out=out, share=f"{index}/{SHARES}", unit_size=4000, shard_size=1000, workers=1
    )


def status(out: str, *options: str) -> str:
    result = CliRunner().invoke(command, ["status", out, *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_what_is_done_by_whom_and_what_is_left(corpus: Path, out: str) -> None:
    do_share(corpus, out, 0)
    found = json.loads(status(out, "--json"))
    assert (found["sealed"], found["units_done"] + len(found["left"])) == (False, found["units"])
    assert found["left"]
    [attempt] = found["attempts"]
    assert (attempt["share"], attempt["state"], len(attempt["units"])) == (
        f"0/{SHARES}",
        "finished",
        found["units_done"],
    )
    assert attempt["tokens"] == found["tokens"] > 0
    shown = status(out)
    assert f"share 0/{SHARES}" in shown
    assert f"{found['units_done']} of {found['units']} done" in shown
    for index in range(1, SHARES):
        do_share(corpus, out, index)
    found = json.loads(status(out, "--json"))
    assert (found["left"], found["sealed"], len(found["attempts"])) == ([], False, SHARES)
    store = tokpress.build(corpus, tokenizer="bytes", out=out, unit_size=4000, shard_size=1000, workers=1)
    found = json.loads(status(out, "--json"))
    assert (found["sealed"], found["left"], found["attempts"]) == (True, [], [])
    assert (found["tokens"], found["counts"]["written"]) == (store.num_tokens, store.num_docs)


def test_where_nothing_is_built(out: str) -> None:
    with pytest.raises(tokpress.errors.StoreError, match="nothing is built"):
        CliRunner().invoke(command, ["status", out], catch_exceptions=False)


def test_what_a_run_that_was_replaced_left_does_not_count(corpus: Path) -> None:
    with serve() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": server.endpoint}.items():
            patch.setenv(name, value)
        do_share(corpus, "s3://bucket/store", 0)
        old = dict(server.bucket.objects)
        do_share_anew(server, corpus)
        late = {key: found for key, found in old.items() if "/shards/" in key and key not in server.bucket.objects}
        assert late
        server.bucket.objects.update(late)
        found = json.loads(status("s3://bucket/store", "--json"))
        assert [attempt["share"] for attempt in found["attempts"]] == [f"1/{SHARES}"]
        assert found["units_done"] == len(found["attempts"][0]["units"])


def do_share_anew(server: S3Server, corpus: Path) -> None:
    server.bucket.objects.clear()
    do_share(corpus, "s3://bucket/store", 1)
