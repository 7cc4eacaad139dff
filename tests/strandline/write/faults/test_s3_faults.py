"""Every HTTP request of every operation on an S3 server goes wrong, or is the client's last.

As ``test_faults``, one level below the storage's calls: one of these may make several requests, of
which some succeed, and s3fs sends some again. A conditional request that is sent again is refused
because of its own success.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from strandline.records.meta_fields import IS_DELETED
from tests.kit.concurrency.manual_clock import LaterClock
from tests.kit.servers.s3_server import S3Server, s3_server
from tests.kit.short_runs import stride
from tests.kit.storage.s3_faults import Request, RequestEffect
from tests.kit.tables import reader
from tests.strandline.write.faults.fault_scenarios import (
    LOGS,
    SCENARIOS,
    Options,
    Scenario,
    broken_off,
    by_running_client,
)
from tests.strandline.write.tables import client, row, table

pytestmark = pytest.mark.property

LOCK = {
    **SCENARIOS["insert, lock"].options,
    "write__lock__provider": "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider",
    "write__lock__filesystem__expire": None,
}
# Fewer rows than on a disk, because requests take longer: a new partition, and an update.
FAR, UPDATE = table(row("far", "asia")), table(row("a", ts=3))
BOTH = table(row("far", "asia"), row("new"))
BLOCKS = table(row("a", ts=3), row("b", ts=3)).append_column(IS_DELETED, [[False, True]])
"""A block of rows and one of deletes, each in a log of its own."""


def logged(base: Path, options: Options) -> None:
    """Make a table of one file group with a log."""
    with client(base, **options) as c:
        c.upsert(table(row("a"), row("b")))
        c.upsert(UPDATE)


COMPACTION = replace(SCENARIOS["compaction"], prepare=logged)
INSERT = replace(SCENARIOS["insert"], write=lambda c, look: c.insert(FAR))
OPERATIONS = {
    "first insert": replace(INSERT, prepare=SCENARIOS["first insert"].prepare),
    "insert": replace(SCENARIOS["insert"], write=lambda c, look: c.insert(BOTH)),
    "insert by a running client": replace(INSERT, write=by_running_client(INSERT.write, before=1)),
    "insert, lock": replace(INSERT, options=LOCK),
    "insert after a failed write": replace(
        INSERT, prepare=SCENARIOS["insert after a failed write"].prepare
    ),
    "bulk insert": replace(INSERT, write=lambda c, look: c.bulk_insert(FAR)),
    "upsert": replace(SCENARIOS["upsert"], write=lambda c, look: c.upsert(UPDATE)),
    "upsert, logs": replace(
        SCENARIOS["upsert, logs"],
        write=lambda c, look: c.upsert(table(row("a", ts=3), row("far", "asia"))),
    ),
    "upsert, logs, version 6": replace(
        SCENARIOS["upsert, logs, version 6"],
        write=lambda c, look: c.upsert(table(row("a", ts=3), row("far", "asia"))),
    ),
    "rollback of a delta commit, version 6": SCENARIOS["rollback of a delta commit, version 6"],
    "upsert of some blocks, logs": replace(
        SCENARIOS["flagged deletes, tiny logs"], write=lambda c, look: c.upsert(BLOCKS)
    ),
    "compaction": COMPACTION,
    "compaction, lock": replace(COMPACTION, options={**LOGS, **LOCK}),
    "compaction after a failed one": replace(COMPACTION, prepare=broken_off(COMPACTION, ".commit")),
    "rollback of a delta commit": SCENARIOS["rollback of a delta commit"],
    "delete": replace(SCENARIOS["delete"], write=lambda c, look: c.delete(UPDATE)),
    "rollback of a commit": SCENARIOS["rollback of a commit"],
    "clean": SCENARIOS["clean"],
}
CHANGES = frozenset({"PUT", "POST", "DELETE"})
ON_CHANGES = (
    RequestEffect.ERROR_BEFORE,
    RequestEffect.ERROR_AFTER,
    RequestEffect.CUT_AFTER,
    RequestEffect.GONE_BEFORE,
)
"""Tried on every request that changes something."""
SHORT = {
    # One operation stands for the others in what a request without an effect does.
    "insert": tuple(RequestEffect),
    "insert after a failed write": (RequestEffect.GONE_BEFORE,),
}
"""What runs on every change; `tox -e all` adds the other effects."""
TAKE_TURNS = (RequestEffect.ERROR_AFTER, RequestEffect.CUT_AFTER)
"""A request whose answer is lost is answered by an error or not at all; `tox -e all` tries both."""
OFTEN = (RequestEffect.ERROR_AFTER, RequestEffect.CUT_AFTER, RequestEffect.GONE_BEFORE)


@dataclass(frozen=True)
class Prepared:
    """A scenario's table, and what an undisturbed run on S3 makes of it.

    Attributes:
        saved: The table's files; ``None`` without a table.
        before, after, settled, repaired: As in ``test_faults``.
        log: The requests.
    """

    scenario: Scenario
    saved: Path | None
    before: tuple[Any, ...]
    after: Any
    settled: Any
    log: list[Request]
    repaired: set[tuple[bool, bytes]] = field(default_factory=set)

    def calls(self, effect: RequestEffect) -> list[int]:
        """Return the numbers, from 1, of the requests that an effect is tried on."""
        changing = [n for n, request in enumerate(self.log, 1) if request.method in CHANGES]
        if effect in TAKE_TURNS:
            step = stride(2)
            return changing[TAKE_TURNS.index(effect) % step :: step]
        if effect in ON_CHANGES:
            return changing
        if effect is RequestEffect.GONE_AFTER:
            return changing[-1:]  # otherwise it is the next request's GONE_BEFORE
        return [n for n, request in enumerate(self.log, 1) if request.length]


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as server:
        # Once for each endpoint: the trial whether it creates exclusively.
        server.single_try().create("tried")
        yield server


@pytest.fixture(scope="module")
def prepared_once(server: S3Server, memory: Path) -> Callable[[str], Prepared]:
    """What prepares an operation, once for all its effects."""
    return cache(lambda name: prepare(OPERATIONS[name], server, memory))


@pytest.fixture
def prepared(request: pytest.FixtureRequest, prepared_once: Callable[[str], Prepared]) -> Prepared:
    return prepared_once(request.param)


def prepare(scenario: Scenario, server: S3Server, memory: Path) -> Prepared:
    """Make an operation's table, and run it without a fault."""
    base = Path(tempfile.mkdtemp(dir=memory)) / "t"
    scenario.prepare(base, {**scenario.options, "write__lock__provider": None})
    saved = base if base.exists() else None
    table = Table(server, saved, memory)
    server.requests.begin({})
    assert scenario.attempt(table.storage, table.look, LaterClock())
    log, done = server.requests.log, table.look()
    rows = reader.rows(base)
    assert (rows, scenario.settled(base) if saved else None) != (
        reader.rows(done),
        scenario.settled(done),
    )
    before = (rows, rows or [])
    return Prepared(scenario, saved, before, reader.rows(done), scenario.settled(done), log)


class Table:
    """A copy of a scenario's table in a bucket of its own."""

    def __init__(self, server: S3Server, saved: Path | None, folder: Path) -> None:
        self.storage = server.single_try(saved)
        self._server = server
        self._seen = folder / "seen"

    def look(self) -> Path:
        """Return a local folder with the files as they are."""
        shutil.rmtree(self._seen, ignore_errors=True)
        return self._server.save(self.storage, self._seen)

    def has_listings(self) -> bool:
        """Return whether s3fs keeps listings of it, from which a client may go on otherwise."""
        bucket = self.storage._root.partition("/")[0]
        return any(path.partition("/")[0] == bucket for path in self.storage._fs.dircache)


def cases() -> Iterator[Any]:
    for name in OPERATIONS:
        for effect in RequestEffect:
            marks = () if effect in SHORT.get(name, OFTEN) else (pytest.mark.product,)
            yield pytest.param(name, effect, marks=marks, id=f"{name}-{effect.value}")


@pytest.mark.parametrize(("prepared", "effect"), [*cases()], indirect=["prepared"])
def test_readers_see_before_or_after_and_the_next_write_repairs(
    prepared: Prepared, effect: RequestEffect, server: S3Server, memory: Path
) -> None:
    scenario = prepared.scenario
    calls = prepared.calls(effect)
    assert calls
    for at in calls:
        table = Table(server, prepared.saved, memory)
        where = f"{effect.value}, request {at}: {prepared.log[at - 1]}"
        server.requests.begin({at: effect})
        happened = scenario.attempt(table.storage, table.look, LaterClock())
        assert server.requests.fired == 1, where
        server.requests.begin({})
        seen = table.look()
        rows = reader.rows(seen)
        if happened is None:
            assert rows in (*prepared.before, prepared.after), where
            happened = rows == prepared.after
        else:
            assert rows == prepared.after if happened else rows in prepared.before, where
        left = (happened, reader.state(seen))
        if left in prepared.repaired and not table.has_listings():
            continue
        scenario.finish(table.storage, table.look, LaterClock(hours=2), happened=happened)
        done = table.look()
        assert reader.rows(done) == prepared.after, where
        assert scenario.settled(done) == prepared.settled, where
        assert reader.leftovers(done) == [], where
        prepared.repaired.add(left)
