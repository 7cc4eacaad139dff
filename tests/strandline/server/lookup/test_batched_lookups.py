"""Batched look-ups on a real service: answers, errors, and bodies of requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlencode

import pytest

from executor_proxy import connect
from fsview.model.file_system_view import LookupQuery
from fsview.state.missing_partitions import MOST_MISSING
from fsview.wire.lookup_form import LOOKUP_PATH, MOST_LOOKUPS, write_queries
from strandline.server.http.limits import BODIES_BYTES, Limits
from strandline.server.http.server import ServiceServer
from strandline.server.lookup.batched_answers import bounded
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.live_service import TOKEN, known, serving
from tests.kit.servers.raw_http import Answer, RawConnection, request
from tests.kit.tables.small_table import SmallTable
from tests.strandline.server.http.limited_server import SHORT_S, answers
from timeline.errors import InputError
from timeline.storage.local import LocalStorage

FILES = [LookupQuery("latest_base_files", ("a", "b", "nowhere"))]
BODY = write_queries(FILES)


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    made = SmallTable(LocalStorage(str(tmp_path / "t")))
    made.write(*((partition, f"{partition}-{n:02}") for partition in "ab" for n in range(30)))
    return made


@pytest.fixture
def server(tmp_path: Path, table: SmallTable) -> Iterator[ServiceServer]:
    with serving(str(tmp_path)) as server:
        yield server


def target(table: SmallTable, **more: str) -> str:
    return f"{LOOKUP_PATH}?{urlencode(known(table.storage) | more)}"


def asked(table: SmallTable, *lines: str, body: bytes = BODY, token: str | None = TOKEN) -> bytes:
    return request(target(table), *lines, method="POST", token=token, body=body)


def count(answer: Answer | None) -> list[int]:
    """Return the number of files in each part of the first answer."""
    assert answer is not None
    assert answer.status == 200, answer
    return [len(part["names"]) for part in json.loads(answer.body)["answers"][0]]


def test_many_look_ups_take_one_request_and_are_cached(
    server: ServiceServer, table: SmallTable
) -> None:
    view = connect(server.url, table.storage.base_path, token=TOKEN, fallback=False)
    ids = ("a-07", "none", *(f"a-{n:02}" for n in range(30)))
    queries = [
        *FILES,
        LookupQuery("latest_file_slices", ("b",)),
        LookupQuery("latest_base_file", ("a",), ids),
        LookupQuery("latest_file_slice", ("a",), ("a-01", "none")),
        LookupQuery("latest_base_file", ("a",), ()),
    ]
    for _ in range(2):
        files, slices, by_id, slices_by_id, nothing = view.look_up(queries)
        assert files == tuple(view.latest_base_files(name) for name in ("a", "b", "nowhere"))
        assert slices == (view.latest_file_slices("b"),)
        assert by_id == tuple(view.latest_base_file("a", file_id) for file_id in ids)
        assert slices_by_id == (view.latest_file_slice("a", "a-01"), None)
        assert nothing == ()
    assert server.parts.status()["requests"]["lookup"] == 1


@pytest.mark.property
def test_very_many_partitions_that_do_not_exist_cost_one_sync(
    server: ServiceServer, table: SmallTable
) -> None:
    """More than are remembered, asked for twice (#32)."""
    names = ("a", *(f"no/such={number}" for number in range(MOST_MISSING + 1000)))
    body = write_queries([LookupQuery("latest_base_files", names)])
    for asked_before in range(2):
        with RawConnection(server.port) as raw:
            assert count(raw.ask(asked(table, body=body))) == [30, *(0 for _ in names[1:])]
        (view,) = server.parts.views.open_tables()
        status = view.status()
        assert status["counters"]["syncs"] <= 4 * (asked_before + 1)
        assert status["partitions_loaded"] == 2


def test_repeated_look_ups_are_asked_once(server: ServiceServer, table: SmallTable) -> None:
    view = connect(server.url, table.storage.base_path, token=TOKEN, fallback=False)
    files = view.latest_base_files("a"), view.latest_base_files("b")
    slices = view.latest_file_slices("a")
    by_id = LookupQuery("latest_base_file", ("a",), ("a-01", "a-00", "a-01"))
    queries = [
        LookupQuery("latest_file_slices", ("a", "a")),
        LookupQuery("latest_base_files", ("b", "a", "b")),
        LookupQuery("latest_file_slices", ("a",)),
        by_id,
        by_id,
    ]
    groups = tuple(view.latest_base_file("a", file_id) for file_id in by_id.file_ids)
    expected = ((slices, slices), (files[1], files[0], files[1]), (slices,), groups, groups)
    fresh = connect(server.url, table.storage.base_path, token=TOKEN, fallback=False)
    table.write(("c", "c-00"))
    fresh.sync()
    assert fresh.look_up(queries) == expected
    assert fresh.look_up(queries) == expected


@pytest.mark.property
def test_more_look_ups_than_a_request_takes_are_split(
    server: ServiceServer, table: SmallTable
) -> None:
    view = connect(server.url, table.storage.base_path, token=TOKEN, fallback=False)
    ids = ("a-00", *(f"none-{n}" for n in range(MOST_LOOKUPS)), "a-01")
    ((first, *none, last),) = view.look_up([LookupQuery("latest_base_file", ("a",), ids)])
    assert (first.file_id, last.file_id) == ("a-00", "a-01")
    assert none == [None] * MOST_LOOKUPS
    assert server.parts.status()["requests"]["lookup"] == 2


def test_an_answer_s_length_is_bounded() -> None:
    assert list(bounded([b"ab", b"c"], 3)) == [b"ab", b"c"]
    with pytest.raises(InputError, match="longer than 2 bytes"):
        list(bounded([b"ab", b"c"], 2))


def test_one_question_and_a_batch_share_the_cached_answer(
    server: ServiceServer, table: SmallTable
) -> None:
    view = connect(server.url, table.storage.base_path, token=TOKEN, fallback=False)
    (files,) = view.look_up(FILES)
    server.stop()
    assert view.latest_base_files("b") == files[1]


def test_after_a_failure_the_local_view_looks_up(server: ServiceServer, table: SmallTable) -> None:
    view = connect(server.url, table.storage.base_path, token=TOKEN)
    server.stop()
    assert server.wait(PATIENCE_S)
    (files,) = view.look_up(FILES)
    assert list(map(len, files)) == [30, 30, 0]


def test_errors_are_those_of_the_view_routes(server: ServiceServer, table: SmallTable) -> None:
    behind = f"{LOOKUP_PATH}?{urlencode(known(table.storage) | {'timelinehash': 'x'})}"
    outside = f"{LOOKUP_PATH}?{urlencode(known(table.storage) | {'basepath': '/etc'})}"
    with RawConnection(server.port) as raw:
        for path, body, status in (
            (behind, BODY, 400),
            (outside, BODY, 403),
            (LOOKUP_PATH, BODY, 400),
            (target(table), b'{"queries": [1]}', 400),
            (target(table), b"", 400),
        ):
            sent = request(path, method="POST", token=TOKEN, body=body)
            assert raw.ask(sent).status == status, (path, body)
        assert raw.ask(request(LOOKUP_PATH, token=TOKEN)).status == 404
        assert count(raw.ask(asked(table))) == [30, 30, 0]


def test_a_body_may_come_in_pieces_in_chunks_and_pipelined(
    server: ServiceServer, table: SmallTable
) -> None:
    head = request(target(table), "Transfer-Encoding: chunked", method="POST", token=TOKEN)
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n"
    with RawConnection(server.port) as raw:
        for byte in asked(table):
            raw.socket.sendall(bytes([byte]))
        assert count(raw.answer()) == [30, 30, 0]
        assert count(raw.ask(head + chunks)) == [30, 30, 0]
        raw.socket.sendall(asked(table) + request("/") + asked(table))
        assert count(raw.answer()) == [30, 30, 0]
        assert (greeting := raw.answer()) is not None
        assert greeting.body == b"Hello Hudi"
        assert count(raw.answer()) == [30, 30, 0]


def test_who_expects_100_continue_gets_it_before_the_body(
    server: ServiceServer, table: SmallTable
) -> None:
    sent = asked(table, "Expect: 100-continue")
    with RawConnection(server.port) as raw:
        raw.socket.sendall(sent.removesuffix(BODY))
        assert raw.socket.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert count(raw.ask(BODY)) == [30, 30, 0]


def test_a_client_of_http_1_0_is_not_told_to_continue(
    server: ServiceServer, table: SmallTable
) -> None:
    sent = asked(table, "Expect: 100-continue").replace(b"HTTP/1.1", b"HTTP/1.0")
    with RawConnection(server.port) as raw:
        raw.socket.sendall(sent.removesuffix(BODY))
        raw.end_of_requests()
        assert raw.rest() == b""


@pytest.mark.parametrize("expects", [(), ("Expect: 100-continue",)])
def test_a_body_is_read_after_admission(
    server: ServiceServer, table: SmallTable, expects: tuple[str, ...]
) -> None:
    with RawConnection(server.port) as raw:
        raw.socket.sendall(asked(table, *expects, token="wrong").removesuffix(BODY))
        assert (answer := raw.answer()) is not None
        assert answer.status == 401


def test_a_body_beyond_the_bound_is_refused(tmp_path: Path, table: SmallTable) -> None:
    with serving(str(tmp_path), limits=Limits(body_bytes=100)) as server:
        with RawConnection(server.port) as raw:
            answer = raw.ask(asked(table, body=b"x" * 101).removesuffix(b"x" * 101))
            assert (answer.status, answer.body) == (413, b"body of more than 100 bytes")
        with RawConnection(server.port) as raw:
            head = request(target(table), "Transfer-Encoding: chunked", method="POST", token=TOKEN)
            assert raw.ask(head + b"65\r\n" + b"x" * 101 + b"\r\n").status == 413
        refusals = server.parts.status()["refusals"]
        assert [(each["route"], each["count"]) for each in refusals] == [(LOOKUP_PATH, 2)]


def test_a_body_that_does_not_end_in_time_is_refused(tmp_path: Path, table: SmallTable) -> None:
    with serving(str(tmp_path), limits=Limits(request_s=SHORT_S)) as server:
        assert [answer.status for answer in answers(server, asked(table)[:-1])] == [408]


@pytest.mark.property
def test_all_bodies_together_are_bounded(server: ServiceServer, table: SmallTable) -> None:
    body = b"x" * (1 << 20)
    sent = asked(table, body=body)
    with ExitStack() as stack:
        for _ in range(BODIES_BYTES // len(body)):
            raw = stack.enter_context(RawConnection(server.port))
            raw.socket.sendall(sent[:-1])
        while (answer := answer_of(server, sent)).status != 503:
            assert answer.status == 400  # the service hasn't read all of the others yet
        assert answer.headers["retry-after"] == "1"
    while (answer := answer_of(server, asked(table))).status == 503:
        pass  # the others' connections aren't closed yet
    assert count(answer) == [30, 30, 0]


def answer_of(server: ServiceServer, sent: bytes) -> Answer:
    """Send a request, as far as the service takes it, and return the answer."""
    with RawConnection(server.port) as raw:
        raw.send_what_is_taken(sent)
        answer = raw.answer()
    assert answer is not None
    return answer


def test_what_is_too_long_for_one_request_is_asked_for_in_several(
    tmp_path: Path, table: SmallTable
) -> None:
    with serving(str(tmp_path), limits=Limits(body_bytes=100)) as server:
        view = connect(server.url, table.storage.base_path, token=TOKEN, fallback=False)
        queries = [LookupQuery("latest_base_file", ("a",), tuple(f"a-{n:02}" for n in range(30)))]
        (found,) = view.look_up(queries)
        assert found == view.latest_base_files("a")


def test_wrong_questions_are_raised() -> None:
    with pytest.raises(InputError, match="no look-up"):
        LookupQuery("timeline", ("a",))
