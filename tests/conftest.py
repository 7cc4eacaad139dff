"""For all tests: which of them take long, the warnings that PySpark gives of itself, figures."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

ROOT = Path(__file__).parent

# Tables of version 6 are in the zone of the machine, by Hudi's default; the recorded ones in UTC.
os.environ["TZ"] = "UTC"
time.tzset()

# Checks against models, faults at every step, services in processes of their own: `tox -e quick`
# leaves them out, and what Hypothesis tries.
LONG = {
    "benchmarks/test_markers.py",
    "benchmarks/test_stores.py",
    "benchmarks/test_view.py",
    "executor_proxy/test_lean_executor.py",
    "fsview/store/test_rocksdb_faults.py",
    "fsview/sync/test_timeline_diff.py",
    "fsview/test_machine.py",
    "fsview/test_pinned.py",
    "fsview/test_store_faults.py",
    "fsview/test_stores_machine.py",
    "strandline/clean/test_model.py",
    "strandline/service/test_first_questions.py",
    "strandline/service/test_golden_http.py",
    "strandline/service/test_service_faults.py",
    "strandline/service/process/test_timeline_service.py",
    "strandline/write/test_embedded.py",
    "strandline/write/test_faults.py",
}
LONG_TESTS = {
    "strandline/service/test_answers_bounded.py::test_what_is_kept_is_counted_with_its_key",
    "strandline/service/test_manifests.py::test_the_command_starts_and_is_ready",
    "strandline/service/http/test_connection.py::test_both_ways_answer_the_same_bytes",
    "strandline/service/test_pinned_http.py::test_a_client_from_before_a_hundred_commits_costs_nothing",
    "strandline/service/http/test_tls.py::test_an_embedded_service_speaks_https",
}

# Everybody else's warnings are errors (``filterwarnings`` in pyproject.toml).
OF_PYSPARK = (
    # collect() leaves the socket on which the JVM sends the rows to the garbage collector.
    "ignore:unclosed <socket.socket:ResourceWarning",
    # 3.5 compares versions with distutils, which setuptools stands in for.
    "ignore:distutils Version classes are deprecated:DeprecationWarning",
    # 3.5 and 4 turn frames into pandas with what pandas is going to take away.
    "ignore:is_(datetime64tz|categorical)_dtype is deprecated:DeprecationWarning",
    "ignore:The copy keyword is deprecated:DeprecationWarning",
    # 4.3 says so at every Arrow function; tox installs pandas 2, a developer may have 3.
    "ignore:PySpark does not yet fully support pandas:FutureWarning",
)


# No test depends on how fast or busy the machine is.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def is_long(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function) or not item.path.is_relative_to(ROOT):
        return False
    file = item.path.relative_to(ROOT).as_posix()
    return (
        file in LONG or f"{file}::{item.originalname}" in LONG_TESTS or is_hypothesis_test(item.obj)
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_long(item):
            item.add_marker(pytest.mark.property)
        if item.get_closest_marker("spark") or item.get_closest_marker("oracle"):
            for ignored in OF_PYSPARK:
                item.add_marker(pytest.mark.filterwarnings(ignored))


FIGURE = "figure"


@pytest.fixture
def report(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Return what says a line at the end of the run: a figure that a test found out."""
    return lambda line: record_property(FIGURE, line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for outcome in ("passed", "failed"):
        for done in terminalreporter.getreports(outcome):
            for name, line in done.user_properties:
                if name == FIGURE:
                    terminalreporter.write_line(str(line))
