"""The files of the report on an object store: an HTML page, and ``metrics.json``."""

from __future__ import annotations

import json
from pathlib import Path

from demo.object_store.page import page
from demo.object_store.record import StoreReport


def write(report: StoreReport, folder: Path) -> list[Path]:
    """Write the report's files and return their paths, the page first."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in ("report.html", "metrics.json")]
    paths[0].write_text(page(report), "utf-8")
    paths[1].write_text(json.dumps(report.as_json(), indent=1) + "\n", "utf-8")
    # Of a run on a local disk, perhaps.
    (folder / "report.png").unlink(missing_ok=True)
    return paths


def read(folder: Path) -> StoreReport:
    """Read the report that ``write`` wrote into ``folder``."""
    return StoreReport.from_json(json.loads((folder / "metrics.json").read_text("utf-8")))
