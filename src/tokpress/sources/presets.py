"""Well-known datasets by short names: the one table behind `--dataset NAME` and `tokpress datasets`.

A preset says where a dataset is on the Hub, which files its configs and splits are, and which field holds the text. It is a
shortcut, not an authority: a config that is not listed here, or files that are no longer there, are looked for as for any
other dataset of the Hub (`hub_layout`). The layouts are those that the datasets' own pages describe.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

TEXT: Final = "text"
ALL_SPLITS: Final = ("train", "validation", "test")


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """`{config}` and `{split}` stand for what was asked for. A key of `files` that is `*` is for any other config."""

    repo: str
    about: str
    files: dict[str, str]  # config -> glob; the first config is meant where none is named
    text_field: str = TEXT
    splits: tuple[str, ...] = ("train",)
    split_names: dict[str, str] = {}  # where files call a split something else
    lists_addresses: bool = False  # the files are lists of https addresses, which hold the text
    gated: bool = False  # its terms have to be accepted on its page

    @property
    def default(self) -> str | None:
        return next((config for config in self.files if config != "*"), None)

    def pattern(self, config: str | None, split: str) -> str | None:
        """The files of a config and split, as a glob. None: the table has no such config or split."""
        config = config or self.default
        found = self.files.get(config) or self.files.get("*") if config else None
        if found is None or split not in self.splits:
            return None
        return found.format(config=config, split=self.split_names.get(split, split))

    def facts(self, name: str) -> dict[str, Any]:
        """As `tokpress datasets` shows it."""
        configs = [config for config in self.files if config != "*"]
        return {"name": name, "configs": configs, **msgspec.to_builtins(self)}


_SAMPLES = {f"sample-{size}": f"sample/{size}/*.parquet" for size in ("10BT", "100BT", "350BT")}
_CRAWL = {"default": "data/*/*.parquet", **_SAMPLES, "*": "data/{config}/*.parquet"}

PRESETS = {
    "fineweb-edu": Preset(
        repo="HuggingFaceFW/fineweb-edu",
        about="educational web pages, 1.3T tokens; samples of 10B to 350B",
        files=_CRAWL,
    ),
    "fineweb": Preset(
        repo="HuggingFaceFW/fineweb", about="web pages, 15T tokens; samples of 10B to 350B", files=_CRAWL
    ),
    "fineweb-2": Preset(
        repo="HuggingFaceFW/fineweb-2",
        about="web pages in 1,000 languages; a config each, like deu_Latn",
        files={"*": "data/{config}/{split}/*.parquet"},
        splits=("train", "test"),
    ),
    "slimpajama": Preset(
        repo="cerebras/SlimPajama-627B",
        about="RedPajama, cleaned and deduplicated, 627B tokens",
        files={"default": "{split}/chunk*/*.jsonl.zst"},
        splits=ALL_SPLITS,
    ),
    "slimpajama-6b": Preset(
        repo="DKYoon/SlimPajama-6B",
        about="a sample of SlimPajama, 6B tokens",
        files={"default": "data/{split}-*.parquet"},
        splits=ALL_SPLITS,
    ),
    "wikitext-103": Preset(
        repo="Salesforce/wikitext",
        about="good Wikipedia articles, 100M words; a record is a line, not an article",
        files={"wikitext-103-raw-v1": "{config}/{split}-*.parquet", "wikitext-103-v1": "{config}/{split}-*.parquet"},
        splits=ALL_SPLITS,
    ),
    "wikitext-2": Preset(
        repo="Salesforce/wikitext",
        about="the small one, 2M words; a record is a line, not an article",
        files={"wikitext-2-raw-v1": "{config}/{split}-*.parquet", "wikitext-2-v1": "{config}/{split}-*.parquet"},
        splits=ALL_SPLITS,
    ),
    "c4": Preset(
        repo="allenai/c4",
        about="cleaned Common Crawl, 156B tokens of English; other languages by their own configs",
        files=dict.fromkeys(("en", "realnewslike", "en.noblocklist", "en.noclean"), "{config}/c4-{split}.*.json.gz"),
        splits=("train", "validation"),
    ),
    "wikipedia": Preset(
        repo="wikimedia/wikipedia",
        about="Wikipedia, an article a record; a config for each date and language",
        files={"20231101.en": "{config}/train-*.parquet", "*": "{config}/train-*.parquet"},
    ),
    "tinystories": Preset(
        repo="roneneldan/TinyStories",
        about="short stories with a small vocabulary, 0.5B tokens",
        files={"default": "data/{split}-*.parquet"},
        splits=("train", "validation"),
    ),
    "openwebtext": Preset(
        repo="Skylion007/openwebtext",
        about="an open copy of GPT-2's training text, 9B tokens",
        files={"plain_text": "plain_text/train-*.parquet"},
    ),
    "minipile": Preset(
        repo="JeanKaddour/minipile",
        about="a million documents out of the Pile, 1.5B tokens",
        files={"default": "data/{split}-*.parquet"},
        splits=ALL_SPLITS,
    ),
    "pile-uncopyrighted": Preset(
        repo="monology/pile-uncopyrighted",
        about="the Pile without its copyrighted parts",
        files={"default": "{split}.jsonl.zst"},
        splits=ALL_SPLITS,
        split_names={"train": "train/*", "validation": "val"},
    ),
    "redpajama-sample": Preset(
        repo="togethercomputer/RedPajama-Data-1T-Sample",
        about="a sample of RedPajama, 1B tokens",
        files={"default": "*_sample.jsonl"},
    ),
    "dclm-baseline": Preset(
        repo="mlfoundations/dclm-baseline-1.0",
        about="filtered web pages, 4T tokens",
        files={"default": "global-shard_*/local-shard_*/*.jsonl.zst"},
    ),
    "dolma": Preset(
        repo="allenai/dolma",
        about="OLMo's corpus, 3T tokens; the Hub holds lists of its files, which lie elsewhere",
        files={
            "v1_7": "urls/{config}.txt",
            "v1_6-sample": "urls/{config}.txt",
            "v1_6": "urls/{config}.txt",
            "v1_5-sample": "urls/{config}.txt",
            "v1_5": "urls/{config}.txt",
        },
        lists_addresses=True,
    ),
    "cosmopedia": Preset(
        repo="HuggingFaceTB/cosmopedia",
        about="synthetic textbooks, stories and posts, 25B tokens",
        files={
            "all": "data/*/train-*.parquet",
            **dict.fromkeys(
                (
                    "auto_math_text",
                    "khanacademy",
                    "openstax",
                    "stanford",
                    "stories",
                    "web_samples_v1",
                    "web_samples_v2",
                ),
                "data/{config}/train-*.parquet",
            ),
            "wikihow": "data/{config}/train-*.parquet",
        },
    ),
    "smollm-corpus": Preset(
        repo="HuggingFaceTB/smollm-corpus",
        about="what SmolLM was trained on (of python-edu the Hub holds no text)",
        files=dict.fromkeys(("fineweb-edu-dedup", "cosmopedia-v2"), "{config}/train-*.parquet"),
    ),
    "finemath": Preset(
        repo="HuggingFaceTB/finemath",
        about="mathematics from the web, 34B and 54B tokens",
        files=dict.fromkeys(
            ("finemath-3plus", "finemath-4plus", "infiwebmath-3plus", "infiwebmath-4plus"), "{config}/train-*.parquet"
        ),
    ),
    "open-web-math": Preset(
        repo="open-web-math/open-web-math",
        about="mathematics from the web, 14B tokens",
        files={"default": "data/train-*.parquet"},
    ),
    "proof-pile-2": Preset(
        repo="EleutherAI/proof-pile-2",
        about="mathematical and scientific text and code, 55B tokens",
        files={
            "all": "*/{split}/*.jsonl.zst",
            **dict.fromkeys(("arxiv", "open-web-math", "algebraic-stack"), "{config}/{split}/*.jsonl.zst"),
        },
        splits=ALL_SPLITS,
    ),
    "the-stack-smol": Preset(
        repo="bigcode/the-stack-smol",
        about="source code, 10,000 files of each language; a config each, like python",
        files={"all": "data/*/data.json", "*": "data/{config}/data.json"},
        text_field="content",
        gated=True,
    ),
    "starcoderdata": Preset(
        repo="bigcode/starcoderdata",
        about="source code, 250B tokens; a config for each language, like python",
        files={"all": "*/train-*.parquet", "*": "{config}/train-*.parquet"},
        text_field="content",
        gated=True,
    ),
}
