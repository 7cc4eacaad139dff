"""The tests of this folder write to tables in memory."""

from pathlib import Path

import pytest

from tests.kit.short_runs import quick_runs
from tests.kit.tables.memory_dir import memory, tmp_path  # noqa: F401
from tests.strandline.write.logged_table import VERSION_6, write_logs
from tests.strandline.write.tables import row, stored, table


@pytest.fixture
def base(tmp_path):  # noqa: F811 - the fixture above
    """A table with two rows in two partitions."""
    return stored(tmp_path / "t", table(row("a"), row("b", "us")))


@pytest.fixture(scope="module", params=quick_runs([{}], [{}, VERSION_6]), ids=["v9", "v6"])
def version(request) -> dict:
    """Options that choose the table's version."""
    return request.param


@pytest.fixture(scope="module")
def written(tmp_path_factory, version) -> Path:
    """A table with logs, for tests that copy it."""
    return write_logs(tmp_path_factory.mktemp("written") / "t", version)
