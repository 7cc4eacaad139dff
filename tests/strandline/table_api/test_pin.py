"""``Table.pin``: rows that stay readable while writers clean and archive, and who holds them."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline import Table
from strandline.read.state.reader_lease import LEASE_FOLDER
from strandline.table_services.clean.policy import POLICIES
from tests.strandline.write.tables import client, row, table
from timeline.errors import InputError, LeaseError
from timeline.instant import CLEAN
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import ActionInstant, CleanerPlan
from timeline.storage.local import LocalStorage

GREEDY = {
    "KEEP_LATEST_COMMITS": {"clean__commits__retained": 1},
    "KEEP_LATEST_BY_HOURS": {"clean__hours__retained": 1},
    "KEEP_LATEST_FILE_VERSIONS": {"clean__fileversions__retained": 1},
}


def writer(base: Path, policy: str = POLICIES[0], **options: object):
    chosen = {"clean__automatic": "true", "clean__policy": policy, **GREEDY[policy], **options}
    return client(base, **chosen)


def times(found: Table) -> list[int]:
    return sorted(found.scan(["ts"]).to_arrow().column("ts").to_pylist())


@pytest.mark.property
@pytest.mark.parametrize("version", ["6", "9"])
@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_pinned_stays_readable_across_cleans(tmp_path, policy, version):
    base = tmp_path / "t"
    with writer(base, policy, write__table__version=version) as c:
        for n in range(3):
            c.upsert(table(row("a", ts=n)))
        found = Table(base)
        with found.pin() as pinned:
            files = set(found.files().column("path").to_pylist())
            scan = pinned.scan(["ts"])
            for n in range(3, 9):
                assert not c.upsert(table(row("a", ts=n))).warnings
            assert scan.to_arrow().column("ts").to_pylist() == [2]
            assert pinned.scan(["ts"]).to_arrow().column("ts").to_pylist() == [2]
            assert times(found) == [8]
            (file,) = files
            kept = found.why(file, policy, 1)
            if policy != "KEEP_LATEST_BY_HOURS":  # all is younger than an hour
                assert kept.reason.startswith(f"held by the lease {pinned.id} of process ")
            assert (kept.is_there, kept.goes) == (True, False)
            assert not [
                each
                for each in found.cleanable(policy, 1).files.column("file").to_pylist()
                if each == file.rpartition("/")[2]
            ]
        assert not (base / LEASE_FOLDER / pinned.id).exists()
        c.upsert(table(row("a", ts=9)))
        if policy != "KEEP_LATEST_BY_HOURS":
            assert not found.why(file, policy, 1).is_there


@pytest.mark.property
def test_an_earlier_instant_can_be_pinned(tmp_path):
    base = tmp_path / "t"
    with writer(base, clean__commits__retained=3) as c:
        for n in range(4):
            c.upsert(table(row("a", ts=n)))
        found = Table(base)
        writes = found._meta.active_timeline().write_timeline()
        commits = [instant.requested_time for instant in writes]
        with found.pin(commits[-2]) as pinned:
            assert pinned.instant == commits[-2]
            for n in range(4, 9):
                c.upsert(table(row("a", ts=n)))
            assert pinned.to_arrow(["ts"]).column("ts").to_pylist() == [2]
            with pytest.raises(InputError, match="as_of"), found.pin(commits[0]):
                pass
        for n in range(9, 12):
            c.upsert(table(row("a", ts=n)))
        with pytest.raises(InputError, match=f"as_of {commits[-2]} is before"):
            found.scan(as_of=commits[-2])


@pytest.mark.property
def test_archival_stops_before_a_lease(tmp_path):
    base = tmp_path / "t"
    options = {"keep__min__commits": 3, "keep__max__commits": 4}
    with writer(base, **options) as c:
        for n in range(2):
            c.upsert(table(row("a", ts=n)))
        found = Table(base)
        with found.pin() as pinned:
            for n in range(2, 12):
                c.upsert(table(row("a", ts=n)))
            assert found.archivable(3, 4) == ()
            active = found._meta.active_timeline()
            assert active.find(pinned.instant).is_completed
        c.upsert(table(row("a", ts=12)))
        c.upsert(table(row("a", ts=13)))
        assert len(found._meta.active_timeline().write_timeline()) <= 5


def test_leases_are_listed_and_revoked(tmp_path):
    base = tmp_path / "t"
    with writer(base) as c:
        c.upsert(table(row("a", ts=0)))
        found = Table(base)
        assert found.pins().num_rows == 0
        with found.pin(ttl=60) as pinned, found.pin() as other:
            rows = {each["id"]: each for each in found.pins().to_pylist()}
            assert set(rows) == {pinned.id, other.id}
            mine = rows[pinned.id]
            assert mine["instant"] == mine["earliest"] == pinned.instant
            assert (mine["expires_at"] - mine["renewed_at"]).total_seconds() == 60
            assert mine["holder"].startswith("process ")
            assert mine["problem"] is None
            assert found.revoke(pinned.id)
            assert not found.revoke(pinned.id)
            assert [each["id"] for each in found.pins().to_pylist()] == [other.id]
            assert pinned.is_held  # until it is renewed
        with pytest.raises(LeaseError, match="was released"):
            pinned.scan()
        with pytest.raises(LeaseError, match="was released"):
            pinned.check()
        assert found.pins().num_rows == 0


def test_a_clean_of_hudis_makes_reading_an_error_and_never_fewer_rows(tmp_path):
    base = tmp_path / "t"
    with writer(base, clean__automatic="false") as c:
        c.upsert(table(row("a", ts=0)))
        with Table(base).pin() as pinned:
            for n in range(1, 3):
                c.upsert(table(row("a", ts=n)))
            meta = TableMetaClient.open(LocalStorage(str(base)))
            newest = meta.active_timeline().write_timeline().completed().last
            kept = ActionInstant(newest.requested_time, "commit", "COMPLETED")
            time = f"{int(newest.requested_time) + 1}"
            meta.create_requested(CLEAN, time, CleanerPlan(earliest_instant_to_retain=kept))
            with pytest.raises(LeaseError, match=f"{time}.* retains only what readers at"):
                pinned.scan()


def test_the_block_ends_its_lease_when_it_fails(tmp_path):
    base = tmp_path / "t"
    with writer(base) as c:
        c.upsert(table(row("a", ts=0)))
    found = Table(base)
    with pytest.raises(ZeroDivisionError), found.pin():
        raise ZeroDivisionError
    assert found.pins().num_rows == 0
    with pytest.raises(InputError, match="ttl is 1; allowed"), found.pin(ttl=1):
        pass
    assert found.pins().num_rows == 0
