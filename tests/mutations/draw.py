"""Would the tests notice a fault that nobody chose? Draws places by a seed, puts a plain fault at each, and tries them.

In: a seed and a number. Out: a line a fault, with the test that noticed it or `survived`. The tables beside this file hold
faults that somebody thought of, and whose tests are known to fail; this measures the tests on places that nobody looked at.

    python tests/mutations/draw.py --seed 7 --count 100 --list     what would be tried
    python tests/mutations/draw.py --seed 7 --count 100            tries them

Whether a fault that survived changes anything at all is for a reader to say.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from mutations.run import PACKAGE, ROOT, SURVIVED, run_tests

_COMPARISONS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
_ARITHMETIC = {ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*", ast.Mod: "//"}
_SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any"}
_MOST_STAGE_FILES = 12


@dataclass(frozen=True, slots=True)
class Fault:
    file: str  # under src/tokpress
    line: int
    begin: int  # bytes of the file
    end: int
    new: str
    old: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {' '.join(self.old.split())!r} -> {self.new!r}"


def faults(file: str, text: str) -> Iterator[Fault]:
    """Every fault that can be put into a file: inside functions, one place each."""
    data = text.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def at(begin: tuple[int, int], end: tuple[int, int], new: str) -> Fault:
        first, last = starts[begin[0] - 1] + begin[1], starts[end[0] - 1] + end[1]
        return Fault(file, begin[0], first, last, new, data[first:last].decode())

    def whole(node: ast.expr | ast.stmt, new: str) -> Fault:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return at((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset), new)

    def source(node: ast.expr) -> str:
        return ast.unparse(node)

    for node in _inside_functions(ast.parse(text)):
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                yield whole(node, f"({source(left)} {_COMPARISONS[type(op)]} {source(right)})")
            case ast.BoolOp(values=values, op=op):
                word = " and " if isinstance(op, ast.And) else " or "
                for left_out in range(len(values)):
                    kept = [source(value) for place, value in enumerate(values) if place != left_out]
                    yield whole(node, f"({word.join(kept)})")
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield whole(node, f"({source(operand)})")
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC and not _is_text(node):
                yield whole(node, f"({source(left)} {_ARITHMETIC[type(op)]} {source(right)})")
            case ast.Constant(value=bool() as value):
                yield whole(node, str(not value))
            case ast.Constant(value=int() as value):
                yield whole(node, f"({value} + 1)")
            case ast.Call(func=ast.Name(id=name)) if name in _SWAPPED:
                yield whole(node.func, _SWAPPED[name])
            case ast.Expr(value=ast.Call() | ast.Await()) | ast.Raise() | ast.AugAssign():
                yield whole(node, "pass")
            case ast.If(test=test):
                yield whole(test, "False")


def _inside_functions(tree: ast.Module) -> Iterator[ast.AST]:
    """Nodes of functions' bodies, without annotations and decorators, each once."""
    for node in tree.body:
        parts = node.body if isinstance(node, ast.ClassDef) else [node]
        for part in parts:
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                for statement in part.body:
                    yield from _below(statement)


def _below(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.JoinedStr | ast.arguments):  # messages, and defaults that stand in a signature
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _below(child)


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in (node.left, node.right)
    )


def drawn(seed: int, count: int) -> list[Fault]:
    """As many of a package as it has lines of the whole, drawn without another choice."""
    package = ROOT / PACKAGE
    every = [
        fault
        for path in sorted(package.rglob("*.py"))
        for fault in faults(str(path.relative_to(package)), path.read_text("utf-8"))
    ]
    chosen: list[Fault] = []
    lines: set[tuple[str, int]] = set()
    for fault in random.Random(seed).sample(every, len(every)):
        if (fault.file, fault.line) not in lines and len(chosen) < count:
            chosen.append(fault)
            lines.add((fault.file, fault.line))
    return chosen


def stages(file: str) -> list[list[str]]:
    """Which tests are asked, likeliest first: the module's own, those that name it, its package's, those of whole runs."""
    module = Path(file).with_suffix("")
    tests = ROOT / "tests"
    dotted = re.compile(rf"\b{re.escape('tokpress.' + '.'.join(module.parts))}\b|\b{re.escape(module.name)}\b")
    every = [path for path in sorted(tests.rglob("test_*.py")) if "compat" not in path.parts]
    own = [path for path in every if path.name == f"test_{module.name}.py"]
    named = Counter({path: len(dotted.findall(path.read_text("utf-8"))) for path in every})
    naming = [path for path, times in named.most_common(_MOST_STAGE_FILES) if times]
    package = sorted((tests / module.parts[0]).rglob("test_*.py") if len(module.parts) > 1 else tests.glob("test_*.py"))
    whole = [
        *(tests / "golden").glob("test_*.py"),
        *(tests / "property").glob("test_*.py"),
        *(tests / "cli").glob("test_*.py"),
    ]
    asked: list[list[str]] = []
    seen: set[Path] = set()
    for stage in (own, naming, package, whole):
        fresh = [path for path in stage if path not in seen]
        seen.update(fresh)
        if fresh:
            asked.append([str(path.relative_to(tests)) for path in fresh])
    return asked


def attempt(fault: Fault) -> str:
    """The test that noticed, or `survived`. One that fails on the package as it is, too, proves nothing."""
    with tempfile.TemporaryDirectory(prefix="tokpress-mutation-") as directory:
        mutated = Path(directory) / "src"
        shutil.copytree(ROOT / "src", mutated, ignore=shutil.ignore_patterns("__pycache__"))
        place = mutated / "tokpress" / fault.file
        data = place.read_bytes()
        place.write_bytes(data[: fault.begin] + fault.new.encode() + data[fault.end :])
        for tests in stages(fault.file):
            fail_anyway: list[str] = []
            while (done := _ask(tests, fail_anyway, mutated, Path(directory))).returncode != SURVIVED:
                noticed = re.search(r"^(?:FAILED|ERROR) tests/(.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
                if "+ Timeout +" in done.stdout:
                    return "a test that did not end"
                if noticed is None or noticed[1] in fail_anyway:
                    return f"not run: {done.stdout.strip().splitlines()[-1:]}"
                if run_tests([noticed[1]], ROOT / "src", Path(directory), "--tb=no").returncode == SURVIVED:
                    return noticed[1]
                fail_anyway.append(noticed[1])
    return "survived"


def _ask(tests: Sequence[str], but: Sequence[str], source: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    return run_tests(tests, source, directory, "-x", "--tb=no", "-rfE", *(f"--deselect=tests/{test}" for test in but))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of those to try, as a run before printed them")
    parser.add_argument("--list", action="store_true", help="only say what would be tried")
    options = parser.parse_args(arguments)
    chosen = drawn(options.seed, options.count)
    if options.list:
        print(*chosen, sep="\n")
        return 0
    numbers = range(len(chosen)) if options.only is None else options.only
    noticed = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        tried = pool.map(attempt, [chosen[number] for number in numbers])
        for number, became in zip(numbers, tried, strict=True):
            noticed += became != "survived" and not became.startswith("not run")
            print(f"{number:3} {chosen[number]}\n    {became}", flush=True)
    print(f"{noticed} of {len(numbers)} were noticed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
