"""A driver opens a client for each of many tables; the shared service holds those in use."""

from __future__ import annotations

import shutil

import pytest

from strandline.server.process.shared_service import SharedService
from tests.kit.tables import reader
from tests.strandline.server.process.services import wait_for_removals
from tests.strandline.write.tables import client, row, table

pytestmark = pytest.mark.property

ON = {"embed__timeline__server": True}
LINGER = "strandline.embed.timeline.server.linger.secs"


def test_tables_of_closed_clients_leave_the_service_of_an_open_one(tmp_path):
    with client(tmp_path / "long", **ON) as long:
        assert long.service
        long.upsert(table(row("a")))
        for number in range(6):
            base = tmp_path / str(number)
            with client(base, **ON) as c:
                assert c.service is long.service
                assert not c.upsert(table(row("a"), row("b", "us"))).fallbacks
            wait_for_removals(long.service)
            shutil.rmtree(base)
        status = long.service.status()
        assert status["roots"] == [str(tmp_path / "long")]
        assert list(status["tables"]) == [f"file://{tmp_path}/long"]
        assert not long.upsert(table(row("a", ts=2))).fallbacks
    assert not SharedService._shared


@pytest.mark.parametrize("linger_s", [0, 3600])
def test_a_table_that_is_deleted_and_created_anew_has_its_own_rows(tmp_path, linger_s):
    """Its service lives on: with another client, or as it lingers, which keeps the root."""
    base, options = tmp_path / "t", {**ON, LINGER: linger_s}
    with client(tmp_path / "long", **options) as long:
        long.upsert(table(row("a")))
        with client(base, **options) as c:
            for ts in (1, 2):
                c.upsert(table(row("a", ts=ts), row("b", "us")))
        if not linger_s:
            wait_for_removals(long.service)
        shutil.rmtree(base)
        with client(base, **options) as c:
            results = [
                c.upsert(table(row("b"), row("z", "asia"))),
                c.upsert(table(row("b", ts=2), row("z", "asia", ts=3), row("y", "us"))),
            ]
            assert c.service is long.service
        assert [result.fallbacks for result in results] == [(), ()]
        long.service._linger_s = 0
    assert {(r["id"], r["ts"]) for r in reader.rows(base)} == {("b", 2), ("z", 3), ("y", 1)}
    assert not SharedService._shared
