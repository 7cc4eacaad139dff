"""Each planted fault is found, with its names, and nothing else; sound tables have none."""

from __future__ import annotations

from collections import Counter

import pytest

from strandline.table_services.doctor.examination import examine
from strandline.table_services.doctor.finding import FAULTS, findings_table
from strandline.table_services.doctor.picture import DAY_MS
from strandline.table_services.doctor.severity import Severity
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.tables import golden
from tests.strandline.table_services.doctor.planted import PLANTS, Recorded, newest_ms, recorded

ELSEWHERE = {"small-files"}
"""Faults that recorded tables are too small for; ``test_examination`` has them."""


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.id)
def test_a_planted_fault_is_found_and_no_other(plant):
    table = Recorded(plant.scenario)
    before = {f.code for f in examine(table.storage, table.clock, deep=plant.deep)}
    names = plant.plant(table)
    found = examine(table.storage, table.clock, deep=plant.deep)
    found = tuple(each for each in found if each.code not in before)
    assert {each.code for each in found} == {plant.code}, found
    assert {name for each in found for name in each.names} == names
    assert {each.fixable for each in found} == {plant.fixable}
    assert findings_table(found).column("remedy")[0].as_py() == FAULTS[plant.code].remedy


def test_every_fault_is_planted():
    assert {plant.code for plant in PLANTS} | ELSEWHERE == set(FAULTS)
    assert len(FAULTS) >= 20


@pytest.mark.parametrize("scenario", golden.scenarios())
def test_a_sound_table_has_nothing_to_repair(scenario):
    storage = recorded(scenario)
    clock = ManualClock(newest_ms(storage) + 1000)
    found = examine(storage, clock, deep=True)
    assert [each for each in found if each.severity is not Severity.INFO] == []
    # Later only what pends in some of them is a fault.
    clock.advance(3 * DAY_MS)
    late = Counter(each.code for each in examine(storage, clock))
    assert set(late) <= {"service-pending", "write-pending"}, late
