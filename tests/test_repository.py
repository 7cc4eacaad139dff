"""The repository stands alone: it names no machine of its makers; its entrances are as promised."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from strandline.version import __version__

ROOT = Path(__file__).parents[1]
TOX = ROOT / "tox.ini"
PACKAGES = ("timeline", "fsview", "executor_proxy", "strandline")

# Spelled in parts, so that this file doesn't hold what it looks for.
FORBIDDEN = {
    "a folder beside the repository": re.compile(r"\.\./sha" + "red"),
    "a path of one machine": re.compile("/wor" + r"k/(main|dev|shared|\.)"),
    "a home directory": re.compile(r"/(home/\w+|ro" + "ot)/"),
    "a package registry's host": re.compile(
        r"(pypi\.o" + r"rg|repo1?\.maven|files\.pythonho" + r"sted|deb\.debian\.o" + "rg)"
    ),
    "a loose end": re.compile(r"\b(TO" + "DO|FIX" + "ME|XX" + r"X)\b"),
}
TEXT = {".py", ".md", ".toml", ".ini", ".cfg", ".html", ".css", ".js", ".properties", ".avsc", ""}


def tracked() -> list[Path]:
    """Every text file of the repository, by git where there is one, else by looking."""
    told = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if told.returncode == 0:
        files = [ROOT / name for name in told.stdout.decode().split("\0") if name]
    else:
        skipped = {".venv", ".tox", "build", "dist", "__pycache__"}
        files = [path for path in ROOT.rglob("*") if not skipped & set(path.parts)]
    return [path for path in files if path.is_file() and path.suffix in TEXT]


def test_no_file_has_what_is_forbidden() -> None:
    texts = {path: path.read_text("utf-8") for path in tracked()}
    found = [
        f"{path.relative_to(ROOT)}:{number}: {what}: {line.strip()[:80]}"
        for path, text in texts.items()
        for what, pattern in FORBIDDEN.items()
        if pattern.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_are_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


@cache
def defined(module: Path) -> set[str]:
    """Return the names that a module has, by its text."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update(each.asname or each.name for each in node.names)
    return names


def missing_imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.ImportFrom) or node.level:
            continue
        name = node.module or ""
        if name.partition(".")[0] not in (*PACKAGES, "benchmarks", "demo", "tests"):
            continue
        place = ROOT.joinpath(*name.split("."))
        module = place.with_suffix(".py")
        if not module.is_file():
            module = place / "__init__.py"
        names = defined(module) if module.is_file() else set()
        yield from (
            f"{path.relative_to(ROOT)}:{node.lineno}: {each.name} of {name}"
            for each in node.names
            if each.name not in names and not (place / f"{each.name}.py").is_file()
            if not (place / each.name).is_dir()
        )


@pytest.mark.property
def test_what_only_long_runs_import_is_there() -> None:
    """Benchmarks and the demo aren't type-checked, nor do their tests run on every change."""
    folders = ("benchmarks", "demo")
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(paths) > 50
    assert [each for path in paths for each in missing_imports(path)] == []


def readme_commands() -> list[str]:
    """The lines of the README's code blocks that use the virtual environment."""
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    return [
        line.strip()
        for line in lines
        if ".venv/bin/" in line and line.startswith(("    ", "py", ".v"))
    ]


def test_ci_runs_the_test_command_of_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    demo, run, *_ = readme_commands()
    set_up = demo.rsplit(" && ", 1)[0]
    assert set_up == "python3 -m venv .venv && .venv/bin/pip install -q tox"
    assert run.split()[0] == ".venv/bin/tox"
    assert f"{set_up} && {run} <" in script


def test_an_environment_that_collects_one_folder_has_all_tests_with_its_mark() -> None:
    one_folder = re.compile(r'^.* -m "?(\w+)\b(?!\.).* \{posargs:(\S+)\}$', re.MULTILINE)
    commands = set(one_folder.findall(TOX.read_text("utf-8")))
    assert {mark for mark, _ in commands} == {"spark", "faults", "cluster", "oracle"}
    elsewhere = [
        f"{path.relative_to(ROOT)} has tests marked {mark}, which tox runs in {folder} alone"
        for path in (ROOT / "tests").rglob("*.py")
        for mark, folder in commands
        if f"pytest.mark.{mark}" in path.read_text("utf-8")
        if ROOT / folder not in path.parents
    ]
    assert elsewhere == []


def test_the_environment_of_all_tests_deselects_no_product() -> None:
    """Its own ``-m`` replaces that of pyproject.toml, which leaves products out."""
    command = TOX.read_text("utf-8").partition("[testenv:all]")[2].partition("[testenv:")[0]
    (expression,) = re.findall(r'-m "(.+?)"', command)
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    (default,) = re.findall(r'"-m", "(.+?)"', project)
    assert {*default.split(" and ")} - {*expression.split(" and ")} == {"not product"}


def wrong_tags(tags: Iterable[str], version: str) -> list[str]:
    """Return the tags of releases that aren't of a version."""
    releases = [tag for tag in tags if re.fullmatch(r"v\d.*", tag)]
    return [tag for tag in releases if tag != f"v{version}"]


def test_a_tag_of_this_commit_is_of_its_version() -> None:
    command = ["git", "tag", "--points-at", "HEAD"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert wrong_tags(told.stdout.split(), __version__) == []
    tags = ["v1.2.3", "v1.2.3rc1", "v1.2", "demo"]
    assert wrong_tags(tags, "1.2.3") == ["v1.2.3rc1", "v1.2"]


def test_the_extra_all_has_every_other_one() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    table = project.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    extras = re.findall(r"^(\w+) = ", table, re.MULTILINE)
    (named,) = re.findall(r'^all = \["strandline\[(.+)\]"\]', table, re.MULTILINE)
    assert sorted([*named.split(","), "all"]) == sorted(extras)


def test_pre_commit_runs_the_ruff_of_tox() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"][0][
        "hooks"
    ]
    groups = re.search(
        r"^lint = (\[.*\])", (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE
    )
    assert groups
    assert [hook["additional_dependencies"] for hook in hooks] == [json.loads(groups[1])] * 2


def test_the_workflow_runs_ci_on_every_python_that_is_promised() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text("utf-8"))
    job = workflow["jobs"]["tox"]
    promised = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text("utf-8"))
    assert job["strategy"]["matrix"]["python"] == promised
    assert any(".ci/run" in step.get("run", "") for step in job["steps"])


def test_readme_shows_the_job_and_the_tests() -> None:
    commands = [command.split("#")[0].strip() for command in readme_commands()]
    set_up = "python3 -m venv .venv && .venv/bin/pip install -q tox"
    assert f"{set_up} && .venv/bin/tox -e demo -vv" in commands
    assert ".venv/bin/tox p -p 2" in commands


@pytest.mark.parametrize(
    ("name", "most"), [("README.md", 120), ("ARCHITECTURE.md", 250), ("CONTRIBUTING.md", 80)]
)
def test_documents_stay_short(name: str, most: int) -> None:
    assert len((ROOT / name).read_text("utf-8").splitlines()) <= most
