"""What the former group's servers do for moves, of which one may hang."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fsview.table_view import TableView
from fsview.view_manager import ViewManager
from strandline.fleet.current import CurrentFleet
from strandline.fleet.mounts import Mount, MountTable, Move, MoveState
from strandline.fleet.moving.handover import Handover
from strandline.fleet.seats import Fleet, HeldSeat, Member
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.tables.small_table import SmallTable
from timeline.errors import StoreError
from timeline.storage.local import LocalStorage

ME, OTHER = "http://me:1", "http://other:1"
NAMES = "abc"


class Stores(ViewManager):
    """Views of which the store of one table hangs when it is closed, and that of another fails."""

    def __init__(self, root: Path) -> None:
        super().__init__([str(root)])
        self.hangs, self.may_end = threading.Event(), threading.Event()

    def close_table(self, table: TableView, cause: str) -> bool:
        name = str(table.table_id).rpartition("/")[2]
        if name == "a":
            self.hangs.set()
            assert self.may_end.wait(PATIENCE_S)
        is_closed = super().close_table(table, cause)
        if name == "b":
            raise StoreError("no disk")
        return is_closed


class Source:
    """A server of the group default, whose tables move to the group hot, each by a move.

    Args:
        root: Of the moves.
        views: Of the server.
    """

    def __init__(self, root: Path, views: Stores) -> None:
        self.root, self.views = root, views
        self.current = CurrentFleet(ME)
        self.acks: list[tuple[int, str]] = []
        self.acked = threading.Condition()
        self.handover = Handover(self.current, self.acknowledge, look_s=0.01)
        self.epoch = 0

    def acknowledge(self, number: int, what: str) -> None:
        with self.acked:
            self.acks.append((number, what))
            self.acked.notify_all()

    def wait_for(self, *acks: tuple[int, str]) -> bool:
        with self.acked:
            return self.acked.wait_for(lambda: set(acks) <= set(self.acks), PATIENCE_S)

    def tell(self, *states: MoveState) -> None:
        """Tell it the states of the moves 1, 2, 3 of the tables a, b, c."""
        mounts = [Mount.of(f"{self.root}/{name}", "hot") for name in NAMES]
        moves = [
            Move(number, mount, "default", state)
            for number, (mount, state) in enumerate(zip(mounts, states, strict=False), 1)
        ]
        members = (Member(ME, ME, False, 1), Member(OTHER, OTHER, False, 2, group="hot"))
        seats = (HeldSeat(0, (ME,), ME), HeldSeat(1, (OTHER,), OTHER, "hot"))
        self.epoch += 1
        fleet = Fleet(members, seats, mounts=MountTable(tuple(mounts)), moves=tuple(moves))
        self.current.tell(fleet, self.epoch)


@pytest.fixture(params=["lake", "link"])
def source(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Source]:
    """Its root may be a link, by which mounts name the tables."""
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to("lake")
    root = tmp_path / request.param
    with closing(Stores(root)) as views:
        for name in NAMES:
            table = SmallTable(LocalStorage(str(root / name)))
            table.write(("p=1", "a-0"))
            views.view(table.storage.base_path)
        made = Source(root, views)
        made.handover.start(views, lambda _: None)
        yield made
        views.may_end.set()
        made.handover.stop()


PLANNED, FLIPPED, DROPPING = MoveState.PLANNED, MoveState.FLIPPED, MoveState.DROPPING


def test_a_table_that_can_not_be_closed_holds_up_no_other_move(source: Source) -> None:
    source.tell(DROPPING)
    assert source.views.hangs.wait(PATIENCE_S)
    source.tell(DROPPING, DROPPING, FLIPPED)
    assert source.wait_for((2, "DROPPING"), (3, "FLIPPED"))
    source.tell(DROPPING, DROPPING, DROPPING)
    assert source.wait_for((3, "DROPPING"))
    assert (1, "DROPPING") not in source.acks
    source.views.may_end.set()
    assert source.wait_for((1, "DROPPING"))
    assert source.views.open_tables() == ()
    assert len(set(source.acks)) == len(source.acks) == 4, "each is acknowledged once"


def test_creations_that_hang_hold_up_no_other_move(source: Source) -> None:
    busy = source.current.creations
    with busy.of(f"file://{source.root}/a"), busy.of(f"file://{source.root}/b"):
        source.tell(FLIPPED, FLIPPED, FLIPPED)
        assert source.wait_for((3, "FLIPPED"))
        assert source.acks == [(3, "FLIPPED")]
    assert source.wait_for((1, "FLIPPED"), (2, "FLIPPED"))


def test_a_table_in_use_is_closed_once_it_is_not(source: Source) -> None:
    lease = source.views.lease(str(source.root / "c"))
    source.tell(FLIPPED, FLIPPED, DROPPING)
    assert source.wait_for((1, "FLIPPED"), (2, "FLIPPED"))
    assert (3, "DROPPING") not in source.acks
    del lease
    assert source.wait_for((3, "DROPPING"))
    assert len(source.views.open_tables()) == 2


def test_markers_are_forgotten_once_a_change_while_a_move_waits(tmp_path: Path) -> None:
    """All their directories are looked at, and it waits for as long as a creation does."""
    forgotten: list[object] = []
    with closing(Stores(tmp_path)) as views:
        source = Source(tmp_path, views)
        source.handover.attach(views, forgotten.append)
        with source.current.creations.of(f"file://{tmp_path}/a"):
            source.tell(FLIPPED)
            assert [source.handover.look() for _ in range(3)] == [False] * 3
            assert len(forgotten) == 1
            source.tell(FLIPPED, PLANNED)
            assert not source.handover.look()
            assert len(forgotten) == 2
        assert source.handover.look()
        assert len(forgotten) == 3, "those of the move's tables"
