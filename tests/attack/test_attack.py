"""The attacks of the table. `make test` runs a seeded few of each topic, `make attack` all of them."""

from __future__ import annotations

import os
import random
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

import attack.cases
from attack.scene import Scene
from attack.table import Case

TOPICS: dict[str, list[Case]] = {
    topic.name: import_module(f"attack.cases.{topic.name}").CASES for topic in iter_modules(attack.cases.__path__)
}
EVERYTHING = os.environ.get("TOKPRESS_ATTACK_EVERYTHING") == "1"
SEED = int(os.environ.get("TOKPRESS_ATTACK_SEED", "0"))
_OF_EACH_TOPIC = 3


def _chosen() -> list[tuple[str, Case]]:
    rng = random.Random(SEED)
    return [
        (topic, case)
        for topic, cases in TOPICS.items()
        for case in (cases if EVERYTHING else rng.sample(cases, min(_OF_EACH_TOPIC, len(cases))))
    ]


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{topic}: {case.name}") for topic, case in _chosen()])
def test_what_must_come_of_it(case: Case, tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    try:
        case.run(scene)
    finally:
        scene.close()


def test_no_case_stands_there_twice() -> None:
    names = [(topic, case.name) for topic, cases in TOPICS.items() for case in cases]
    assert len(set(names)) == len(names)


def test_the_table_does_not_shrink() -> None:
    assert sum(map(len, TOPICS.values())) >= 600
