"""Every storage call of every operation fails, or the process dies there: readers see the rows as
before or as after, and the client is told which.

Each scenario is run once to learn its storage calls, then once for every call and way to fail; on
every change, of the two errors at a call that changes something one.
After the fault a naive reader (``tests.kit.tables.reader``) sees the rows that the client's error
promises. Then the client does what its error says, an insert is repeated only if it hasn't
happened, and the table ends as after one operation, without leftovers. Many faults leave the same
files, from which this is done once. What a crash leaves is copied at its call, so that one run
shows it for all calls.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from strandline.write.engine.local import LocalEngine
from tests.kit.concurrency.manual_clock import LaterClock
from tests.kit.storage.faulty_storage import Effect, Fault, FaultyStorage, calls_in_turns
from tests.kit.tables import reader
from tests.strandline.write.faults.fault_scenarios import (
    CRASHES,
    NEXT,
    SCENARIOS,
    Scenario,
    two_commits,
)
from tests.strandline.write.tables import client, table
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.property

# Heartbeats and locks of a client that died, or whose outcome is unknown, have expired.
CLOCK = LaterClock()


@dataclass(frozen=True)
class Prepared:
    """A scenario's table, and what an undisturbed run makes of it.

    Attributes:
        base: The table's path, always the same one: plans name files by their whole paths.
        before: The rows that readers may see until the operation has happened: the stored ones,
            and those after the repairs with which it begins.
        after: The rows once it has.
        settled: See ``Scenario``.
        log: The storage calls.
        repaired: The states, with what the client knows, from which it went on as it ought to.
    """

    scenario: Scenario
    base: Path
    before: tuple[Any, ...]
    after: Any
    settled: Any
    log: list[tuple[str, str]]
    repaired: set[tuple[bool, bytes]] = field(default_factory=set)


def restore(base: Path) -> None:
    shutil.rmtree(base, ignore_errors=True)
    if base.with_name("saved").exists():
        shutil.copytree(base.with_name("saved"), base)


@contextmanager
def service_held(scenario: Scenario, base: Path) -> Iterator[None]:
    """Keep the scenario's service running, if it has one, for all writes of the block."""
    with client(base, **scenario.options) as holder:
        assert bool(holder.service) == ("embed__timeline__server" in scenario.options)
        yield


def prepare(scenario: Scenario, folder: Path) -> Prepared:
    """Make a scenario's table in a folder, and run it without a fault."""
    base = folder / "t"
    scenario.prepare(base, scenario.options)
    before, untouched = [reader.rows(base)], None
    if base.exists():
        untouched = scenario.settled(base)
        shutil.copytree(base, base.with_name("saved"))
        with client(base, clock=CLOCK, **scenario.options) as c:
            c.upsert(table())
    # A table that is there but holds no commit has no rows: as good as none.
    before.append(reader.rows(base) or [])
    restore(base)
    storage = FaultyStorage(scenario.storage(str(base)))
    with service_held(scenario, base):
        assert scenario.attempt(storage, lambda: base, CLOCK)
    settled = scenario.settled(base)
    assert settled != untouched
    assert reader.leftovers(base) == []
    return Prepared(scenario, base, tuple(before), reader.rows(base), settled, storage.log)


@pytest.fixture(scope="module")
def prepared_once(memory: Path) -> Iterator[Callable[[str], Prepared]]:
    """What prepares a scenario, once for all its effects."""
    with ExitStack() as services:

        @cache
        def made(name: str) -> Prepared:
            # A scenario is prepared again where its tests are dealt to two workers.
            found = prepare(SCENARIOS[name], Path(tempfile.mkdtemp(dir=memory)))
            services.enter_context(service_held(found.scenario, found.base))
            return found

        yield made


@pytest.fixture
def prepared(request, prepared_once):
    # A fixture of the module with this parameter would be made anew for each effect.
    return prepared_once(request.param)


FAULTS = [
    pytest.param(name, effect, id=f"{name}-{effect.value}")
    for name, scenario in SCENARIOS.items()
    for effect in scenario.effects
]


Attempt = tuple[int, bool | None, FaultyStorage]
"""(call, whether the operation happened as the client knows, the storage with the fault)."""


def attempts(prepared: Prepared, effect: Effect, calls: list[int]) -> Iterator[Attempt]:
    """Break the operation off at each call; each time the table is as that leaves it."""
    scenario, base = prepared.scenario, prepared.base
    for at in calls:
        restore(base)
        storage = FaultyStorage(scenario.storage(str(base)), [Fault(at, effect)])
        yield at, scenario.attempt(storage, lambda: base, CLOCK), storage


def outlived(prepared: Prepared, effect: Effect, calls: list[int]) -> Iterator[Attempt]:
    """Yield what ``attempts`` yields for a crash, from one run of the operation."""
    scenario, base = prepared.scenario, prepared.base
    states, seen = base.with_name("states"), []

    def look() -> None:
        seen.append(len(storage.log))
        if base.exists():
            shutil.copytree(base, states / str(seen[-1]))

    restore(base)
    faults = [Fault(at, effect) for at in calls]
    storage = FaultyStorage(scenario.storage(str(base)), faults, look, outlived=True)
    assert scenario.attempt(storage, lambda: base, CLOCK)
    assert seen == calls
    for at in calls:
        shutil.rmtree(base, ignore_errors=True)
        if (states / str(at)).exists():
            (states / str(at)).rename(base)
        yield at, None, storage


@pytest.mark.parametrize(("prepared", "effect"), FAULTS, indirect=["prepared"])
def test_readers_see_before_or_after_and_the_next_write_repairs(prepared, effect):
    scenario = prepared.scenario
    calls = calls_in_turns(prepared.log, effect, [*SCENARIOS.values()].index(scenario))
    assert calls
    base = prepared.base
    # A service remembers what happened until the crash, and threads make their calls in any order.
    is_seen_in_one_run = scenario.storage is LocalStorage and not scenario.has_memory
    broken_off = outlived if effect in CRASHES and is_seen_in_one_run else attempts
    for at, happened, storage in broken_off(prepared, effect, calls):
        where = f"{effect.value} call {at}, {' '.join(prepared.log[at - 1])}"
        assert len(storage.log) >= at, f"{where} was not made"
        rows = reader.rows(base)
        if happened is None:
            assert rows in (*prepared.before, prepared.after), where
            happened = rows == prepared.after
        else:
            assert rows == prepared.after if happened else rows in prepared.before, where
        left = (happened, reader.state(base))
        if left in prepared.repaired and not scenario.has_memory and storage.has_failed:
            continue
        usable = scenario.storage(str(base)) if effect in CRASHES else storage
        scenario.finish(usable, lambda: base, CLOCK, happened=happened)
        assert reader.rows(base) == prepared.after, where
        assert scenario.settled(base) == prepared.settled, where
        assert reader.leftovers(base) == [], where
        prepared.repaired.add(left)


def calls_of(scenario: Scenario, folder: Path) -> list[tuple[str, str]]:
    """Return the kinds of a scenario's calls and their paths without what differs in each run."""
    log = prepare(scenario, folder).log
    unique = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{17}|\d+-\d+-\d+(?=_)"
    return [(kind, re.sub(unique, "*", path)) for kind, path in log]


@pytest.mark.parametrize("name", ["upsert", "insert", "clean", "rollback of a commit"])
def test_version_6_makes_no_call_that_the_others_do_not_make(name, memory):
    """So the errors that are injected on version 9 stand for those of the others."""
    scenario = SCENARIOS[name]
    assert set(SCENARIOS[f"{name}, version 6"].effects) <= set(CRASHES)
    found = {
        version: calls_of(
            replace(scenario, options={**scenario.options, "write__table__version": version}),
            Path(tempfile.mkdtemp(dir=memory)),
        )
        for version in (6, 8, 9)
    }
    assert found[8] == found[9]
    # Version 6 has no folder for its timeline, and no completion time in names.
    expected = [kind for kind, _ in found[9]]
    if name == "rollback of a commit":
        # Without that time two writers can't complete it twice, so nobody looks for a second one.
        del expected[expected.index("list", len(expected) - expected[::-1].index("create"))]
    assert [kind for kind, _ in found[6]] == expected


def test_a_task_that_runs_again_leaves_one_file_a_group(tmp_path):
    """The first attempt's file has a marker but no status, so the commit deletes it."""
    base, copy = tmp_path / "t", tmp_path / "copy"
    two_commits(base, {})
    shutil.copytree(base, copy)
    learned = FaultyStorage(LocalStorage(str(copy)))
    client(copy, learned).upsert(NEXT)
    at = max(n for n, (kind, _) in enumerate(learned.log, 1) if kind == "close")
    storage = FaultyStorage(LocalStorage(str(base)), [Fault(at, Effect.ERROR_AFTER)])
    result = client(base, storage, LocalEngine(task_retries=1)).upsert(NEXT)
    assert len([call for call in storage.log if call[0] == "close"]) > result.files
    assert reader.rows(base) == reader.rows(copy)
    assert reader.leftovers(base) == []
    names = [name for _, name, _, instant in reader.base_files(base) if instant == result.instant]
    assert len(names) == result.files
