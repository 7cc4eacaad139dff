"""Who deletes from the databases of views."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fsview.store.sql.sqlite.database import SqliteDatabase
from fsview.store.sql.upkeep import Upkeep
from strandline.fleet.current import CurrentFleet
from strandline.fleet.seats import Fleet, Member
from strandline.server.process.fleet_part import LeaderUpkeep
from tests.kit.concurrency.patience import PATIENCE_S

A, B = (Member(name, f"http://{name}:1", False, at) for at, name in enumerate("ab", 1))


class Looks(Upkeep):
    """Counts its runs, of which the first fails, and whether the server led then."""

    def __init__(self, current: CurrentFleet, folder: Path) -> None:
        super().__init__([SqliteDatabase(folder / "views.db")], 1)
        self._current = current
        self.led: list[bool] = []
        self.thrice = threading.Event()

    def run(self, is_wanted: Callable[[], bool] = lambda: True) -> None:
        self.led.append(self._current.leads and is_wanted())
        super().run(is_wanted)
        if len(self.led) == 1:
            raise RuntimeError("a fault of the first look")
        if len(self.led) == 3:
            self.thrice.set()


@pytest.fixture
def current() -> CurrentFleet:
    return CurrentFleet(B.url)


@pytest.fixture
def looks(current: CurrentFleet, tmp_path: Path) -> Looks:
    return Looks(current, tmp_path)


@pytest.fixture
def thread(current: CurrentFleet, looks: Looks) -> Iterator[LeaderUpkeep]:
    found = LeaderUpkeep(current, looks, pause_s=0.001)
    found.start()
    yield found
    found.stop()


def test_the_leader_looks_again_and_again_also_after_a_fault(
    current: CurrentFleet, looks: Looks, thread: LeaderUpkeep, caplog: pytest.LogCaptureFixture
) -> None:
    assert thread.status() == {"leads": False, "deleted": 0}
    current.tell(Fleet((A, B)), 1)
    assert not current.leads
    current.tell(Fleet((B,)), 2)
    assert looks.thrice.wait(PATIENCE_S)
    assert all(looks.led)
    assert thread.status() == {"leads": True, "deleted": 0}
    assert "garbage collection in the databases of views failed" in caplog.text


def test_each_group_has_one_that_leads_and_a_router_never_does(current: CurrentFleet) -> None:
    router = replace(B, group="")
    fleet = Fleet((A, replace(B, group="hot"), replace(A, name="c", url="http://c:1", group="hot")))
    current.tell(Fleet((replace(A, group=""), B)), 1)
    assert current.leads, "the router that joined before has no databases"
    current.group = "hot"
    current.tell(replace(fleet, members=fleet.members[:2]), 2)
    assert current.leads
    current.tell(fleet, 3)
    assert not current.leads
    current.group = ""
    current.tell(Fleet((router,)), 4)
    assert not current.leads


def test_who_has_not_joined_does_not_lead(current: CurrentFleet) -> None:
    assert not current.leads
    current.tell(Fleet((A, replace(B, joined=3))), 1)
    assert not current.leads
    current.tell(Fleet((replace(A, joined=4), replace(B, joined=3))), 2)
    assert current.leads
