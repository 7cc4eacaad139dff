"""Which Python tasks run, by master, variable and setting; tests/spark runs it on Spark."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from strandline.write.engine.workers_python import (
    NEEDED,
    check_python,
    choose_python,
    missing_packages,
)
from timeline.errors import ConfigError


class Context:
    """What is asked of a ``SparkContext``; its one executor lacks some packages."""

    def __init__(self, master: str, *, lacks: Iterable[str] = (), **conf: str) -> None:
        self.master, self.pythonExec = master, "python3"
        self.jobs = self.copies = 0
        self._lacks, self._conf = set(lacks), conf

    def getConf(self) -> dict[str, str]:  # noqa: N802 - as Spark has it
        self.copies += 1
        return {name.replace("_", "."): value for name, value in self._conf.items()}

    def parallelize(self, rows: tuple[Any, ...], parts: int) -> Context:
        assert len(rows) == parts == 1
        self._rows = rows
        return self

    def map(self, function: Callable[[Any], Any]) -> Context:
        assert function is missing_packages
        return self

    def collect(self) -> list[list[str]]:
        self.jobs += 1
        if "strandline" in self._lacks:
            raise RuntimeError("Traceback\nModuleNotFoundError: No module named 'strandline'\n")
        return [[name for name in self._rows[0] if name in self._lacks]]


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)


@pytest.mark.parametrize("master", ["local", "local[2,2]", "local-cluster[2,1,1024]"])
def test_tasks_on_this_machine_run_the_drivers_python_unchecked(master: str) -> None:
    context = Context(master, lacks=NEEDED)
    choose_python(context)
    check_python(context)
    assert (context.pythonExec, context.jobs) == (sys.executable, 0)


def test_what_names_a_python_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    named = Context("local", spark_pyspark_python="/opt/python")
    choose_python(named)
    assert named.pythonExec == "/opt/python"
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    for context in (Context("local"), Context("spark://a:7077", lacks=NEEDED)):
        choose_python(context)
        check_python(context)
        assert (context.pythonExec, context.jobs) == ("python3", 0)


def test_executors_elsewhere_are_asked_once() -> None:
    context, other = Context("spark://a:7077"), Context("yarn")
    for each in (context, context, other):
        choose_python(each)
        check_python(each)
    assert [(each.pythonExec, each.jobs) for each in (context, other)] == [("python3", 1)] * 2


@pytest.mark.parametrize("conf", [{}, {"spark_pyspark_python": "/opt/python"}])
def test_settings_are_copied_for_the_first_write_alone(conf: dict[str, str]) -> None:
    context = Context("yarn", **conf)
    for _ in range(3):
        choose_python(context)
        check_python(context)
    assert context.copies == 2
    own = Context("local")
    own.pythonExec = "/own/python"
    choose_python(own)
    assert (own.pythonExec, own.copies) == ("/own/python", 0)


def test_what_they_lack_is_named_with_what_to_do() -> None:
    context = Context("yarn", lacks=["pyarrow", "fsspec"])
    for _ in range(2):  # a session whose executors were mended may ask again
        with pytest.raises(ConfigError) as caught:
            check_python(context)
        message = str(caught.value)
        assert "the Python that executors run, python3, lacks pyarrow, fsspec" in message
        assert "set PYSPARK_PYTHON" in message
    with pytest.raises(ConfigError, match="No module named 'strandline'"):
        check_python(Context("yarn", lacks=["strandline"]))


def test_a_process_finds_what_it_can_import() -> None:
    assert missing_packages((*NEEDED, "no_such_package")) == ["no_such_package"]
