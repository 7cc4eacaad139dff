"""The trace of a request that another server of the fleet answers."""

from __future__ import annotations

from fsview.wire.routes import BY_NAME
from tests.kit.servers.live_service import known
from tests.kit.spans import recording
from tests.strandline.fleet.fixed_fleet import A
from tests.timeline.test_tracing import PARENT

LATEST = BY_NAME["latest_base_files"].path


def test_the_owner_s_request_is_a_child_of_the_one_that_is_forwarded(fleet, table):
    asked = known(table.storage, partition=A[0])
    fleet.order = fleet.order[:1]
    with recording() as recorded:
        assert fleet.client(2).request("GET", LATEST, asked, PARENT).status == 200
    spans = recorded.spans
    owner, first = (span for span in spans.all if span.kind == "SERVER")
    (sent,) = [span for span in spans.all if span.kind == "CLIENT"]
    assert (owner.parent, sent.parent, first.parent) == (sent.id, first.id, "b" * 16)
    assert fleet.urls[0] == f"http://127.0.0.1:{sent.attributes['server.port']}"
    assert {span.trace for span in spans.all} == {"a" * 32}
    assert "load" in {span.name for span in spans.all if span.parent == owner.id}


def test_servers_that_are_asked_in_vain_are_shown(fleet, table):
    fleet.order = fleet.order[:2]
    fleet.kill(0)
    with recording() as recorded:
        asked = known(table.storage, partition=A[0])
        assert fleet.client(2).request("GET", LATEST, asked, PARENT).status == 200
    spans = [span for span in recorded.spans.all if span.kind == "CLIENT"]
    assert [(span.failed, span.attributes.get("error.type")) for span in spans] == [
        (True, "service_unreachable"),
        (False, None),
    ]
