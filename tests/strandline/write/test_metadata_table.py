"""Writes to tables with a metadata table: refused, or the metadata table is dropped first."""

from __future__ import annotations

import logging
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from fsview.load.metadata_table import FOLDER
from tests.kit.concurrency.manual_clock import LaterClock
from tests.kit.storage.faulty_storage import READS, Crash, Effect, Fault, FaultyStorage
from tests.kit.storage.hooked_storage import HookedStorage
from tests.kit.tables import reader
from tests.strandline.write.tables import client, give_metadata_table, row, stored, table
from timeline.errors import (
    ConcurrentWriteError,
    InputError,
    StrandlineError,
    UnsupportedTableError,
)
from timeline.storage.local import LocalStorage
from timeline.table.config_file import BACKUP_PATH, read_table_config

DROPPING = {"metadata__enable": "false"}
LOCK = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"


def is_named(base: Path) -> bool:
    return bool(read_table_config(LocalStorage(str(base))).named_metadata_partitions)


def content(base: Path) -> dict[str, bytes]:
    return {str(p.relative_to(base)): p.read_bytes() for p in base.rglob("*") if p.is_file()}


def names(base: Path) -> list[str]:
    return [each["name"] for each in reader.rows(base)]


@pytest.fixture(params=[6, 9])
def base(request, tmp_path):
    batches = table(row("a"), row("b", "us")), table(row("b", "us", ts=2))
    stored(tmp_path / "t", *batches, write__table__version=request.param)
    give_metadata_table(tmp_path / "t")
    return tmp_path / "t"


def test_a_metadata_table_is_refused_unless_the_option_is_set(base):
    before = content(base)
    with client(base) as c, pytest.raises(UnsupportedTableError, match="metadata table") as caught:
        c.upsert(table(row("a", ts=2)))
    for said in ("column_stats,files", "hoodie.metadata.enable=false", "write.lock.provider"):
        assert said in str(caught.value)
    assert content(base) == before


@pytest.mark.parametrize("lock", [{}, {"write__lock__provider": LOCK}])
def test_an_upsert_drops_the_metadata_table_and_names_its_indexes(base, lock, caplog):
    with client(base, **DROPPING, **lock) as c, caplog.at_level(logging.WARNING):
        c.upsert(table(row("a", ts=2)))
        assert not is_named(base)
        assert not (base / FOLDER).exists()
        (record,) = caplog.records
        assert "indexes dropped with it: column_stats" in record.getMessage()
        c.upsert(table(row("a", ts=3)))
    assert names(base) == ["a@3", "b@2"]
    assert len(caplog.records) == 1


def test_rows_that_are_refused_leave_the_metadata_table(base):
    before = content(base)
    with client(base, **DROPPING) as c, pytest.raises(InputError):
        c.upsert(table(row(None)))
    assert content(base) == before


@pytest.mark.parametrize("service", ["clean", "rollback"])
def test_cleans_and_rollbacks_drop_the_metadata_table_too(base, service):
    with client(base, **DROPPING, clean__commits__retained=1) as c:
        arguments = [max(reader.committed(base))] if service == "rollback" else []
        getattr(c, service)(*arguments)
    assert not is_named(base)
    assert not (base / FOLDER).exists()


def test_a_commit_fails_if_another_writer_has_built_the_metadata_table_anew(base):
    rebuilt = []

    def rebuild(kind: str, path: str) -> None:
        if kind == "create" and path.endswith(".inflight") and not rebuilt:
            rebuilt.append(path)
            give_metadata_table(base)

    storage = HookedStorage(base, after=rebuild)
    with client(base, storage, **DROPPING) as c:
        before = reader.committed(base)
        with pytest.raises(ConcurrentWriteError, match=r"column_stats, files") as caught:
            c.upsert(table(row("a", ts=2)))
        assert rebuilt
        assert "hoodie.metadata.enable=false" in str(caught.value)
        assert reader.committed(base) == before
        assert is_named(base)
        # The failed write of ours doesn't keep the next one from dropping it.
        c.upsert(table(row("a", ts=3)))
    assert names(base) == ["a@3", "b@2"]
    assert not is_named(base)
    assert reader.leftovers(base) == []


@pytest.mark.property
@pytest.mark.parametrize("effect", [Effect.ERROR_BEFORE, Effect.ERROR_AFTER, Effect.CRASH_TORN])
def test_no_fault_leaves_a_commit_beside_a_metadata_table(base, effect, tmp_path):
    """No commit of ours is ever visible while the properties name a metadata table."""
    whole = tmp_path / "whole"
    shutil.copytree(base, whole)
    learned = FaultyStorage(LocalStorage(str(whole)))
    with client(whole, learned, clock=LaterClock(), **DROPPING) as c:
        c.upsert(table(row("a", ts=5)))
    mended: set[bytes] = set()
    changing = [at for at, (kind, _) in enumerate(learned.log, 1) if kind not in READS]
    for at in changing:
        copy = tmp_path / str(at)
        shutil.copytree(base, copy)
        commits = reader.committed(copy)
        where = f"{effect.value} call {at}, {' '.join(learned.log[at - 1])}"
        failing = client(
            copy,
            FaultyStorage(LocalStorage(str(copy)), [Fault(at, effect)]),
            clock=LaterClock(),
            **DROPPING,
        )
        with suppress(Crash, StrandlineError):
            failing.upsert(table(row("a", ts=5)))
        if reader.committed(copy) != commits:
            assert not is_named(copy), where
            assert names(copy) == ["a@5", "b@2"], where
        else:
            assert names(copy) == ["a@1", "b@2"], where
        left = reader.state(copy)
        if left not in mended:
            with client(copy, clock=LaterClock(), **DROPPING) as c:
                c.upsert(table(row("a", ts=5)))
            assert names(copy) == ["a@5", "b@2"], where
            assert not is_named(copy), where
            assert not (copy / FOLDER).exists(), where
            assert not (copy / BACKUP_PATH).exists(), where
            mended.add(left)
        shutil.rmtree(copy)
