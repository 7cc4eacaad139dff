"""docs/support.md says what is tested, where and how often, as tox.ini and pyproject.toml do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from timeline.table.property_name import VERSIONS

ROOT = Path(__file__).parents[1]
TOX = (ROOT / "tox.ini").read_text("utf-8")
PROJECT = (ROOT / "pyproject.toml").read_text("utf-8")
SUPPORT = (ROOT / "docs" / "support.md").read_text("utf-8")
MARKS = {"covering"}


def rows() -> Iterator[list[str]]:
    """Yield the cells of each row of its tables."""
    for line in SUPPORT.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and not cells[0].startswith("---") and cells[-1] != "how often":
            yield cells


def row(first: str) -> list[str]:
    (found,) = (cells for cells in rows() if cells[0] == first)
    return found


def section(environment: str) -> str:
    return TOX.partition(f"[testenv:{environment}]")[2].partition("\n[testenv:")[0]


def environments(line: str) -> set[str]:
    """Return the environments of a line of tox.ini, such as ``env_list = lint, types``."""
    (names,) = re.findall(line, TOX, re.MULTILINE)
    return set(re.split(r",\s*", names))


def test_each_named_environment_runs_as_often_as_it_says() -> None:
    often = environments(r"^env_list = (.+)$")
    nightly = environments(r"^commands = tox run -e (\S+)$")
    assert {"py", "spark35"} <= often
    for cells in rows():
        *_, named, how_often = cells
        named_here = set(re.findall(r"`(\w+)`", named)) - MARKS
        expected = {
            *(["every change"] if named_here & often else []),
            *(["nightly"] if named_here & nightly - often else []),
        }
        assert named_here <= often | nightly, cells
        told = {word for word in ("every change", "nightly") if word in how_often}
        # Those marked `covering` run on every change, and nightly all.
        assert told == expected or (expected < told and "`covering`" in how_often), cells


def test_pythons_are_those_of_the_classifiers() -> None:
    promised = re.findall(r"Python :: (3\.\d+)", PROJECT)
    assert row("Python")[1].split(", ") == promised
    assert f'requires-python = ">={promised[0]}"' in PROJECT


def test_sparks_and_hudis_are_those_that_tox_installs() -> None:
    for environment in ("spark35", "faults", "cluster"):
        assert "pyspark==3.5.*" in section(environment)
    assert 'pyspark>=4,<5; python_version >= "3.11"' in section("spark4")
    assert "Python 3.11 or later" in row("PySpark 4")[1]
    tested = re.findall(r"tests\.oracle\.hudi (\S+)", section("oracle"))
    assert row("Hudi")[1].split(", ") == tested


def test_table_versions_are_those_that_are_read() -> None:
    assert [cells[0] for cells in rows() if cells[0].isdigit()] == list(map(str, VERSIONS))
    kept = {path.stem for path in (ROOT / "tests/golden").glob("*.zip")}
    for version in VERSIONS:
        assert any(name.endswith(f"_v{version}") for name in kept)
