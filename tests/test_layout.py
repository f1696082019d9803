"""The layout says what is where, and only `storage` touches a store's files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "tokpress"
PACKAGES = sorted(path.parent for path in PACKAGE.glob("*/__init__.py"))

# Calls that have nothing to do with a store, a pack or an export: what they touch, and where.
ELSEWHERE = {
    "formats/datatrove.py": "token files of others, to be imported",
    "formats/dolma.py": "token files of others, to be imported",
    "formats/llmc.py": "token files of others, to be imported",
    "formats/megatron.py": "token files of others, to be imported",
    "formats/nanogpt.py": "token files of others, to be imported",
    "formats/raw.py": "token files of others, to be imported",
    "formats/import_.py": "token files of others, to be imported",
    "formats/export.py": "where the user wants the export, before there is a storage",
    "run/event_log.py": "--events FILE",
    "run/gate.py": "the lock of this host",
    "run/profiles.py": "--profile FILE",
    "run/measure.py": "stores that a benchmark makes and removes",
    "run/clusters/processes.py": "the lock of this host",
}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_a_package_s_docstring_lists_every_module(package: Path) -> None:
    said = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    modules = {path.stem for path in package.glob("*.py")} - {"__init__"}
    modules |= {f"{path.parent.name}/" for path in package.glob("*/*.py")}
    assert {
        module for module in modules if not re.search(rf"(?m)^\s.*\b{re.escape(module.rstrip('/'))}\b", said)
    } == set()


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_is_long(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 350


def file_system_calls(source: str) -> Iterator[str]:
    """Calls of `os`, `shutil` or `tempfile`, of `open`, and paths that are made from a string."""
    harmless = {
        "os.fspath",
        "os.getpid",
        "os.PathLike",
        "os.cpu_count",
        "os.strerror",
        "os.environ",
        "os.sched_setaffinity",
        "os._exit",
    }
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            if node.value.id in ("os", "shutil", "tempfile") and name not in harmless:
                yield name
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("open", "Path"):
            yield f"{node.func.id}()"


@pytest.mark.parametrize("name", ["store", "run", "packing", "formats"])
def test_only_storage_touches_files(name: str) -> None:
    found = {
        str(path.relative_to(PACKAGE)): calls
        for path in sorted((PACKAGE / name).rglob("*.py"))
        if (calls := sorted(set(file_system_calls(path.read_text()))))
    }
    assert {path: calls for path, calls in found.items() if path not in ELSEWHERE} == {}
