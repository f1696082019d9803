"""What a user types means what it says, or is refused with the right way to say it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokpress.config import BuildConfig, ReadConfig, TokenizerConfig, reject_limit
from tokpress.errors import UsageError
from tokpress.sizes import parse_size, written_size


class TestParseSize:
    @pytest.mark.parametrize(
        ("text", "size"),
        [
            ("0", 0),
            ("1048576", 1048576),
            ("5b", 5),
            ("1k", 1000),
            ("1kB", 1000),
            ("1KiB", 1024),
            ("4GB", 4 * 10**9),
            ("512MiB", 512 * 2**20),
            ("1.5g", 1_500_000_000),
            ("0.5 KiB", 512),
            (" 2 TB ", 2 * 10**12),
            ("2tib", 2 * 2**40),
            (7, 7),
        ],
    )
    def test_understands_the_usual_ways_to_write_one(self, text: str | int, size: int) -> None:
        assert parse_size(text) == size

    @pytest.mark.parametrize("text", ["", "big", "-1", "1.2.3", ".", "4XB", "5i", "4GBB", "1e9", "inf", "nan", "４GB!"])
    def test_refuses_the_rest_and_shows_how(self, text: str) -> None:
        with pytest.raises(UsageError, match=r"not a size\. Write it like 4GB"):
            parse_size(text)

    @given(st.integers(0, 2**53))
    def test_takes_any_plain_number(self, size: int) -> None:
        assert parse_size(str(size)) == parse_size(size) == size


class TestWrittenSize:
    @pytest.mark.parametrize(
        ("size", "text"),
        [(0, "0"), (999, "999"), (2000, "2kB"), (1536, "1536"), (256 * 2**20, "256MiB"), (256 * 10**6, "256MB")],
    )
    def test_is_what_one_would_type(self, size: int, text: str) -> None:
        assert written_size(size) == text

    @given(st.one_of(st.integers(0, 2**53), st.integers(0, 2**10).map(lambda n: n * 2**30)))
    def test_is_read_back(self, size: int) -> None:
        assert parse_size(written_size(size)) == size


class TestFieldPath:
    @pytest.mark.parametrize(
        ("text_field", "path"),
        [
            ("text", ("text",)),
            ("meta.body.text", ("meta", "body", "text")),
            (r"a\.b", ("a.b",)),
            (r"a\.b.c\.d", ("a.b", "c.d")),
            (r"\.hidden", (".hidden",)),
            ("with space.ünï", ("with space", "ünï")),
        ],
    )
    def test_is_cut_at_dots_that_are_not_escaped(self, text_field: str, path: tuple[str, ...]) -> None:
        assert ReadConfig(text_field=text_field).field_path == path

    @given(st.lists(st.text(st.characters(exclude_characters="\\", exclude_categories=["Cs"]), min_size=1), min_size=1))
    def test_any_names_can_be_written(self, names: list[str]) -> None:
        text_field = ".".join(name.replace(".", "\\.") for name in names)
        assert ReadConfig(text_field=text_field).field_path == tuple(names)


class TestRejectLimit:
    @pytest.mark.parametrize(
        ("max_rejects", "read", "limit"),
        [
            ("0", 10**6, 0),
            ("500", 10, 500),
            ("1%", 10**6, 10**4),
            ("0.1%", 10**6, 1000),
            ("100%", 50, 50),
            ("1%", 100, 10),  # a handful is always allowed
            ("0%", 10**6, 10),
        ],
    )
    def test_is_a_number_or_a_share_of_the_records_read(self, max_rejects: str, read: int, limit: float) -> None:
        assert reject_limit(max_rejects, read) == pytest.approx(limit)

    @pytest.mark.parametrize("max_rejects", ["", "%", "few", "1.5", "1 percent", "x%", "-5", "-1%", "inf%", "nan%"])
    def test_refuses_the_rest_and_shows_how(self, max_rejects: str) -> None:
        with pytest.raises(UsageError, match="neither a share like 1% nor a number like 500"):
            reject_limit(max_rejects, 0)


class TestConfigs:
    def test_are_frozen(self) -> None:
        config = BuildConfig(tokenizer=TokenizerConfig(spec="bytes"))
        for part in (config, config.read, config.tokenizer, config.store, config.check, config.resources):
            with pytest.raises(AttributeError, match="immutable"):
                setattr(part, part.__struct_fields__[0], None)
