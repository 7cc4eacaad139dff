"""Tables whose base files, read by column names, would show nulls that they don't have: refused."""

from __future__ import annotations

import pytest

from strandline import LocalEngine, Table
from strandline.records.incomplete_files import BOOTSTRAPPED, DROPS_PARTITION_COLUMNS
from tests.strandline.write.tables import client, row, table
from timeline.errors import UnsupportedTableError
from timeline.instant import COMMIT
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CommitMetadata
from timeline.storage.local import LocalStorage


@pytest.fixture
def made(tmp_path):
    with client(tmp_path / "t", engine=LocalEngine()) as c:
        c.insert(table(row("a"), row("b")))
    return tmp_path / "t"


def set_property(base, name, value):
    properties = base / ".hoodie" / "hoodie.properties"
    properties.write_text(properties.read_text() + f"{name}={value}\n")


@pytest.mark.parametrize(
    ("name", "value"), [(BOOTSTRAPPED, "/elsewhere"), (DROPS_PARTITION_COLUMNS, "TRUE")]
)
def test_base_files_without_columns(made, name, value):
    set_property(made, name, value)
    with pytest.raises(UnsupportedTableError, match=name):
        Table(made).to_arrow()
    with client(made) as c, pytest.raises(UnsupportedTableError, match=name):
        c.upsert(table(row("a", ts=2)))


def alter(base, internal_schema):
    """Commit a schema as ALTER TABLE does: a commit of no files."""
    meta = TableMetaClient.open(LocalStorage(str(base)))
    last = meta.active_timeline().completed().instants[-1]
    written = meta.read(last)
    extra = {"schema": written.extra_metadata["schema"], "latest_schema": internal_schema}
    time = str(int(last.completion_time) + 1)
    instant = meta.transition_to_inflight(meta.create_requested(COMMIT, time))
    metadata = CommitMetadata({}, operation_type="ALTER_SCHEMA", extra_metadata=extra)
    meta.complete(instant, metadata, str(int(time) + 1))


def test_columns_that_are_known_by_ids(made):
    alter(made, '{"max_column_id":4,"type":"record","fields":[]}')
    with pytest.raises(UnsupportedTableError, match=r"latest_schema.*schema\.on\.read"):
        Table(made).to_arrow()
    with client(made) as c, pytest.raises(UnsupportedTableError, match="latest_schema"):
        c.upsert(table(row("a", ts=2)))


def test_an_empty_schema_of_ids_says_nothing(made):
    alter(made, "")
    assert Table(made).to_arrow().num_rows == 2
