"""The whole exchange is bounded, however the service spreads its bytes."""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest

from executor_proxy.exchange import Timeouts
from executor_proxy.http import HttpSession
from tests.executor_proxy.scripted_server import Drip, Reply, ScriptedServer
from timeline.errors import ServiceTimeoutError, ServiceUnreachableError

PATIENT = Timeouts(read_s=30, exchange_s=0.3)
"""Each packet may take for ever, all of them together may not."""


@pytest.mark.parametrize(
    ("head", "drops"),
    [
        (b"", b"HTTP/1.1 200 OK\r\n"),
        (b"HTTP/1.1 200 OK\r\nX-Slow: ", b"a"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"1"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    ],
    ids=["status", "header", "body", "chunks"],
)
def test_an_answer_that_drips_is_late(head, drops):
    with (
        ScriptedServer(lambda request: Drip(head, drops)) as server,
        pytest.raises(ServiceTimeoutError, match=r"0\.3 s in all"),
    ):
        HttpSession(server.url, timeouts=PATIENT).get("/x", {})


@pytest.mark.parametrize(
    ("head", "drops"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"1"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    ],
    ids=["body", "chunks"],
)
def test_a_body_that_drips_is_late_for_requests_too(head, drops):
    own = "tests.executor_proxy.own_session:make"
    with (
        ScriptedServer(lambda request: Drip(head, drops)) as server,
        pytest.raises(ServiceTimeoutError, match=r"0\.3 s in all"),
    ):
        HttpSession(server.url, timeouts=PATIENT, session=own).get("/x", {})


def test_after_a_late_answer_the_next_one_comes_on_a_new_connection():
    answers = {"/late": Drip(b"", b"HTTP/1.1 2"), "/x": Reply(b"[1]")}
    with ScriptedServer(lambda request: answers[request.path]) as server:
        session = HttpSession(server.url)
        # A request whose time is over before it is sent is not sent.
        while not server.requests:
            with pytest.raises(ServiceTimeoutError):
                session.get("/late", {}, within_s=0.3)
        assert session.get("/x", {}) == b"[1]"
    (answered,) = (each for each in server.requests if each.path == "/x")
    late = [each.connection for each in server.requests if each.path == "/late"]
    assert late
    assert answered.connection not in late


def test_the_bound_of_one_exchange_is_not_that_of_the_next():
    with ScriptedServer(lambda request: Reply(b"[1]")) as server:
        session = HttpSession(server.url)
        assert session.get("/x", {}, within_s=5) == b"[1]"
        assert session.get("/x", {}) == b"[1]"
    assert server.connections == 1


@pytest.mark.parametrize(
    ("within_s", "wait"), [(300, "2"), (2.8, "2"), (1.4, "1.050"), (0.001, "0.001")]
)
def test_a_service_that_is_loading_is_told_to_answer_before_the_deadline(within_s, wait):
    with ScriptedServer(lambda request: Reply(b"[1]")) as server:
        session = HttpSession(server.url)
        # A request whose time is over before it is sent is not sent.
        while not (bounded := [each for each in server.requests if each.path == "/bounded"]):
            # On a connection that is open already, as 1 ms may be too short to open one.
            session.get("/x", {})
            with suppress(ServiceTimeoutError):
                session.get("/bounded", {}, within_s=within_s)
    assert {each.headers["strandline-wait"] for each in bounded} == {wait}


def test_a_host_that_accepts_nothing_is_unreachable_within_the_time_to_connect():
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        waiting = [socket.socket() for _ in range(4)]  # they fill the queue: no more get in
        try:
            for each in waiting:
                each.setblocking(False)
                each.connect_ex(full.getsockname())
            with pytest.raises(ServiceUnreachableError, match=r"no connection within 0\.2 s"):
                HttpSession(url, timeouts=Timeouts(connect_s=0.2)).get("/x", {})
        finally:
            for each in waiting:
                each.close()


def test_a_handshake_has_the_time_of_an_answer():
    """The system accepts connections for a busy service, which has to shake hands itself."""
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        url = f"https://127.0.0.1:{busy.getsockname()[1]}"
        timeouts = Timeouts(connect_s=0.1, read_s=0.2)
        with pytest.raises(ServiceUnreachableError, match=r"no TLS handshake within 0\.2 s"):
            HttpSession(url, timeouts=timeouts).get("/x", {})
