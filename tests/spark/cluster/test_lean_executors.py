"""Executors with pyarrow, numpy and fsspec, to which ``spark-submit`` brings our packages."""

from __future__ import annotations

import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests.kit.tables import reader
from tests.spark.cluster.conftest import Run, make_table
from tests.spark.cluster.driver import ROOT
from tests.spark.cluster.standalone import cluster

pytestmark = pytest.mark.cluster

NEEDED = ("pyarrow", "numpy", "fsspec")
LOWER = ("timeline", "fsview", "executor_proxy")


@pytest.fixture(scope="module")
def lean_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment with what executors need, and nothing else."""
    home = tmp_path_factory.mktemp("lean") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    python = home / "bin" / "python"
    packages = [f"{name}=={version(name)}" for name in NEEDED]
    subprocess.run(
        [str(python), "-m", "pip", "install", "-q", "--no-compile", *packages], check=True
    )
    return python


def zipped(package: str, folder: Path) -> str:
    """Pack a package as docs/executors.md says."""
    archive = str(folder / f"{package}.zip")
    command = [sys.executable, "-m", "zipfile", "-c", archive, f"{package}/"]
    subprocess.run(command, cwd=ROOT, check=True)
    return archive


@pytest.fixture(scope="module")
def report(
    run_driver: Run,
    environ: dict[str, str],
    lean_python: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("submitted")
    base = make_table(folder / "table")
    with (
        cluster(folder, environ, "127.0.0.1") as url,
        socket.socket() as refusing,
    ):
        refusing.bind(("127.0.0.1", 0))  # and doesn't listen
        submit = (
            str(Path(environ["SPARK_HOME"]) / "bin" / "spark-submit"),
            *("--master", url),
            *("--py-files", ",".join(zipped(package, folder) for package in LOWER)),
            *("--conf", f"spark.pyspark.python={lean_python}"),
            *("--conf", f"spark.pyspark.driver.python={sys.executable}"),
            *("--conf", "spark.driver.host=127.0.0.1"),
            *("--conf", "spark.driver.memory=1g"),
        )
        spec = {
            "base": str(base),
            "dead": f"http://127.0.0.1:{refusing.getsockname()[1]}",
            "strandline": zipped("strandline", folder),
        }
        report = run_driver("lean_driver", spec, command=submit)
    return {**report, "base": base, "python": lean_python}


def test_executors_have_what_is_needed_and_nothing_else(report):
    names, origin, prefix = report["importable"]
    assert names == [*LOWER, *NEEDED]
    assert ".zip/executor_proxy/" in origin
    assert Path(prefix) == report["python"].parent.parent


def test_a_view_in_closure_and_broadcast_reads_through_the_service(report):
    assert report["asked"] == dict.fromkeys(("closure", "broadcast"), report["expected"])


def test_a_view_whose_service_is_lost_lists_storage(report):
    assert report["listed"] == dict.fromkeys(("closure", "broadcast"), report["expected"])


def test_the_tasks_of_a_write_need_only_the_fourth_package_beside(report):
    assert report["write"]["fallbacks"] == []
    assert report["write"]["sources"] == {"service": 1}
    expected = sorted(f"k{key}@{1 if key < 6 else 2}" for key in range(15))
    assert sorted(row["name"] for row in reader.rows(report["base"])) == expected
