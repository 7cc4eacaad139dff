"""The jobs in `examples/` that need Spark, each run by its command on a session of its own."""

from __future__ import annotations

import shutil
from importlib.metadata import version
from pathlib import Path

import pytest

from demo.spark import java_home
from strandline import Table
from tests.kit.example_commands import run_example

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _another_python3(tmp_path_factory: pytest.TempPathFactory, monkeypatch) -> None:
    """Have the first ``python3`` of the path be one without packages, and name no Python.

    Jobs are started by the path of their environment's Python, which their tasks must run, too.
    """
    folder = tmp_path_factory.mktemp("bin")
    (folder / "python3").write_text("#!/bin/sh\necho 'the wrong Python' >&2\nexit 1\n")
    (folder / "python3").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)


def on_spark(name: str, lake: Path) -> str:
    """Run a job on two cores."""
    conf = {
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    environ = {
        "JAVA_HOME": str(java_home(version("pyspark"))),
        "PYSPARK_SUBMIT_ARGS": " ".join(
            [*(f"--conf {key}={value}" for key, value in conf.items()), "pyspark-shell"]
        ),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return run_example(name, lake, environ)


@pytest.mark.covering
def test_the_batch_job(tmp_path: Path) -> None:
    printed = on_spark("batch_job", tmp_path)
    assert "1000 updated, 1000 inserted" in printed
    assert "0 look-ups had to list storage" in printed
    states = Table(tmp_path / "orders").to_arrow(["state"])["state"].to_pylist()
    assert (states.count("open"), states.count("paid")) == (19_000, 2_000)
    *lines, earlier = on_spark("read_on_spark", tmp_path).splitlines()
    assert earlier.endswith(": 20000 orders")
    days = [line.split() for line in lines]
    numbers = range(19_000, 21_000)
    for at, (day, cents) in enumerate(days):
        assert day == f"2024-06-{at + 1:02}"
        assert int(cents) == sum(n * 25 % 9973 for n in numbers if n % 7 == at)
    assert len(days) == 7


def test_the_stream_continues_after_its_checkpoint(tmp_path: Path) -> None:
    assert "last batch: 2" in on_spark("stream", tmp_path)
    assert "last batch: 2" in on_spark("stream", tmp_path)  # which commits nothing
    table = Table(tmp_path / "sensors")
    assert len(list(table.commits())) == 3
    newest = {row["sensor"]: row["at"] for row in table.to_arrow(["sensor", "at"]).to_pylist()}
    assert newest == {"s-1": 3, "s-2": 1, "s-3": 2, "s-4": 2}
    shutil.rmtree(tmp_path / "sensors-checkpoint")
    with pytest.raises(AssertionError, match=r"checkpoint\.identifier is 'readings'"):
        on_spark("stream", tmp_path)  # a new query, whose batches are others
    assert len(list(table.commits())) == 3
