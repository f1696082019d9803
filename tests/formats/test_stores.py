"""The stores that these tests are made with are stores."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import LENGTHS


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
@pytest.mark.parametrize("masks", [False, True, "some"])
@pytest.mark.parametrize("eos", [False, True])
def test_they_are_sound(make_store: Any, dtype: str, masks: Any, eos: bool) -> None:
    report = make_store(LENGTHS, dtype=dtype, masks=masks, eos=eos).verify()
    assert report.ok, report.problems
