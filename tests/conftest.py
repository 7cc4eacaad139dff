"""For all tests: what `tox -e quick` leaves out, PySpark's own warnings, figures in the summary."""

from __future__ import annotations

import gc
import importlib
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from tests.kit.tables.products import ALL, COVERING, TELLING

if TYPE_CHECKING:
    from tests.kit.servers.s3_server import S3Endpoint

# Instants of version 6 are in the machine's time zone by default; the golden tables are in UTC.
os.environ["TZ"] = "UTC"
time.tzset()

# Temporary files are in memory where there is room: on a disk, tests wait for each to be durable.
# Nothing of tests that passed is kept (``tmp_path_retention_policy`` in pyproject.toml).
_MEMORY, _ROOM = "/dev/shm", 4 << 30
if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _ROOM:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY)

# All other warnings are errors (``filterwarnings`` in pyproject.toml).
OF_PYSPARK = (
    # collect() leaves the socket of the JVM's rows to the garbage collector.
    "ignore:unclosed <socket.socket:ResourceWarning",
    # 3.5 compares versions with distutils, which setuptools provides.
    "ignore:distutils Version classes are deprecated:DeprecationWarning",
    # 3.5 and 4 convert frames with pandas functions that are deprecated.
    "ignore:is_(datetime64tz|categorical)_dtype is deprecated:DeprecationWarning",
    "ignore:The copy keyword is deprecated:DeprecationWarning",
    # 4.3 warns at every Arrow function; tox installs pandas 2, a developer may have 3.
    "ignore:PySpark does not yet fully support pandas:FutureWarning",
)

# No test depends on how fast or busy the machine is. `tox -e all` draws more examples.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("few", UNTIMED, max_examples=40)
settings.register_profile("many", UNTIMED, max_examples=100)
settings.load_profile("few")


WHOLE = "\npytestmark = pytest.mark.property\n"
"""The line of a file whose tests are all marked ``property``."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--s3-server",
        default="tests.kit.servers.s3_server",
        help="the module whose s3_server() runs the server of the tests marked s3",
    )
    parser.addoption("--spark-master", default="local[2,2]", help="where the Spark tests run")


@pytest.fixture(scope="session")
def open_s3(request: pytest.FixtureRequest) -> Callable[..., AbstractContextManager[S3Endpoint]]:
    """Return what runs an S3 server; ``watch`` is called at each request, as in moto's."""
    module: Any = importlib.import_module(request.config.getoption("--s3-server"))
    return module.s3_server


@pytest.fixture(scope="module")
def s3(open_s3: Callable[..., AbstractContextManager[S3Endpoint]]) -> Iterator[S3Endpoint]:
    """Run an S3 server for the module's tests."""
    with open_s3() as server:
        yield server


def other_scenarios(items: list[pytest.Item], kept: Collection[str]) -> Iterator[pytest.Item]:
    """Yield the cases on golden tables that aren't ``kept``.

    Of a test that has none of the kept scenarios the first case stays.
    """
    tests = defaultdict(list)
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        if params.get("scenario") in ALL:
            tests[item.parent, item.originalname].append(item)
    for cases in tests.values():
        those = [case for case in cases if case.callspec.params["scenario"] in kept] or cases[:1]
        yield from (case for case in cases if case not in those)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Don't import files of which `tox -e quick` runs nothing: that takes a third of collecting."""
    if collection_path.suffix == ".py" and "not property" in config.option.markexpr:
        return WHOLE in collection_path.read_text("utf-8") or None
    return None


def pytest_pycollect_makeitem(
    collector: pytest.Collector, name: str, obj: object
) -> list[pytest.Item] | None:
    """Make no items of functions and classes of which `tox -e quick` runs nothing.

    They would be two fifths of all. And if none is Hypothesis', its plugin doesn't read the
    constants of all modules.
    """
    is_quick = "not property" in collector.config.option.markexpr
    if not is_quick or not isinstance(obj, FunctionType | type):
        return None
    marks = getattr(obj, "pytestmark", ())
    is_long = is_hypothesis_test(obj) or any(mark.name == "property" for mark in marks)
    return [] if is_long else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without garbage collection, and exempt their objects from it afterwards.

    Thousands of tests are a million objects that live as long as the run. Traversing them takes a
    quarter of the time of collecting the tests, and 0.2 s in each ``gc.collect`` of a test.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in other_scenarios(items, TELLING):
        item.add_marker(pytest.mark.property)
    for item in other_scenarios(items, COVERING):
        item.add_marker(pytest.mark.product)
    for item in items:
        if isinstance(item, pytest.Function) and is_hypothesis_test(item.obj):
            item.add_marker(pytest.mark.property)
        if any(item.get_closest_marker(name) for name in ("spark", "oracle", "fleet")):
            for ignored in OF_PYSPARK:
                item.add_marker(pytest.mark.filterwarnings(ignored))


FIGURE = "figure"


@pytest.fixture
def report(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Return a function that adds a line with a measured figure to the run's summary."""
    return lambda line: record_property(FIGURE, line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for outcome in ("passed", "failed"):
        for done in terminalreporter.getreports(outcome):
            for name, line in done.user_properties:
                if name == FIGURE:
                    terminalreporter.write_line(str(line))
