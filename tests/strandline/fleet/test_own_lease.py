"""The lease of a member: when it is renewed, when it ends, and what follows."""

from __future__ import annotations

import pytest

from strandline.fleet.changes import plan_move
from strandline.fleet.records import member_key, member_name
from strandline.fleet.roster import DEAD_S, Renewal, Roster
from strandline.fleet.state.base import Delete
from tests.strandline.fleet.hooked_state import Meanwhile
from tests.strandline.fleet.rosters import Servers, held
from timeline.errors import StateUnavailableError


def test_a_renewal_counts_from_its_sending_and_only_if_it_succeeds(
    servers: Servers, hooked: Meanwhile
) -> None:
    """Also the time in which the machine slept counts, so another clock than the lease's."""
    boot_s = [100.0]
    a = Roster(hooked, "http://a:1", clock=servers.clock, boot=lambda: boot_s[0])
    hooked.after_hold = lambda: boot_s.append(boot_s.pop() + 7)
    a.join()
    assert a.renewal is not None
    joined = a.renewal.joined
    assert a.renewal == Renewal(joined, 100)
    boot_s[0] = 110
    a.step()
    assert a.renewal == Renewal(joined, 110)
    boot_s[0], hooked.is_away = 120, True
    with pytest.raises(StateUnavailableError):
        a.step()
    assert a.renewal == Renewal(joined, 110)
    hooked.is_away = False
    servers.clock.advance(11_000)
    boot_s[0] = 130
    a.step()  # its lease has expired, and it joins again
    assert a.renewal.sent_s == 130
    assert a.renewal.joined > joined


def test_a_server_that_can_not_read_the_fleet_lets_its_lease_end(
    servers: Servers, hooked: Meanwhile
) -> None:
    """If it renewed, it would keep its seat, and not learn that its tables are another's."""

    def fail() -> None:
        raise StateUnavailableError("statement timeout")

    boot_s = [100.0]
    a = Roster(hooked, "http://a:1", clock=servers.clock, boot=lambda: boot_s[0])
    a.join()
    a.step()
    hooked.before_read = fail
    for boot_s[0] in (103, 106, 109):
        with pytest.raises(StateUnavailableError):
            a.step()
        servers.clock.advance(3_000)
        assert a.renewal is not None
        assert a.renewal.sent_s == 103, "before the first read that failed"
    servers.clock.advance(7_000)
    assert servers.state.get(member_key(a.name)) is None
    hooked.before_read = lambda: None
    a.step()
    assert [member.name for member in a.fleet.members] == [a.name]


def test_a_slow_store_ends_no_lease(
    servers: Servers, hooked: Meanwhile, caplog: pytest.LogCaptureFixture
) -> None:
    """A step of the leader may take longer than a silent server lives."""
    a = Roster(hooked, "http://a:1", clock=servers.clock, roots=["/lake"])
    a.join()
    servers.run(1, a, servers.start("h", roots=["/lake"], group="hot"))
    plan_move(servers.state, "/lake/hot", "hot", now_ms=0)
    servers.start("b", roots=["/lake"])
    hooked.before_read = hooked.before_write = lambda: servers.clock.advance(2_400)
    began = servers.clock.monotonic()
    a.step()
    assert servers.clock.monotonic() - began > DEAD_S
    a.step()
    assert [member.url for member in a.fleet.members] == ["http://a:1"]
    assert "taken for dead" not in caplog.text


def test_who_lost_its_lease_gives_no_seat_away_before_others_can_return(
    servers: Servers,
) -> None:
    """As where the store was too slow to renew them; it never failed."""
    a, b, s = servers.start("a"), servers.start("b"), servers.start("s", is_standby=True)
    servers.run(1, a, b, s)
    before = held(a.fleet)
    servers.clock.advance(int(DEAD_S * 1000) + 1000)
    a.step()
    s.step()
    a.step()
    assert held(a.fleet) == before
    b.step()
    servers.run(15, a, b, s)
    assert held(a.fleet) == before


def test_a_server_whose_lease_was_taken_away_joins_again(servers: Servers) -> None:
    a = servers.start("a")
    a.step()
    key = member_key(member_name("http://a:1"))
    found = servers.state.get(key)
    assert found is not None
    servers.state.write(Delete(key, found.version))
    assert held(a.step()) == {0: "http://a:1"}
