"""Drivers in processes of their own, on each kind of master."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from tests.spark.cluster.driver import OPTIONS, REGIONS, ROOT, environment

Run = Callable[..., Any]
ENDS_WITHIN_S = 550


def make_table(base: Path) -> Path:
    """Write a table with one row for each of twelve keys at time 1, in this process."""
    keys = range(12)
    rows = {
        "id": [f"k{key}" for key in keys],
        "region": [REGIONS[key % 3] for key in keys],
        "ts": [1 for _ in keys],
        "name": [f"k{key}@1" for key in keys],
    }
    options = {**OPTIONS, "hoodie.embed.timeline.server": "false"}
    with WriteClient(LocalEngine(), str(base), options) as client:
        client.bulk_insert(pa.table(rows))
    return base


@pytest.fixture(scope="session")
def environ() -> dict[str, str]:
    """The environment of Spark's processes."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return environment(str(Path(spec.origin).parent), version("pyspark"))


@pytest.fixture(scope="session")
def run_driver(environ: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a driver of this folder; return its report."""

    def run(
        module: str,
        spec: Mapping[str, Any],
        inside: Sequence[str] = (),
        command: Sequence[str] = (sys.executable, "-W", "error::ResourceWarning"),
    ) -> Any:
        folder = tmp_path_factory.mktemp(module)
        report = folder / "report.json"
        ended = subprocess.run(
            [
                *inside,
                *command,
                str(ROOT / "tests" / "spark" / "cluster" / f"{module}.py"),
                json.dumps({**spec, "report": str(report)}),
            ],
            cwd=folder,
            env={
                **environ,
                "PYTHONPATH": str(ROOT),
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_WORKER_DIR": str(folder),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=ENDS_WITHIN_S,
        )
        assert ended.returncode == 0, ended.stdout[-10_000:]
        return json.loads(report.read_text("utf-8"))

    return run
