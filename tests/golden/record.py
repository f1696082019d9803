"""Records the digests that the golden tests compare with. To be run on purpose only.

In: the code as it is. Out: `digests.json` and, for cases whose store is kept, `stores/`. What is recorded already is what
earlier versions wrote, and stays: this adds what is new and lists what differs.

    python tests/golden/record.py                        adds recipes that have no digests yet; exits with 1 if others differ
    python tests/golden/record.py --change 'build masks' replaces the digests of one recipe, too; may be given again
    python tests/golden/record.py --change all           replaces all of them, with the fields and libraries of today

A change is right where other bytes are what was wanted, or where constraints.txt moves a library whose files these are
(Parquet, Arrow, tensors); the commit says which. Stores in `stores/` are never written again: they stand for those that
users have on their disks.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import tokpress

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as pytest does

from golden.cases import CASES, build, lay_out, packed
from golden.digests import Fields, collect_fields, first_difference
from golden.recipes import (
    DIGESTS,
    IMPORTS,
    KEPT_IMPORTS,
    RECIPES,
    STORES,
    import_store,
    installed_libraries,
    load_recorded,
    saved_state,
)

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--change", action="append", default=[], metavar="RECIPE", help="replace what is recorded of it"
    )
    change: list[str] = parser.parse_args(arguments).change
    unknown = set(change) - RECIPES.keys() - {"all"}
    if unknown:
        parser.error(f"there is no recipe {min(unknown)!r}. There are: {', '.join(RECIPES)}")
    if ROOT not in Path(tokpress.__file__).parents:
        parser.error(f"this would record {tokpress.__file__}. Run it with PYTHONPATH={ROOT / 'src'}.")
    keep_stores()
    recorded = load_recorded()
    if "all" in change or not recorded["fields"]:
        recorded |= {"fields": all_fields(), "libraries": installed_libraries()}
        change = [*RECIPES]
    if not recorded["state"]:
        recorded["state"] = saved_state()
        write(recorded)
    differing = 0
    for name, recipe in RECIPES.items():
        with laid_out():
            found = recipe(recorded["fields"])
        before = recorded["digests"].get(name)
        difference = "new" if before is None else first_difference(before, found)
        if difference:
            print(f"{name}: {difference}")
        if before is None or name in change:
            recorded["digests"][name] = found
        elif difference:
            differing += 1
    recorded["digests"] = {name: recorded["digests"][name] for name in RECIPES}
    write(recorded)
    if differing:
        print(f"{differing} differ from what is recorded, which was left as it is. See --change.")
    return 1 if differing else 0


@contextmanager
def laid_out() -> Iterator[None]:
    """A working directory with the recorded inputs."""
    with tempfile.TemporaryDirectory(prefix="tokpress-golden-") as directory:
        lay_out(Path(directory))
        with chdir(directory):
            yield


def keep_stores() -> None:
    """Writes the stores that are to be kept and are not there yet."""
    for name, case in CASES.items():
        if case.kept and not (STORES / name).exists():
            with laid_out():
                store = build(case)
                if case.kept_packs:
                    packed(store)
                _keep(store, name)
    for name, kept in KEPT_IMPORTS.items():
        if not (STORES / kept).exists():
            with laid_out():
                _keep(import_store(name), kept)


def _keep(store: tokpress.Store, name: str) -> None:
    shutil.copytree(store.path, STORES / name)
    print(f"stores/{name} is new")


def all_fields() -> Fields:
    """Those of every plan and manifest that the recipes write."""
    with tempfile.TemporaryDirectory(prefix="tokpress-golden-") as directory:
        stores = []
        makers = [
            *(partial(build, case) for case in CASES.values()),
            *(partial(import_store, name) for name in IMPORTS),
        ]
        for number, make in enumerate(makers):
            with laid_out():
                stores.append(Path(shutil.copytree(make().path, Path(directory) / str(number))))
        return collect_fields(stores)


def write(recorded: dict[str, Any]) -> None:
    DIGESTS.write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
