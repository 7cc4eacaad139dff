"""Tables that a write refuses: by name, and before anything is written."""

from __future__ import annotations

import pytest

from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import reader
from tests.strandline.write.refusals import refused
from tests.strandline.write.tables import change_properties, client, row, table
from timeline.errors import CorruptMetadataError, UnsupportedTableError

UNSUPPORTED = {
    "newer version": ({"table__version": "10"}, "10"),
    "metadata table": ({"table__metadata__partitions": "files"}, "metadata table"),
    "keys for deletes": ({"table__keygenerator__type": "GLOBAL_DELETE"}, "GLOBAL_DELETE"),
    "no meta columns": ({"populate__meta__fields": "false"}, "meta columns"),
    "buckets that are resized": (
        {"index__type": "BUCKET", "index__bucket__engine": "CONSISTENT_HASHING"},
        "of the table's properties, hoodie.index.bucket.engine is 'CONSISTENT_HASHING'",
    ),
    "custom merging": ({"record__merge__mode": "CUSTOM"}, "custom class"),
    "orc": ({"table__base__file__format": "ORC"}, "orc"),
    "change data capture": ({"table__cdc__enabled": "true"}, "cdc"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_tables_that_can_not_be_written(base, case):
    changes, match = UNSUPPORTED[case]
    change_properties(base, **changes)
    refused(base, UnsupportedTableError, match)


def test_a_table_whose_keys_are_generated(base):
    path = base / ".hoodie" / "hoodie.properties"
    text = path.read_text()
    path.write_text(
        "".join(line for line in text.splitlines(True) if "recordkey.fields" not in line)
    )
    options = {"datasource__write__recordkey__field": None}
    refused(base, UnsupportedTableError, "no record key columns", **options)


def test_corrupt_properties(base):
    path = base / ".hoodie" / "hoodie.properties"
    path.write_text("hoodie.table.name=\n")
    refused(base, CorruptMetadataError, r"hoodie\.properties")
    path.write_bytes(b"")
    refused(base, CorruptMetadataError, r"hoodie\.properties")


@pytest.mark.parametrize("version", [6, 9])
def test_a_timeline_without_properties(tmp_path, version):
    """A table that lost its properties is no new table."""
    base, options = tmp_path / "t", {"hoodie.write.table.version": version}
    with client(base, **options) as c:
        c.upsert(table(row("a")))
    (base / ".hoodie" / "hoodie.properties").unlink()
    refused(base, CorruptMetadataError, "hoodie.properties is missing")
    refused(base, CorruptMetadataError, "hoodie.properties is missing", **options)


def test_a_table_that_another_writer_creates_meanwhile_has_its_properties(tmp_path):
    """They were missing when they were read, before the timeline was. (#32)"""
    base, created = tmp_path / "t", []

    def create(kind, path):
        if kind == "list" and not created:
            with client(base) as other:
                created.append(other.upsert(table(row("a"))))

    with client(base, HookedStorage(base, create)) as c:
        c.upsert(table(row("b")))
    assert len(created) == 1
    assert [each["id"] for each in reader.rows(base)] == ["a", "b"]


def test_a_wrong_checksum(base):
    change_properties(base, table__checksum="1")
    refused(base, CorruptMetadataError, "checksum")


@pytest.mark.parametrize("version", [6, 9])
def test_a_truncated_commit(tmp_path, version):
    base = tmp_path / "t"
    with client(base, write__table__version=version) as c:
        c.upsert(table(row("a")))
    (instant,) = base.rglob("*.commit")
    instant.write_bytes(instant.read_bytes()[:-40])
    refused(base, CorruptMetadataError, instant.name)


@pytest.mark.parametrize("version", [6, 9])
def test_a_commit_cut_down_to_nothing(tmp_path, version):
    with client(tmp_path / "t", **{"hoodie.write.table.version": version}) as c:
        c.upsert(table(row("a")))
    (commit,) = (tmp_path / "t" / ".hoodie").rglob("*.commit")
    commit.write_bytes(b"")
    refused(tmp_path / "t", CorruptMetadataError, f"{commit} doesn't say")


def test_a_truncated_plan_of_a_rollback(base):
    with client(base) as c:
        last = c.upsert(table(row("a", ts=2)))
        c.rollback(last.instant)
    (completed,) = base.rglob("*.rollback")
    completed.unlink()
    (plan,) = base.rglob("*.rollback.requested")
    plan.write_bytes(plan.read_bytes()[:-40])
    refused(base, CorruptMetadataError, plan.name)


def test_an_unfinished_restore(base):
    (base / ".hoodie" / "timeline" / "20990101000000000.restore.requested").touch()
    refused(base, UnsupportedTableError, "unfinished restore, 20990101000000000")
