"""A dataset by its name gives the store that its files give; what is not clear is asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hub_server import Dataset, HubServer, serve_hub
from s3_server import ENVIRONMENT, serve

import tokpress
from tokpress.errors import UsageError
from tokpress.sources.datasets import parse_name
from tokpress.sources.hub_layout import data_files, splits_by_name
from tokpress.sources.presets import PRESETS
from tokpress.storage.object_store import ObjectStorage

from .reading import compress, jsonl
from .test_csv import numbered

TEXTS = [f"document {i}" for i in range(30)]
# Names as they stand in the repositories: those that a config and split take, and some that they must not.
LAYOUTS: dict[str, tuple[list[str], list[str]]] = {
    "fineweb-edu": (
        ["data/CC-MAIN-2013-20/train-00000-of-00014.parquet", "data/CC-MAIN-2024-10/000_00001.parquet"],
        ["sample/10BT/000_00000.parquet", "README.md"],
    ),
    "fineweb-edu:sample-10BT": (["sample/10BT/000_00000.parquet"], ["sample/100BT/000_00000.parquet"]),
    "fineweb-edu:CC-MAIN-2024-10": (["data/CC-MAIN-2024-10/0.parquet"], ["data/CC-MAIN-2013-20/0.parquet"]),
    "fineweb": (["data/CC-MAIN-2013-20/000_00000.parquet"], ["sample/350BT/000_00000.parquet"]),
    "fineweb-2:deu_Latn": (["data/deu_Latn/train/000_00000.parquet"], ["data/deu_Latn/test/000_00000.parquet"]),
    "slimpajama": (
        ["train/chunk1/example_train_0.jsonl.zst", "train/chunk10/example_train_5.jsonl.zst"],
        ["validation/chunk1/example_holdout_0.jsonl.zst", "test/chunk1/example_holdout_1.jsonl.zst"],
    ),
    "slimpajama-6b": (["data/train-00000-of-00048-ab1.parquet"], ["data/test-00000-of-00001-b.parquet"]),
    "wikitext-103": (
        ["wikitext-103-raw-v1/train-00000-of-00002.parquet", "wikitext-103-raw-v1/train-00001-of-00002.parquet"],
        ["wikitext-103-raw-v1/test-00000-of-00001.parquet", "wikitext-103-v1/train-00000-of-00002.parquet"],
    ),
    "wikitext-2": (["wikitext-2-raw-v1/train-00000-of-00001.parquet"], ["wikitext-2-v1/train-00000-of-00001.parquet"]),
    "c4": (
        ["en/c4-train.00000-of-01024.json.gz"],
        ["en/c4-validation.00000-of-00008.json.gz", "realnewslike/c4-train.00000-of-00512.json.gz"],
    ),
    "wikipedia": (["20231101.en/train-00000-of-00041.parquet"], ["20231101.de/train-00000-of-00020.parquet"]),
    "wikipedia:20231101.de": (["20231101.de/train-00000-of-00020.parquet"], ["20231101.en/train-0.parquet"]),
    "tinystories": (["data/train-00000-of-00004-2d5a.parquet"], ["TinyStories-train.txt", "data/validation-0.parquet"]),
    "openwebtext": (["plain_text/train-00000-of-00080.parquet"], ["openwebtext.py"]),
    "minipile": (["data/train-00000-of-00012-6fbc.parquet"], ["data/test-00000-of-00001-0.parquet"]),
    "pile-uncopyrighted": (["train/00.jsonl.zst", "train/29.jsonl.zst"], ["val.jsonl.zst", "test.jsonl.zst"]),
    "redpajama-sample": (["arxiv_sample.jsonl", "cc_2019-30_sample.jsonl"], ["RedPajama-Data-1T-Sample.py"]),
    "dclm-baseline": (["global-shard_01_of_10/local-shard_0_of_10/shard_00000000_processed.jsonl.zst"], ["README.md"]),
    "cosmopedia": (["data/stories/train-00000-of-00043.parquet", "data/wikihow/train-00000-of-00002.parquet"], []),
    "cosmopedia:stories": (["data/stories/train-00000-of-00043.parquet"], ["data/wikihow/train-0.parquet"]),
    "smollm-corpus": (["fineweb-edu-dedup/train-00000-of-00234.parquet"], ["python-edu/train-00000-of-00002.parquet"]),
    "finemath:finemath-4plus": (["finemath-4plus/train-00000-of-00064.parquet"], ["finemath-3plus/train-0.parquet"]),
    "open-web-math": (["data/train-00000-of-00114-5a02.parquet"], ["README.md"]),
    "proof-pile-2:arxiv": (["arxiv/train/arXiv_000.jsonl.zst"], ["arxiv/test/arXiv_000.jsonl.zst"]),
    "the-stack-smol:python": (["data/python/data.json"], ["data/go/data.json"]),
    "starcoderdata": (["python/train-00000-of-00059.parquet", "go/train-00000-of-00011.parquet"], ["README.md"]),
}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with serve_hub() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.endpoint)
        yield running


def publish(hub: HubServer, repo: str, files: dict[str, bytes], card: dict[str, Any] | None = None) -> Dataset:
    dataset = hub.datasets.setdefault(repo, Dataset())
    dataset.card = card or {}
    dataset.commit({"README.md": b"# it", ".gitattributes": b"*", **files})
    return dataset


def parquet(columns: dict[str, list[Any]]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return bytes(sink.getvalue())


def objects(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def records(texts: list[str], field: str, name: str) -> bytes:
    if name.endswith(".parquet"):
        return parquet({field: texts, "id": list(range(len(texts)))})
    lines = objects([{field: text} for text in texts])
    return compress(lines, Path(name).suffix, 1) if name.endswith((".zst", ".gz")) else lines


def built(out: Path, **options: Any) -> list[str]:
    store = tokpress.build(out=out, **({"tokenizer": "bytes"} | options))
    return [store.text(i) for i in range(store.num_docs)]


class TestPresets:
    def test_every_one_has_a_layout_here(self) -> None:
        assert {name.partition(":")[0] for name in LAYOUTS} | {"dolma"} == set(PRESETS)

    @pytest.mark.parametrize("name", LAYOUTS)
    def test_takes_the_files_of_its_config_and_no_others(self, hub: HubServer, tmp_path: Path, name: str) -> None:
        wanted, others = LAYOUTS[name]
        preset = PRESETS[name.partition(":")[0]]
        texts = {file: [f"{file} {i}" for i in range(3)] for file in (*wanted, *others)}
        publish(hub, preset.repo, {file: records(texts[file], preset.text_field, file) for file in texts})
        assert sorted(built(tmp_path / "s", dataset=name)) == sorted(text for file in wanted for text in texts[file])

    @pytest.mark.parametrize(
        ("name", "split", "file"),
        [
            ("c4:realnewslike", "validation", "realnewslike/c4-validation.00000-of-00001.json.gz"),
            ("pile-uncopyrighted", "validation", "val.jsonl.zst"),
            ("slimpajama", "test", "test/chunk3/example_holdout_7.jsonl.zst"),
            ("wikitext-2:wikitext-2-v1", "test", "wikitext-2-v1/test-00000-of-00001.parquet"),
        ],
    )
    def test_of_another_split(self, hub: HubServer, tmp_path: Path, name: str, split: str, file: str) -> None:
        publish(hub, PRESETS[name.partition(":")[0]].repo, {file: records(TEXTS, "text", file)})
        assert built(tmp_path / "s", dataset=name, split=split) == TEXTS

    def test_whose_files_moved_are_looked_for_as_the_repository_says(self, hub: HubServer, tmp_path: Path) -> None:
        card = {"configs": [{"config_name": "default", "data_files": "new/*.jsonl"}]}
        publish(hub, "roneneldan/TinyStories", {"new/a.jsonl": jsonl(TEXTS), "old.jsonl": jsonl(["x"])}, card)
        assert built(tmp_path / "s", dataset="tinystories") == TEXTS

    def test_that_lists_addresses(self, hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with serve() as server:
            monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
            ObjectStorage("s3://olmo").put("books/b-0.json.gz", compress(jsonl(TEXTS), ".gz", 1))
            address = f"{server.endpoint}/olmo/books/b-0.json.gz"
            publish(hub, "allenai/dolma", {"urls/v1_6-sample.txt": f"{address}\n\n".encode()})
            assert built(tmp_path / "s", dataset="dolma:v1_6-sample") == TEXTS

    def test_a_language_has_to_be_named_where_there_is_no_default(self, hub: HubServer, tmp_path: Path) -> None:
        configs = [{"config_name": name, "data_files": f"data/{name}/train/*"} for name in ("deu_Latn", "fra_Latn")]
        publish(hub, "HuggingFaceFW/fineweb-2", {"data/deu_Latn/train/a.jsonl": b""}, {"configs": configs})
        with pytest.raises(UsageError, match=r"several configs and no default one.*fineweb-2:deu_Latn.*fra_Latn"):
            built(tmp_path / "s", dataset="fineweb-2")


class TestRepository:
    """Any dataset of the Hub, by its own configs and splits."""

    CARD: ClassVar = {
        "configs": [
            {"config_name": "en", "data_files": [{"split": "train", "path": "en/*.jsonl"}], "default": True},
            {
                "config_name": "de",
                "data_dir": "german",
                "data_files": [{"split": "train", "path": ["a.csv", "b.csv"]}, {"split": "dev", "path": "dev.csv"}],
            },
        ]
    }

    def files(self) -> dict[str, bytes]:
        return {
            "en/x.jsonl": jsonl(TEXTS[:10]),
            "german/a.csv": b"text\na\n",
            "german/b.csv": b"text\nb\n",
            "german/dev.csv": b"text\nc\n",
            "other.parquet": parquet({"text": ["no"]}),
        }

    @pytest.mark.parametrize(
        ("name", "split", "texts"),
        [
            ("me/data", None, TEXTS[:10]),
            ("me/data:en", "train", TEXTS[:10]),
            ("me/data:de", None, ["a", "b"]),
            ("me/data:de@main", "dev", ["c"]),
        ],
    )
    def test_by_the_configs_of_its_readme(
        self, hub: HubServer, tmp_path: Path, name: str, split: str | None, texts: list[str]
    ) -> None:
        publish(hub, "me/data", self.files(), self.CARD)
        assert built(tmp_path / "s", dataset=name, split=split) == texts

    @pytest.mark.parametrize(
        ("files", "splits"),
        [
            (["data/train-00000-of-00002.parquet", "data/odd.a-00000-of-00001-x.parquet"], {"train", "odd.a"}),
            (["train/a.jsonl", "valid/b.jsonl", "notes.jsonl"], {"train", "validation"}),
            (["x/my-train-set/a.jsonl", "x/eval_1/b.jsonl"], {"train", "test"}),
            (["data_train.csv", "data.dev.csv", "constraint.csv"], {"train", "validation"}),
            (["a.txt", "deep/b.txt"], {"train"}),
            ([], set()),
        ],
    )
    def test_by_the_names_of_its_files(self, files: list[str], splits: set[str]) -> None:
        assert set(splits_by_name(files)) == splits

    def test_takes_the_format_that_most_files_have(self) -> None:
        names = [
            "README.md",
            "load.py",
            "a.parquet",
            "b.parquet",
            "c.jsonl",
            ".x.parquet",
            "dataset_infos.json",
            "LICENSE.txt",
        ]
        assert data_files(names) == ["a.parquet", "b.parquet"]

    def test_a_folder_is_a_config_where_the_readme_lists_none(self, hub: HubServer, tmp_path: Path) -> None:
        data = publish(hub, "me/data", {"script.py": b""})
        data.commit({"default/train/0000.parquet": parquet({"text": TEXTS})}, "refs/convert/parquet")
        assert built(tmp_path / "s", dataset="me/data:default@refs/convert/parquet") == TEXTS
        with pytest.raises(UsageError, match="--dataset me/data@refs/convert/parquet"):
            built(tmp_path / "t", dataset="me/data")

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"dataset": "me/data:ed"}, "no config 'ed'. Choose one, like me/data:en. Configs: en, de"),
            ({"dataset": "me/data:de", "split": "test"}, "config 'de' of me/data:de has no split 'test'.*: dev, train"),
            ({"dataset": "me/gone"}, "no such dataset"),
            ({"dataset": "me/data@gone"}, "no such revision"),
            ({"dataset": "tinystory"}, "neither the name of a known dataset nor an id.*tinystories"),
            ({"dataset": "me/data:"}, "no config is named after the colon"),
            ({"inputs": ["x.jsonl"], "split": "train"}, "together with --dataset"),
        ],
    )
    def test_what_is_not_there_is_said(self, hub: HubServer, tmp_path: Path, options: Any, words: str) -> None:
        publish(hub, "me/data", self.files(), self.CARD)
        with pytest.raises(UsageError, match=words):
            built(tmp_path / "s", **options)


class TestTextField:
    @pytest.mark.parametrize(
        ("record", "field"),
        [
            ({"id": "a", "text": "x"}, "text"),
            ({"id": "a", "content": "x"}, "content"),
            ({"n": 1, "body": "x", "tags": ["a"]}, "body"),
        ],
    )
    @pytest.mark.parametrize("name", ["a.parquet", "a.jsonl"])
    def test_is_found(self, hub: HubServer, tmp_path: Path, record: dict[str, Any], field: str, name: str) -> None:
        rows = [record | {field: text} for text in TEXTS]
        data = parquet({key: [row[key] for row in rows] for key in record}) if "parquet" in name else objects(rows)
        publish(hub, "me/data", {name: data})
        assert built(tmp_path / "s", dataset="me/data") == TEXTS
        assert tokpress.open(tmp_path / "s").plan.options["text_field"] == field

    def test_of_csv(self, hub: HubServer, tmp_path: Path) -> None:
        publish(hub, "me/data", {"a.csv": numbered(TEXTS)})
        assert built(tmp_path / "s", dataset="me/data") == TEXTS

    def test_is_asked_for_with_the_columns_named(self, hub: HubServer, tmp_path: Path) -> None:
        publish(hub, "me/data", {"a.parquet": parquet({"title": TEXTS, "body": TEXTS, "n": [1] * len(TEXTS)})})
        with pytest.raises(UsageError, match=r"Choose one with --text-field; fields: title .text., body .text., n"):
            built(tmp_path / "s", dataset="me/data")
        assert built(tmp_path / "s", dataset="me/data", text_field="body") == TEXTS

    def test_is_not_needed_for_templates(self, hub: HubServer, tmp_path: Path) -> None:
        publish(hub, "me/data", {"a.parquet": parquet({"q": TEXTS, "a": TEXTS})})
        fields = {"prompt_field": "q", "completion_field": "a"}
        assert built(tmp_path / "s", dataset="me/data", **fields) == [text * 2 for text in TEXTS]

    def test_plain_text_has_none(self, hub: HubServer, tmp_path: Path) -> None:
        publish(hub, "me/data", {"a.txt": b"one text"})
        assert built(tmp_path / "s", dataset="me/data") == ["one text"]


class TestEverywhere:
    """An option like all others."""

    @pytest.fixture(autouse=True)
    def _published(self, hub: HubServer) -> None:
        self.data = publish(hub, "me/data", {"a.jsonl": objects([{"content": text} for text in TEXTS])})

    def test_gives_the_store_of_its_files(self, tmp_path: Path) -> None:
        built(tmp_path / "named", dataset="me/data")
        built(tmp_path / "files", inputs="hf://datasets/me/data/a.jsonl", text_field="content")
        assert (tmp_path / "named/plan.json").read_bytes() == (tmp_path / "files/plan.json").read_bytes()

    def test_beside_other_inputs(self, tmp_path: Path) -> None:
        (tmp_path / "b.jsonl").write_bytes(objects([{"content": "more"}]))
        assert built(tmp_path / "s", inputs=[tmp_path / "b.jsonl"], dataset="me/data") == ["more", *TEXTS]

    def test_is_gone_on_with_and_pinned(self, tmp_path: Path) -> None:
        built(tmp_path / "s", dataset="me/data")
        assert built(tmp_path / "s", dataset="me/data") == TEXTS
        self.data.commit({"a.jsonl": objects([{"content": "new"}])})
        with pytest.raises(UsageError, match="something else"):
            built(tmp_path / "s", dataset="me/data")

    def test_is_read_back_by_verify_deep(self, tmp_path: Path) -> None:
        built(tmp_path / "s", dataset="me/data")
        report = tokpress.verify(tmp_path / "s", deep=True)
        assert (report.ok, report.reencoded_docs) == (True, len(TEXTS))

    def test_live(self) -> None:
        live = tokpress.LiveDataset(
            dataset="me/data", tokenizer="bytes", seq_len=16, batch_size=1, output="numpy", workers=1
        )
        first = next(iter(live))["input_ids"].ravel()
        assert bytes(first[:10].tolist()) == b"document 0"

    def test_typed_and_in_a_file(self, tmp_path: Path) -> None:
        from click.testing import CliRunner

        from tokpress.cli.build import command

        typed = ["--dataset", "me/data", "--tokenizer", "bytes", "--out", str(tmp_path / "s"), "--quiet"]
        printed = CliRunner().invoke(command, [*typed, "--print-config"])
        assert 'dataset = "me/data"' in printed.output
        (tmp_path / "c.toml").write_text(printed.output)
        done = CliRunner().invoke(command, ["--config", str(tmp_path / "c.toml")])
        assert (done.exit_code, tokpress.open(tmp_path / "s").num_docs) == (0, len(TEXTS)), done.output


def test_a_name_is_parsed() -> None:
    assert str(parse_name("hf://datasets/a/b:c@refs/pr/1")) == "a/b:c@refs/pr/1"
    assert parse_name("c4:en@v1") == parse_name(" c4:en@v1 ")


def test_the_list_is_printed() -> None:
    from click.testing import CliRunner

    from tokpress.cli.datasets import command

    shown = CliRunner().invoke(command, [], env={"COLUMNS": "200"}).output
    assert all(name in shown for name in PRESETS)
    listed = json.loads(CliRunner().invoke(command, ["--json", "stack"]).output)
    assert [(entry["name"], entry["text_field"]) for entry in listed] == [("the-stack-smol", "content")]
