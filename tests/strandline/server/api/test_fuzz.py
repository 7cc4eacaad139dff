"""Any bytes sent to a service: no 5xx, no internals in an answer, no path touched outside the
roots; proper requests afterwards are answered rightly, on the same connection if it is still sound.

The storage works throughout, so every 5xx is a fault of the service.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.server.http.server import ServiceServer
from strandline.server.http.server_options import ServerOptions
from strandline.server.marker.conflict import ConflictOptions
from strandline.server.process.composition_root import Parts
from strandline.server.process.options import PartsOptions
from tests.kit.servers.live_service import TOKEN, known, running
from tests.kit.servers.raw_http import RawConnection, take
from tests.strandline.server.api.drawn_requests import Asked, Live, conversations, requests
from tests.strandline.server.api.fuzzed_service import Place
from tests.strandline.server.touched import watched
from timeline.storage.local import LocalStorage

# Its files are read when ``/v2`` is first asked about a table: here before paths are watched.
import_module("strandline.table_api.served_table")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    place = Place(tmp_path_factory.mktemp("fuzz"))
    clients = [known(LocalStorage(str(path))) for path in place.tables]
    conflicts = ConflictOptions(enabled=True, checks_commits=True, period_s=0.01)
    parts = Parts(PartsOptions((str(place.root),), TOKEN, conflicts=conflicts))
    with running(ServiceServer(parts, ServerOptions())) as server, watched() as touched:
        live = Live(server, place, touched, clients)
        yield live
        live.bystander.socket.close()
        logging.getLogger().removeHandler(live.faults)
    assert place.tree_outside() == place.before


def ask_in_a_row(live: Live, asked: list[Asked]) -> None:
    """Send requests at once, read their answers in order, then go on properly."""
    with RawConnection(live.server.port) as connection:
        connection.socket.sendall(b"".join(one.data for one in asked))
        for one in asked:
            answer = connection.answer(to_head=one.to_head)
            assert answer is not None, "the connection has ended"
            live.check(answer)
            if one.right is not None:
                assert (answer.status, answer.body) == (200, one.right)
            assert one.refused in (None, answer.status), answer
            if one.last or one.refused or answer.status == 401:
                assert answer.headers.get("connection") == "close", answer
                assert connection.rest() == b""
                break
        else:
            live.check_goes_on(connection)
    live.check_nothing_else()


def send_anyhow(live: Live, data: bytes, *, and_more: bool) -> None:
    """Send bytes that need not be requests, then go on on another connection.

    Args:
        live: The service.
        data: The bytes.
        and_more: Whether requests follow until the server has enough; else nothing does, and it
            need not answer.
    """
    with RawConnection(live.server.port) as connection:
        connection.send_what_is_taken(data + LAST_REQUESTS if and_more else data)
        if not and_more:
            connection.end_of_requests()
        left = connection.rest()
        while left and left != CONTINUE:  # whose body doesn't come
            taken = take(left, to_head=True)  # how long a body is depends on what was asked
            assert taken is not None, left[:300]
            answer, left = taken
            live.check(answer)
            left = left[left.find(b"HTTP/1.1 ") :] if b"HTTP/1.1 " in left else b""
    with RawConnection(live.server.port) as connection:
        live.check_goes_on(connection)
    live.check_nothing_else()


LAST_REQUESTS: Final = b"\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n" * 50
"""Whatever came before: in the midst of a head, or of a body that isn't long, the server ends the
connection at one of these, as it can't be read or as it is wished."""
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
MAY_BE_LONG: Final = re.compile(rb"chunked|content-length:\s*\d{4}", re.IGNORECASE)


@st.composite
def spoiled(draw: Any, live: Live) -> bytes:
    """Return the bytes of requests, somewhere cut, changed or added to; or any bytes."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=300))
    data = b"".join(one.data for one in draw(st.lists(requests(live), min_size=1, max_size=3)))
    for _ in range(draw(st.integers(1, 4))):
        at, to = sorted((draw(st.integers(0, len(data))), draw(st.integers(0, len(data)))))
        kind = draw(st.sampled_from(["cut", "put in", "take out", "twice"]))
        if kind == "cut":
            data = data[:to]
        elif kind == "put in":
            odd = st.sampled_from([b"\r\n", b"\n", b"\0", b" ", b":", b"\r\n\r\n", b"0", b"%"])
            data = data[:at] + draw(st.one_of(odd, st.binary(max_size=8))) + data[at:]
        elif kind == "take out":
            data = data[:at] + data[min(to, at + 20) :]
        else:
            data = data[:at] + data[at : at + 50] + data[at:]
    return data


RELAXED: Final = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    deadline=None,
)


@given(data=st.data())
@settings(RELAXED, max_examples=30)
def test_whatever_is_asked(live: Live, data: st.DataObject) -> None:
    ask_in_a_row(live, data.draw(conversations(live)))


@given(data=st.data())
@settings(RELAXED, max_examples=30)
def test_whatever_is_sent(live: Live, data: st.DataObject) -> None:
    sent = data.draw(spoiled(live))
    send_anyhow(live, sent, and_more=not MAY_BE_LONG.search(sent))


@pytest.mark.property
@given(data=st.data())
@settings(RELAXED, max_examples=1500)
def test_whatever_is_asked_at_length(live: Live, data: st.DataObject) -> None:
    ask_in_a_row(live, data.draw(conversations(live)))


@pytest.mark.property
@given(data=st.data())
@settings(RELAXED, max_examples=1500)
def test_whatever_is_sent_at_length(live: Live, data: st.DataObject) -> None:
    sent = data.draw(spoiled(live))
    send_anyhow(live, sent, and_more=not MAY_BE_LONG.search(sent))
