"""The tutorial of a Hudi job with this service, as it is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from strandline import Table
from tests.kit.document_page import blocks, run
from tests.kit.servers.free_port import free_port
from tests.oracle.hudi import Hudi

pytestmark = pytest.mark.oracle

TUTORIALS = Path(__file__).parents[3] / "docs" / "tutorials"


def test_the_job_of_the_tutorial_asks_the_service(hudi: Hudi, tmp_path: Path) -> None:
    places = {"/tmp/": f"{tmp_path}/", "26754": str(free_port())}
    first = (TUTORIALS / "first-table.md").read_text("utf-8").partition("\n## Read\n")[0]
    page = (TUTORIALS / "drop-in.md").read_text("utf-8")
    names = run(blocks(first, places)) | {"spark": hudi.spark}
    run(blocks(page, places, on_spark=True), names)
    asked = json.loads((tmp_path / "lake-status.json").read_text("utf-8"))["requests"]
    assert asked
    rows = Table(tmp_path / "lake" / "flights").to_arrow(["id", "late"]).to_pylist()
    assert {"id": "LH403", "late": 7} in rows
    assert {"id": "AF007", "late": 60} in rows
