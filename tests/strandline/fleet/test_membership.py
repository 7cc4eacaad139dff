"""Servers that join a fleet, follow it by themselves, and leave."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from executor_proxy.seat_ring import Layout
from strandline.fleet.current import KnownFleet
from strandline.fleet.membership import Membership
from strandline.fleet.records import EPOCH, read_fleet, token_mark
from strandline.fleet.roster import Roster
from strandline.fleet.state.base import Delete, Put, StateStore
from strandline.fleet.state.sqlite import SqliteState
from tests.fsview.shared_work import wait_until
from tests.kit.concurrency.patience import PATIENCE_S
from tests.strandline.fleet.hooked_state import Meanwhile
from timeline.errors import ConfigError, StateConflictError


@pytest.fixture
def state(tmp_path: Path) -> Iterator[SqliteState]:
    with closing(SqliteState(tmp_path / "fleet.db", poll_s=0.01)) as opened:
        yield opened


def member(
    state: StateStore,
    name: str,
    layout: Layout | None = None,
    *,
    token: str | None = None,
    is_standby: bool = False,
    warm_s: float | None = None,
) -> Membership:
    # Beats so seldom that only what the store tells begins a step.
    roster = Roster(
        state,
        f"http://{name}:1",
        is_standby=is_standby,
        dead_s=10_800,
        layout=layout or Layout(),
        token=token_mark(token),
        is_ready=warm_s is None,
    )
    return Membership(roster, warm_s=warm_s or 0.0, heartbeat_s=3600)


def wait_for_seats(membership: Membership, *urls: str) -> None:
    changes: queue.Queue[KnownFleet] = queue.Queue()
    cancel = membership.current.listen(changes.put)
    known = membership.current.known
    while tuple(seat.url for seat in known.seats) != urls:
        known = changes.get(timeout=PATIENCE_S)
    cancel()


def wait_for_holder(membership: Membership, number: int, url: str) -> None:
    changes: queue.Queue[KnownFleet] = queue.Queue()
    cancel = membership.current.listen(changes.put)
    known = membership.current.known
    while {seat.number: seat.url for seat in known.fleet.seats}.get(number) != url:
        known = changes.get(timeout=PATIENCE_S)
    cancel()


def test_members_hear_of_each_other_and_of_who_leaves(state: SqliteState) -> None:
    a, b = member(state, "a"), member(state, "b")
    a.start()
    assert [seat.url for seat in a.current.known.seats] == ["http://a:1"]
    b.start()
    for each in (a, b):
        wait_for_seats(each, "http://a:1", "http://b:1")
    a.stop()
    a.stop()
    wait_for_seats(b, None, "http://b:1")  # type: ignore[arg-type]
    b.stop()
    assert read_fleet(state).fleet.members == ()


def test_an_epoch_that_nobody_has_triggers_one_reading_a_heartbeat(state: SqliteState) -> None:
    a = Membership(Roster(state, "http://a:1"), heartbeat_s=0.02)
    a.start()
    catch_up, readings = a.current.catch_up, list[int]()
    a.current.catch_up = lambda: (readings.append(1), catch_up())

    def heard() -> bool:
        a.current.hear(999_999)
        return len(readings) > 2

    wait_until(heard)
    a.stop()


class Late(threading.Event):
    """Its next wait that has timed out returns only once something was told meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], None] | None = None

    def wait(self, timeout: float | None = None) -> bool:
        is_told = super().wait(timeout)
        if not is_told and self.meanwhile is not None:
            act, self.meanwhile = self.meanwhile, None
            act()
            assert super().wait(PATIENCE_S)
        return is_told


def test_a_change_that_is_told_as_a_pause_ends_is_read(state: SqliteState) -> None:
    a = Membership(Roster(state, "http://a:1"), heartbeat_s=0.02)
    due = a._due = Late()
    b = member(state, "b", warm_s=3600)
    a.start()
    b.start()
    wait_for_holder(a, 0, "http://a:1")
    due.meanwhile = b.ready
    for each in (a, b):
        wait_for_seats(each, "http://a:1", "http://b:1")
    for each in (a, b):
        each.stop()


def test_a_member_enters_the_ring_when_it_is_ready(state: SqliteState) -> None:
    a, b = member(state, "a"), member(state, "b", warm_s=3600)
    a.start()
    b.start()
    wait_for_seats(b, "http://a:1")
    (found,) = (each for each in read_fleet(state).fleet.members if each.url == "http://b:1")
    assert not found.is_ready
    b.ready()
    b.ready()
    for each in (a, b):
        wait_for_seats(each, "http://a:1", "http://b:1")
    b.stop()
    a.stop()


def test_a_standby_that_takes_a_seat_has_no_address_before_it_is_ready(state: SqliteState) -> None:
    a, b = member(state, "a"), member(state, "b")
    s = member(state, "s", is_standby=True, warm_s=3600)
    for each in (a, b, s):
        each.start()
    wait_for_seats(s, "http://a:1", "http://b:1")
    b.stop()
    wait_for_holder(a, 1, "http://s:1")
    assert [seat.url for seat in a.current.known.seats] == ["http://a:1", None]
    s.ready()
    wait_for_seats(a, "http://a:1", "http://s:1")
    s.stop()
    a.stop()


def test_a_member_that_never_gets_ready_enters_the_ring_in_the_end(
    state: SqliteState, caplog: pytest.LogCaptureFixture
) -> None:
    a = member(state, "a", warm_s=0.0)
    a.start()
    wait_for_seats(a, "http://a:1")
    assert "records are fetched for more than 0 s" in caplog.text
    a.stop()


def test_the_last_seats_stay_while_records_can_not_be_read(
    state: SqliteState, caplog: pytest.LogCaptureFixture
) -> None:
    a = member(state, "a")
    a.start()
    before = state.get(EPOCH)
    assert before is not None
    broken = state.write(Put(EPOCH, b"{", before.version))
    other = member(state, "b")
    with pytest.raises(Exception, match="'epoch' is no JSON"):
        other.start()
    assert [seat.url for seat in a.current.known.seats] == ["http://a:1"]
    wait_until(lambda: a.trouble is not None)
    assert a.outages == 1
    assert a.trouble is not None
    assert "'epoch' is no JSON" in a.trouble
    state.write(Put(EPOCH, before.value, broken))
    third = member(state, "c")
    third.start()
    wait_for_seats(a, "http://a:1", "http://c:1")
    third.stop()
    a.stop()


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        (Layout(tokens=7), "strandline.fleet.tokens is 7; allowed: 100, as at the member http://a"),
        (Layout(copies=1), "strandline.fleet.copies is 1; allowed: 3, as at"),
        (Layout(depth=2), "strandline.fleet.depth is 2; allowed: 1, as at"),
    ],
)
def test_another_layout_is_refused_until_all_have_left(
    state: SqliteState, layout: Layout, said: str
) -> None:
    a = member(state, "a")
    a.start()
    with pytest.raises(ConfigError, match=said):
        member(state, "b", layout).start()
    assert [each.url for each in read_fleet(state).fleet.members] == ["http://a:1"]
    a.stop()
    b = member(state, "b", layout)
    b.start()
    assert b.current.known.layout == layout
    b.stop()


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (None, r"the server's token is none; allowed: \*\*\* with the mark [0-9a-f]{8}, as at the"),
        (
            "b",
            r"token is \*\*\* with the mark \w+; allowed: \*\*\* with the mark \w+, as at",
        ),
    ],
)
def test_another_token_is_refused_and_none_is_shown(
    state: SqliteState, token: str | None, said: str
) -> None:
    a = member(state, "a", token="the-token")
    a.start()
    with pytest.raises(ConfigError, match=said) as refused:
        member(state, "b", token=token).start()
    assert "the-token" not in str(refused.value)
    assert b"the-token" not in b"".join(
        found.value for key, found in state.read().items() if key.startswith("members/")
    )
    a.stop()


def test_a_server_waits_for_its_address_until_it_is_interrupted(state: SqliteState) -> None:
    a = member(state, "a")
    a.start()
    same = member(state, "a")
    same.interrupt()
    same.start(within_s=3600)
    assert same.current.known.seats == ()
    same.stop()
    assert [each.url for each in read_fleet(state).fleet.members] == ["http://a:1"]
    other = member(state, "b")
    other.start()
    wait_for_seats(a, "http://a:1", "http://b:1")  # else its seat would be b's
    a.stop()
    again = member(state, "a")
    again.start(within_s=3600)
    wait_for_seats(other, "http://a:1", "http://b:1")
    again.stop()
    other.stop()


def test_a_server_that_joins_again_is_unsure_until_it_knows_the_seats(state: SqliteState) -> None:
    """Its lease is held again at once, but its seat may be another's since."""
    hooked = Meanwhile(state)
    a = member(hooked, "a")
    assert not a.current.is_sure()
    a.start()
    assert a.current.is_sure()
    joined, were_sure = a.current.known.fleet.members[0].joined, []

    def knows_the_seats() -> bool:
        return any(each.joined > joined for each in a.current.known.fleet.members)

    def look() -> None:
        if len(hooked.leases) == 2 and not knows_the_seats():
            were_sure.append(a.current.is_sure())

    hooked.before_read = look
    key = f"members/{a.name}"
    found = state.get(key)
    assert found is not None
    state.write(Delete(key, found.version))
    wait_until(lambda: knows_the_seats() and a.current.is_sure())
    assert set(were_sure) == {False}
    a.stop()


def test_a_url_that_is_taken_is_refused_and_its_holder_stays(state: SqliteState) -> None:
    a = member(state, "a")
    a.start()
    with pytest.raises(StateConflictError, match="has the address http://a:1"):
        member(state, "a").start()
    assert [each.url for each in read_fleet(state).fleet.members] == ["http://a:1"]
    a.stop()


def test_a_member_that_would_die_between_two_beats_is_refused(state: SqliteState) -> None:
    with pytest.raises(ConfigError, match=r"dead\.secs is 8; allowed: at least three times"):
        Membership(Roster(state, "http://a:1", dead_s=8), heartbeat_s=3)
