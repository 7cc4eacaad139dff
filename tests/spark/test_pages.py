"""The code of the documents that needs Spark: what pages show runs, and prints what they say."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from strandline import Table
from tests.kit.document_page import Block, blocks, run

pytestmark = [pytest.mark.spark, pytest.mark.covering]

DOCS = Path(__file__).parents[2] / "docs"
NEEDS_4 = "spark_source"


@pytest.fixture
def names(tmp_path: Path, spark: Any) -> dict[str, Any]:
    """The session, and what the first tutorial has written and named by then."""
    written = (DOCS / "tutorials/first-table.md").read_text("utf-8").partition("\n## Read\n")[0]
    return {**run(blocks(written, {"/tmp/": f"{tmp_path}/"})), "spark": spark}


def on_spark(page: str, folder: Path) -> list[Block]:
    """Return a page's blocks for Spark, and what they print; without those for another release."""
    found = blocks((DOCS / page).read_text("utf-8"), {"/tmp/": f"{folder}/"}, on_spark=True)
    kept: list[Block] = []
    prints = False
    for block in found:
        if block.language == "py":
            prints = NEEDS_4 not in block.code or version("pyspark") >= "4"
        elif block.language != "text":
            prints = False
        if prints:
            kept.append(block)
    return kept


def test_reading_on_spark(tmp_path: Path, names: dict[str, Any]) -> None:
    found = on_spark("reading.md", tmp_path)
    assert len(found) == (4 if version("pyspark") >= "4" else 2)
    run(found, names)


def test_a_stream(tmp_path: Path, names: dict[str, Any]) -> None:
    (tmp_path / "landing").mkdir()
    row = {"id": "LH403", "day": "wed", "ts": 1, "late": 7}
    (tmp_path / "landing/1.json").write_text(json.dumps(row), "utf-8")
    found = on_spark("how-to/stream.md", tmp_path)
    assert len(found) == 2
    run(found, names)
    assert Table(tmp_path / "lake/flights").scan(["id"], "id = 'LH403'").count() == 1
