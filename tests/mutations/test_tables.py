"""The tables of mutations stay true as the code moves: each still has its place, and its tests still exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutations.run import PACKAGE, ROOT, Mutation, mutations


@pytest.mark.parametrize("mutation", mutations(), ids=lambda mutation: mutation.name)
def test_has_one_place_and_changes_it(mutation: Mutation) -> None:
    source = (ROOT / PACKAGE / mutation.file).read_text("utf-8")
    compile(mutation.apply(source), mutation.file, "exec")
    assert mutation.apply(source) != source


@pytest.mark.parametrize("mutation", mutations(), ids=lambda mutation: mutation.name)
def test_its_tests_exist(mutation: Mutation) -> None:
    for test in mutation.tests:
        file, *names = test.split("[")[0].split("::")
        source = Path(ROOT / "tests" / file).read_text("utf-8")
        assert all(f"def {name}(" in source or f"class {name}" in source for name in names)
