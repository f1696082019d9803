"""Stores whose exports are adopted again."""

from formats.conftest import empty_store, make_store  # noqa: F401 - fixtures
