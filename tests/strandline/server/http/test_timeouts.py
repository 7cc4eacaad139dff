"""Silent and idle connections are closed in time, half requests answered with 408."""

from __future__ import annotations

import select

import pytest

from tests.kit.servers.live_service import TOKEN
from tests.kit.servers.raw_http import RawConnection, request
from tests.strandline.server.http.limited_server import (
    GREETING,
    LOOK_UP,
    SHORT_S,
    answers,
    connections,
    limited,
)


def test_a_silent_connection_is_closed() -> None:
    with limited(request_s=SHORT_S) as server, RawConnection(server.port) as raw:
        assert raw.rest() == b""
        assert server.parts.connections()["silent"] == 1


@pytest.mark.parametrize("half", [b"G", b"GET / HTTP/1.1\r\nHost:", GREETING[:-2]])
def test_half_a_request_times_out_with_408(half: bytes) -> None:
    with limited(request_s=SHORT_S) as server:
        (answer,) = answers(server, half)
        assert (answer.status, answer.body) == (408, b"no whole request in 0.05 seconds")
        assert answer.headers["connection"] == "close"


def test_half_a_request_behind_a_whole_one_times_out_too() -> None:
    with limited(request_s=SHORT_S) as server:
        found = answers(server, GREETING + GREETING[:-1])
        assert [answer.status for answer in found] == [200, 408]


def test_half_a_body_ends_the_connection_after_the_answer() -> None:
    with limited(request_s=SHORT_S) as server:
        sent = request("/nowhere", method="POST", token=TOKEN, body=b"x" * 100)
        assert [answer.status for answer in answers(server, sent[:-1])] == [404]


def test_blank_lines_are_no_sign_of_life() -> None:
    with limited(request_s=SHORT_S) as server, RawConnection(server.port) as raw:
        answered = select.poll()
        answered.register(raw.socket, select.POLLIN)
        while not answered.poll(1):
            raw.send_what_is_taken(b"\r\n")
        assert raw.rest() == b""


def test_an_idle_connection_is_closed_after_an_answer_of_either_way() -> None:
    with limited(keep_alive_s=SHORT_S) as server:
        for target in ("/", LOOK_UP, LOOK_UP):
            with RawConnection(server.port) as raw:
                assert raw.ask(request(target, token=TOKEN)).status == 200
                assert raw.rest() == b""
        assert server.parts.hot.counts.total() > 0
        assert connections(server)["idle"] >= 3
