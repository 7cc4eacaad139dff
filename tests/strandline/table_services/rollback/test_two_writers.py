"""Two writers at once, of which the second takes the first for dead: no committed row is lost.

The first is alive, as if it had been suspended, or as if the clocks differed. The writers'
storage calls are interleaved by every schedule of few turns; a third write repairs what is left. A
write that was acknowledged must be in the table, one that failed must not.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strandline.commit.lock.base import TableLock
from tests.kit.concurrency.interleaving import Interleaving, TurnLock
from tests.kit.concurrency.manual_clock import LaterClock
from tests.kit.short_runs import examples
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables import reader
from tests.strandline.write.tables import client, row, table
from timeline.clock import SystemClock
from timeline.errors import CommitOutcomeUnknownError, ConcurrentWriteError, StrandlineError

pytestmark = pytest.mark.property


def real_ms() -> int:
    return SystemClock().now_ms()


@pytest.fixture(scope="module", params=[6, 9], ids=["v6", "v9"])
def table_files(request):
    """The files of a table with one row."""
    storage = MemoryStorage(now_ms=real_ms)
    with client("/memory/t", storage, write__table__version=request.param) as c:
        c.upsert(table(row("old", "eu"), row("other", "us")))
    return dict(storage.files)


def seen_in(storage):
    """Return the rows that readers see, what is left over, and the state of the files."""
    base = Path(tempfile.mkdtemp(dir="/dev/shm"))
    try:
        for path, (data, _) in storage.files.items():
            target = base / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        rows = {(each["id"], each["ts"]) for each in reader.rows(base)}
        return rows, reader.leftovers(base), reader.state(base)
    finally:
        shutil.rmtree(base)


def writer(storage, clock, interleaving=None, holders=None):
    """Return a client whose waits, for a lock and for another writer, pass the turn on."""
    made = client("/memory/t", storage, clock=clock)
    if interleaving is None:
        return made
    context = replace(made._context, wait=lambda seconds: interleaving.let_other_run())
    if holders is not None:
        context = replace(context, lock=TableLock(TurnLock(interleaving, holders)))
    made._context = context
    return made


def run(table_files, schedule, *, locked, repaired):
    """Run the two writers and the third; return how many calls each made.

    ``repaired`` has the outcomes after which the third has put everything right, so that it isn't
    run again; of those of this run it gets the new one.
    """
    storage = MemoryStorage(now_ms=real_ms)
    storage.files = dict(table_files)
    interleaving = Interleaving(storage, schedule)
    holders: list[object] | None = [] if locked else None
    first = writer(storage, SystemClock(), interleaving, holders)
    second = writer(storage, LaterClock(), interleaving, holders)
    results = interleaving.run(
        lambda: first.upsert(table(row("old", "eu", ts=2), row("first", "eu"))),
        lambda: second.upsert(table(row("other", "us", ts=2), row("second", "us"))),
    )
    wanted, unwanted = [], []
    written = [{("old", 2), ("first", 1)}, {("other", 2), ("second", 1)}]
    for result, rows in zip(results, written, strict=True):
        if isinstance(result, CommitOutcomeUnknownError):
            continue
        if isinstance(result, Exception) and not isinstance(result, StrandlineError):
            raise result
        (unwanted if isinstance(result, Exception) else wanted).append(rows)
    found, _, state = seen_in(storage)
    for rows in wanted:
        assert rows <= found, (schedule, results)
    outcome = (repr((wanted, unwanted)), state)
    if outcome in repaired:
        return interleaving.calls, results
    with writer(storage, LaterClock()) as third:
        third.upsert(table(row("third", "asia")))
    found, left, _ = seen_in(storage)
    for rows in wanted:
        assert rows <= found, (schedule, results)
    for rows in unwanted:
        assert not rows & found, (schedule, results)
    assert left == [], (schedule, results)
    repaired.add(outcome)
    return interleaving.calls, results


@pytest.mark.parametrize(
    ("table_files", "locked"),
    [
        # Each version and each way of locking on every change; the other pairs in `tox -e all`.
        pytest.param(6, False, id="v6-no lock"),
        pytest.param(9, True, id="v9-lock"),
        pytest.param(6, True, id="v6-lock", marks=pytest.mark.product),
        pytest.param(9, False, id="v9-no lock", marks=pytest.mark.product),
    ],
    indirect=["table_files"],
)
def test_every_schedule_of_two_turns(table_files, locked):
    """The first stops at its calls from the request on, the second anywhere in its repair."""
    repaired: set[tuple[str, bytes]] = set()
    (before, _), _ = run(table_files, (1000,), locked=locked, repaired=repaired)
    rolled_back = 0
    for at in range(6, before, 2):
        for back in range(4, 32):
            _, results = run(table_files, (at, back), locked=locked, repaired=repaired)
            rolled_back += bool(getattr(results[1], "rolled_back", ()))
    assert rolled_back > 100


@settings(max_examples=examples(60))
@example(schedule=[1, 1, 7, 7, 12, 6], locked=False)  # a heartbeat was deleted before its inflight
@given(schedule=st.lists(st.integers(1, 12), min_size=2, max_size=12), locked=st.booleans())
def test_schedules_of_many_turns(table_files, schedule, locked):
    run(table_files, tuple(schedule), locked=locked, repaired=set())


@pytest.mark.parametrize("back", [13, 16])
def test_a_rollback_requested_before_the_first_look_is_seen(table_files, back):
    """The commit's own timeline, read after it was requested, shows the rollback already."""
    _, (first, second) = run(table_files, (7, back), locked=False, repaired=set())
    assert isinstance(first, ConcurrentWriteError)
    assert len(second.rolled_back) == 1
