"""The table of mutations stays true as the code moves: `make native-exact` builds and runs each."""

from __future__ import annotations

import pytest

from .mutate import Mutation, mutated, mutations


@pytest.mark.parametrize("mutation", mutations(), ids=lambda mutation: mutation["effect"])
def test_has_one_place_and_changes_it(mutation: Mutation) -> None:
    assert mutation["new"] != mutation["old"]
    assert mutation["old"] not in mutated(mutation) or mutation["old"] in mutation["new"]
