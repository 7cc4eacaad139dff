"""A clean that fails at any of its storage calls, in every way, and the next clean."""

from __future__ import annotations

from functools import cache, partial
from itertools import product

import pytest

from strandline.table_services.clean.policy import CleanSettings
from tests.kit.storage.faulty_storage import Effect, Fault, distinct_calls
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables.small_table import SmallTable
from tests.strandline.table_services.clean.subject import faulty_clean
from timeline.instant import CLEAN

A, B = ("p=1", "a-0"), ("p=2", "b-0")
SETTINGS = CleanSettings(retained=2, parallelism=1)


def prepared(version: int) -> SmallTable:
    return _made(version).copy()


@cache
def _made(version: int) -> SmallTable:
    table = SmallTable(MemoryStorage(), version=version)
    for _ in range(4):
        table.write(A, B)
    table.clock.advance(1000)
    return table


clean = partial(faulty_clean, settings=SETTINGS, loaded=["p=1", "p=2"])
LOG = clean(prepared(9), []).log
FAULTS = [(at, effect) for effect in Effect for at in distinct_calls(LOG, effect)]


def test_the_calls_are_few():
    kinds = [kind for kind, _ in clean(prepared(6), []).log]
    assert kinds == [kind for kind, _ in LOG]
    # The timeline and the leases before and after the request, and, once, the archive.
    assert kinds.count("list") == 5
    assert len(FAULTS) >= 20


@pytest.mark.property
def test_what_went_wrong_is_made_good_by_the_next_clean(subtests):
    for version, (at, effect) in product([6, 9], FAULTS):
        with subtests.test(version=version, at=at, effect=effect):
            table = prepared(version)
            earliest = table.model.writes[-2]
            clean(table, [Fault(at, effect)])
            # Readers within the retained history see all their files, whatever happened.
            for kept in table.model.writes[-2:]:
                assert table.model.read_at(kept) <= table.data_files()

            table.clock.advance(1000)
            clean(table, [])
            cleans = [i for i in table.meta.active_timeline() if i.action == CLEAN]
            assert all(instant.is_completed for instant in cleans)
            # One, or a second for a file that the first had to leave.
            assert len(cleans) in (1, 2)
            assert table.data_files() == table.model.to_keep(earliest)
