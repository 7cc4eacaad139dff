"""One Spark session with Hudi's bundle for all oracle tests, a table of ours, a sum of walks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.oracle.hudi import Hudi, hudi_session
from tests.oracle.tables import FIRST, ours, writer
from tests.oracle.turns.walks import EVERYTHING, PARTS

_DONE = "done on a walk"


@pytest.fixture(scope="session")
def hudi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hudi]:
    with hudi_session(tmp_path_factory.mktemp("warehouse")) as session:
        yield session


@pytest.fixture
def path(tmp_path: Path, version: int) -> Path:
    """A table of ours with the first rows."""
    with writer(tmp_path / "rides", ours(version)) as client:
        client.insert(FIRST)
    return tmp_path / "rides"


@pytest.fixture
def done(
    record_property: Callable[[str, object], None],
) -> Callable[[str, Mapping[str, int]], None]:
    """Return a function that takes what was done how often on a walk."""
    return lambda walk, counts: record_property(_DONE, [walk, dict(counts)])


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_SumOfWalks())


class _SumOfWalks:
    """Fails a run of all walks that leave out something, whichever processes took them."""

    def __init__(self) -> None:
        self._done: dict[str, Counter[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties if report.when == "call" else ():
            if name == _DONE:
                walk, counts = value
                self._done[walk] = Counter(counts)

    def _missing(self) -> set[str]:
        """Return what no walk did; nothing if only some of the walks were chosen."""
        if self._done.keys() != PARTS:
            return set()
        return EVERYTHING - set(+sum(self._done.values(), Counter[str]()))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._missing() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for what in sorted(self._missing()):
            terminalreporter.write_line(f"no walk did this: {what}", red=True)
