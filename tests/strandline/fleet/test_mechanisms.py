"""What docs/explanation/fleet.md says of mechanisms and faults: what it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TEST = re.compile(r"`(tests/[a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`")
PLACE = re.compile(r"`(strandline/[a-z0-9_/]+(?:\.py)?)`")


def rows(head: str) -> list[list[str]]:
    """Return the cells of the rows of the table that has this head."""
    text = (ROOT / "docs/explanation/fleet.md").read_text("utf-8")
    (table,) = (part for part in text.split("\n\n") if part.startswith(head))
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in table.splitlines()[2:]]


MECHANISMS = rows("| paper | here |")
FAULTS = rows("| fault | shown by |")


def test_all_rows_are_here() -> None:
    """Those of the paper's sections 3, 4 and 6, and the faults of moves and of creations."""
    assert len(MECHANISMS) == 11
    assert len(FAULTS) == 11
    sections = {number for row in MECHANISMS for number in re.findall(r"\d(?:\.\d)?", row[0])}
    assert sections >= {"3.1", "3.2", "3.4", "4.1", "4.2", "6"}
    assert all(len(row) == 4 and all(row) for row in MECHANISMS)


@pytest.mark.parametrize("row", [*MECHANISMS, *FAULTS], ids=lambda row: row[0][:40])
def test_each_row_names_a_test_that_there_is(row: list[str]) -> None:
    named = TEST.findall(row[-1])
    assert len(named) >= 1
    assert row[-1].count("tests/") == len(named)
    for file, test in named:
        assert f"def {test}(" in (ROOT / file).read_text("utf-8"), (file, test)


@pytest.mark.parametrize("row", MECHANISMS, ids=lambda row: row[0][:40])
def test_each_row_names_places_that_there_are(row: list[str]) -> None:
    for place in PLACE.findall(row[1]):
        assert (ROOT / place).exists(), place
