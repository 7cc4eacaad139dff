"""The files of a report: an HTML page, a picture, and ``metrics.json`` with all numbers."""

from __future__ import annotations

import json
from pathlib import Path

from demo.report.chart import draw
from demo.report.page import page
from demo.report.report import Report


def write(report: Report, folder: Path) -> list[Path]:
    """Write the report's files and return their paths, the page first."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in ("report.html", "report.png", "metrics.json")]
    paths[0].write_text(page(report), "utf-8")
    draw(report, paths[1])
    paths[2].write_text(json.dumps(report.as_json(), indent=1) + "\n", "utf-8")
    return paths


def read(folder: Path) -> Report:
    """Read the report that ``write`` wrote into ``folder``."""
    return Report.from_json(json.loads((folder / "metrics.json").read_text("utf-8")))
