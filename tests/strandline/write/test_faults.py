"""Every storage call of a write fails, or the process dies there: readers see the rows as before or
as after.

Each scenario is run once to learn its storage calls, then once for every call and way to fail.
After the fault a naive reader (``tests.kit.reader``) must see the rows as before or as after; then
the next write, the same one again, must end with the rows as after and no leftovers.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from strandline.write.engine import LocalEngine
from tests.kit import reader
from tests.kit.faulty_storage import Crash, Effect, Fault, FaultyStorage, distinct_calls
from tests.kit.manual_clock import LaterClock
from tests.strandline.write.tables import client, row, table
from timeline.errors import StrandlineError
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.property


@dataclass(frozen=True)
class Scenario:
    """A table as it was, and one more write to it.

    ``prepare(base, options)`` makes the table; ``write(client, base)`` is what is going to fail.
    """

    prepare: Callable
    write: Callable
    options: dict
    effects: tuple = tuple(Effect)


def _two_commits(base, options):
    with client(base, **options) as c:
        c.upsert(table(row("a"), row("b"), row("c", "us")))
        c.upsert(table(row("b", ts=2)))


def _failed_write(base, options):
    """A writer that died between its data files and the completed instant."""
    _two_commits(base, options)
    storage = FaultyStorage(LocalStorage(str(base)), [])
    with client(base, storage, **options) as c:
        c.upsert(NEXT)
    name = next(n for n in reader.timeline_names(base)[::-1] if n.endswith(".commit"))
    at = next(i for i, (kind, path) in enumerate(storage.log, 1) if path.endswith(name))
    shutil.rmtree(base)
    _two_commits(base, options)
    with pytest.raises(Crash), client(base, _faulty(base, at, Effect.CRASH_BEFORE), **options) as c:
        c.upsert(NEXT)
    assert reader.leftovers(base)


def _four_commits(base, options):
    with client(base, **options) as c:
        for ts in range(1, 5):
            c.upsert(table(row("a", ts=ts), row("c", "us", ts=ts)))


def _roll_back(c, base):
    """Roll the second commit back; if that is done, finish with a write without rows."""
    commits = sorted(reader.committed(base))
    if len(commits) == 2:
        c.rollback(commits[-1])
    else:
        c.upsert(table())


NEXT = table(row("a", ts=3), row("new"), row("far", "asia"), row("c", "us", ts=0))
UPSERT = Scenario(_two_commits, lambda c, base: c.upsert(NEXT), {})
SCENARIOS = {
    "first write": Scenario(lambda base, options: None, lambda c, base: c.upsert(NEXT), {}),
    "upsert": UPSERT,
    # The steps are the same, so the errors of one version stand for those of the others.
    "upsert, version 6": Scenario(
        UPSERT.prepare,
        UPSERT.write,
        {"write__table__version": 6},
        (Effect.CRASH_BEFORE, Effect.CRASH_TORN),
    ),
    "upsert after a failed write": Scenario(_failed_write, UPSERT.write, {}),
    "upsert and clean": Scenario(
        _four_commits,
        lambda c, base: c.upsert(table(row("a", ts=9), row("c", "us", ts=9))),
        {"clean__automatic": True, "clean__commits__retained": 1},
    ),
    "upsert with the service's markers": Scenario(
        _two_commits,
        UPSERT.write,
        {"embed__timeline__server": True, "write__markers__type": "TIMELINE_SERVER_BASED"},
    ),
    "delete": Scenario(
        _two_commits, lambda c, base: c.delete(table(row("a"), row("b"), row("nobody", "us"))), {}
    ),
    "rollback of a commit": Scenario(_two_commits, _roll_back, {}),
}


def _faulty(base, at, effect):
    return FaultyStorage(LocalStorage(str(base)), [Fault(at, effect)])


FAULTS = [
    pytest.param(name, effect, id=f"{name}-{effect.value}")
    for name, scenario in SCENARIOS.items()
    for effect in scenario.effects
]


@pytest.fixture(scope="module")
def prepared(request, memory):
    """(scenario, the table as it was, rows before, rows after, storage calls)."""
    scenario = SCENARIOS[request.param]
    # A folder of its own: a scenario is prepared again where its tests are dealt to two workers.
    before = Path(tempfile.mkdtemp(dir=memory)) / "t"
    scenario.prepare(before, scenario.options)
    rows_before = reader.rows(before)
    whole = before.with_name("whole")
    if before.exists():
        shutil.copytree(before, whole)
    storage = FaultyStorage(LocalStorage(str(whole)))
    with client(whole, storage, clock=LaterClock(), **scenario.options) as c:
        scenario.write(c, whole)
    rows_after = reader.rows(whole)
    assert rows_after != rows_before
    assert reader.leftovers(whole) == []
    # Holds the service, which all its writes then share.
    with client(before, **scenario.options) as holder:
        assert bool(holder.service) == ("embed__timeline__server" in scenario.options)
        yield scenario, before, rows_before, rows_after, storage.log


@pytest.mark.parametrize(("prepared", "effect"), FAULTS, indirect=["prepared"])
def test_readers_see_before_or_after_and_the_next_write_repairs(prepared, effect, memory):
    scenario, before, rows_before, rows_after, log = prepared
    calls = list(distinct_calls(log, effect))
    assert calls
    for at in calls:
        base = memory / str(at)
        if before.exists():
            shutil.copytree(before, base)
        where = f"{effect.value} call {at}, {' '.join(log[at - 1])}"
        storage = _faulty(base, at, effect)
        # Heartbeats of a write that died before, or whose outcome is unknown, have expired.
        failing = client(base, storage, clock=LaterClock(), **scenario.options)
        try:
            scenario.write(failing, base)
        except (Crash, StrandlineError):
            # A table that is there but holds no commit yet has no rows: as good as none.
            assert (reader.rows(base) or None) in (rows_before, rows_after), where
        else:
            # Only what comes after the commit may fail and yet the write succeed.
            assert reader.rows(base) == rows_after, where
        failing.close()
        usable = None if storage.crashed else storage
        failing = client(base, usable, clock=LaterClock(), **scenario.options)
        scenario.write(failing, base)
        assert reader.rows(base) == rows_after, where
        assert reader.leftovers(base) == [], where
        failing.close()
        shutil.rmtree(base)


def test_a_task_that_runs_again_leaves_one_file_a_group(tmp_path):
    """The first attempt's file has a marker but no status, so the commit deletes it."""
    base, copy = tmp_path / "t", tmp_path / "copy"
    _two_commits(base, {})
    shutil.copytree(base, copy)
    learned = FaultyStorage(LocalStorage(str(copy)))
    client(copy, learned).upsert(NEXT)
    at = max(n for n, (kind, _) in enumerate(learned.log, 1) if kind == "close")
    storage = _faulty(base, at, Effect.ERROR_AFTER)
    result = client(base, storage, LocalEngine(task_retries=1)).upsert(NEXT)
    assert len([call for call in storage.log if call[0] == "close"]) > result.files
    assert reader.rows(base) == reader.rows(copy)
    assert reader.leftovers(base) == []
    names = [name for _, name, _, instant in reader.base_files(base) if instant == result.instant]
    assert len(names) == result.files
