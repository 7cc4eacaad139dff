"""A server whose own record isn't the one that it wrote last."""

from __future__ import annotations

import json

import pytest

from strandline.fleet.records import Load, member_key
from strandline.fleet.roster import Roster
from strandline.fleet.state.base import Put
from tests.strandline.fleet.hooked_state import Meanwhile
from tests.strandline.fleet.rosters import Servers
from timeline.errors import StateUnavailableError


@pytest.mark.parametrize(
    ("field", "value"),
    [("tables", 3), ("standby", True), ("joined", 5), ("ready", False), ("token", "00000000")],
)
def test_a_leader_whose_record_another_has_changed_leads_again(
    servers: Servers, field: str, value: object
) -> None:
    a, b, s = servers.start("a"), servers.start("b"), servers.start("s", is_standby=True)
    servers.run(1, a, b, s)
    key = member_key(a.name)
    found = servers.state.get(key)
    assert found is not None
    changed = json.loads(found.value) | {field: value}
    servers.state.write(Put(key, json.dumps(changed).encode(), found.version))
    servers.run(15, a, s)  # b is silent
    assert [seat.url for seat in a.fleet.seats] == ["http://a:1", "http://s:1"]
    mended = servers.state.get(key)
    assert mended is not None
    assert json.loads(mended.value) == json.loads(found.value)


def test_a_leader_leads_on_after_a_renewal_whose_answer_was_lost(servers: Servers) -> None:
    hooked, load = Meanwhile(servers.client()), [Load()]
    a = Roster(hooked, "http://a:1", clock=servers.clock, load=lambda: load[0])
    a.join()
    b, s = servers.start("b"), servers.start("s", is_standby=True)
    servers.run(40, a, b, s)
    (lease,), load[0] = hooked.leases, Load(2, 5 << 20)
    lease.loses_answer = True
    with pytest.raises(StateUnavailableError):
        a.step()
    load[0] = Load()  # as before, so that nothing has to be told
    servers.run(30, a, s)
    assert [seat.url for seat in a.fleet.seats] == ["http://a:1", "http://s:1"]
