"""A field of the config is an option everywhere: as a keyword, in the plan, read back from it."""

from __future__ import annotations

from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from tokpress.declare import Declared
from tokpress.errors import StoreError, UsageError
from tokpress.live.parallel import TokenizerOptions
from tokpress.options import (
    OPTIONS,
    BuildOptions,
    LiveOptions,
    build_config,
    check_bounds,
    output_options,
    stored_config,
)

# What plans held before options were declared, byte for byte: stores of that time must be resumed and compared.
READING = '"text_field":"text","separator":null,"max_doc_bytes":268435456,"drop_empty":false,"limit":null,"keep":[],'
CUTTING = ',"unit_bytes":null,"shard_bytes":256000000'
TEXT = READING + '"special_tokens":"text","bos_id":null,"eos_id":256' + CUTTING
PARSE = TEXT.replace('"special_tokens":"text"', '"special_tokens":"parse"')
PLANS: dict[str, tuple[dict[str, Any], str]] = {
    "defaults": ({}, "{" + TEXT + "}"),
    "what changes nothing": (
        {"engine": "bytes", "audit_rate": 0.5, "max_rejects": 7, "on_bad_record": "stop", "workers": 3, "pin": "cores"},
        "{" + TEXT + "}",
    ),
    "reading": (
        {
            "format": "lines",
            "text_field": "a.b",
            "separator": "--",
            "max_doc_bytes": "1kB",
            "drop_empty": True,
            "limit": 3,
            "keep": ["id", "url"],
            "unit_size": "5MB",
            "shard_size": 100,
            "special_tokens": "parse",
        },
        '{"text_field":"a.b","separator":"--","max_doc_bytes":1000,"drop_empty":true,"limit":3,"keep":["id","url"],'
        '"special_tokens":"parse","bos_id":null,"eos_id":256,"unit_bytes":5000000,"shard_bytes":100}',
    ),
    "chats": (
        {
            "messages_field": "m",
            "chat_template": "chat.jinja",
            "date": "2026-01-01",
            "loss": "last",
            "max_length": 9,
            "overlong": "split",
            "tools_field": "f",
        },
        "{" + PARSE + ',"template":{"prompt_field":null,"completion_field":null,"prompt_separator":"",'
        '"messages_field":"m","tools_field":"f","chat_template":"{{ messages }}","date":"2026-01-01","template":null,'
        '"loss":"last","keep_empty_loss":false,"max_length":9,"overlong":"split"}}',
    ),
    "prompts and splits": (
        {
            "prompt_field": "q",
            "completion_field": "a",
            "prompt_separator": "\n",
            "keep_empty_loss": True,
            "val_fraction": 0.5,
            "split_key": "id",
            "split_seed": 4,
        },
        "{" + TEXT + ',"template":{"prompt_field":"q","completion_field":"a","prompt_separator":"\\n",'
        '"messages_field":null,"tools_field":"tools","chat_template":null,"date":null,"template":null,"loss":null,'
        '"keep_empty_loss":true,"max_length":null,"overlong":"truncate"},"split":{"val_fraction":0.5,"val_docs":null,'
        '"split_field":null,"split_key":"id","split_seed":4}}',
    ),
    "inputs of val": (
        {"val_inputs": "b.jsonl"},
        "{"
        + TEXT
        + ',"split":{"val_fraction":null,"val_docs":null,"split_field":null,"split_key":null,"split_seed":0}}',
    ),
}


class TestPlan:
    @pytest.fixture(autouse=True)
    def here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        Path("chat.jinja").write_text("{{ messages }}")

    @pytest.mark.parametrize("case", PLANS)
    def test_holds_the_same_bytes_as_ever(self, case: str) -> None:
        options, stored = PLANS[case]
        config = build_config("bytes", options)  # type: ignore[arg-type]
        assert msgspec.json.encode(output_options(config, None, 256)).decode() == stored

    @pytest.mark.parametrize("case", PLANS)
    def test_gives_back_what_changes_the_output(self, case: str) -> None:
        config = build_config("bytes", PLANS[case][0])  # type: ignore[arg-type]
        again = stored_config(output_options(config, None, 256))
        for option in OPTIONS:
            if option.stored:
                before, after = (getattr(getattr(both, option.section), option.field) for both in (config, again))
                assert before == after, option.name

    def test_of_an_import_gives_defaults(self) -> None:
        assert stored_config({"import": "dolma", "dtype": "uint16", "eos_id": 1}) == build_config("", {})

    def test_that_nobody_wrote_is_refused(self) -> None:
        with pytest.raises(StoreError, match=r"no build would write: .* at `\$.read.limit`"):
            stored_config({"limit": "many"})

    def test_a_live_data_set_holds_those_that_it_takes(self) -> None:
        config = build_config("bytes", {"limit": 5})
        stored = output_options(config, None, 256, live=True)
        assert stored == {
            "text_field": "text",
            "separator": None,
            "max_doc_bytes": 256 * 2**20,
            "drop_empty": False,
            "limit": 5,
            "special_tokens": "text",
            "bos_id": None,
            "eos_id": 256,
        }


class TestKeywords:
    """What a type checker knows of them stands in typed dictionaries, which say the same."""

    def test_of_build_are_the_options(self) -> None:
        assert set(BuildOptions.__annotations__) == {option.name for option in OPTIONS}

    def test_of_a_live_data_set_are_those_that_it_takes(self) -> None:
        assert set(LiveOptions.__annotations__) == {option.name for option in OPTIONS if option.live}

    def test_of_a_tokenizer_are_those_of_its_section(self) -> None:
        assert set(TokenizerOptions.__annotations__) == {o.name for o in OPTIONS if o.section == "tokenizer"}

    @pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
    def test_have_the_type_of_the_field(self, option: Declared) -> None:
        hint = get_type_hints(BuildOptions)[option.name]
        members = set(get_args(hint)) if isinstance(hint, UnionType) or get_origin(hint) is Union else {hint}
        may_be_none = option.default is None or option.of_chats is not None
        assert (NoneType in members) == may_be_none
        if option.kind in (
            "value",
            "escaped",
            "size",
            "share",
        ):  # others are wider: any path, any sequence, any mapping
            given = option.given_as
            assert members - {NoneType} == (set(get_args(given)) if isinstance(given, UnionType) else {given})

    def test_that_are_none_are_left_out(self) -> None:
        nothing: Any = dict.fromkeys(option.name for option in OPTIONS)
        assert build_config("bytes", nothing) == build_config("bytes", {})

    def test_that_are_unknown_are_an_error_with_the_right_one(self) -> None:
        wrong: Any = {"text_feild": "x"}
        with pytest.raises(
            TypeError, match=r"tokpress.build got an unknown option 'text_feild'. Did you mean 'text_field'\?"
        ):
            build_config("bytes", wrong)
        with pytest.raises(TypeError, match=r"unknown option 'xyz'\.$"):
            build_config("bytes", {"xyz": None})  # type: ignore[typeddict-unknown-key]

    def test_of_new_options_keep_old_plans_as_they_are(self) -> None:
        always = [option.name for option in OPTIONS if option.output == "always"]
        assert len(always) == 26  # no more: what plans have held from the start; declare a new one as "changed"

    def test_names_of_fields_may_be_typed_or_listed(self) -> None:
        assert build_config("bytes", {"keep": "id, url"}).read.keep == ("id", "url")
        assert build_config("bytes", {"keep": ["id", "url"]}).read.keep == ("id", "url")

    @pytest.mark.parametrize("option", [o for o in OPTIONS if o.at_least is not None], ids=lambda option: option.name)
    def test_out_of_bounds_are_refused_by_the_name_that_is_typed(self, option: Declared) -> None:
        assert option.at_least is not None
        for value in (option.at_least - 1, *([] if option.at_most is None else [option.at_most + 1, float("nan")])):
            config: Any = build_config("bytes", {})
            section = msgspec.structs.replace(getattr(config, option.section), **{option.field: value})
            with pytest.raises(UsageError, match=f"^{option.flag or option.name} is "):
                check_bounds(msgspec.structs.replace(config, **{option.section: section}))
