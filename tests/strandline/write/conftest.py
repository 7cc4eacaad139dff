"""The tests of this folder write to tables in memory."""

import pytest

from tests.kit.tables.memory_dir import memory, tmp_path  # noqa: F401
from tests.strandline.write.tables import client, row, table


@pytest.fixture
def base(tmp_path):  # noqa: F811 - the fixture above
    """A table with two rows in two partitions."""
    with client(tmp_path / "t") as c:
        c.upsert(table(row("a"), row("b", "us")))
    return tmp_path / "t"
