"""The benchmark of a fleet, for a moment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.fleet import CLIENTS, PERCENTS, forwarded
from benchmarks.servers.adoption import adopted
from benchmarks.servers.big_table import Shape
from benchmarks.servers.joining import joined
from benchmarks.servers.lookup_load import LookupLoad
from benchmarks.servers.mix import SIZES, mixed
from benchmarks.servers.moves import STEPS, moved
from benchmarks.servers.outage import figure10
from benchmarks.servers.routing import routed
from benchmarks.servers.server import ServerError, StrandlineServer
from benchmarks.servers.view_database import KINDS, ViewDatabase
from tests.executor_proxy.scripted_server import Raw, Reply, ScriptedServer
from tests.kit.servers.live_service import HttpClient
from tests.strandline.fleet.serve_fleet import wait_until

pytestmark = pytest.mark.property


def port_of(server: ScriptedServer) -> int:
    return int(server.url.rpartition(":")[2])


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ViewDatabase]:
    with KINDS["sqlite"](tmp_path) as database:
        yield database


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(b"other"), "/asked was answered with"),
        (Reply(b"right", 404), "/asked was answered with"),
        (Raw(b"HTTP/1.1 200 OK\r\n"), "was closed after"),
    ],
)
def test_an_answer_that_is_another_is_an_error(reply: Reply | Raw, error: str) -> None:
    with (
        ScriptedServer(lambda _: reply) as server,
        LookupLoad({port_of(server): {"/asked": b"right"}}, 2) as load,
        pytest.raises(ServerError, match=error),
    ):
        load.run(0.1)


def test_each_client_asks_until_the_time_is_over() -> None:
    with (
        ScriptedServer(lambda _: Reply(b"right")) as server,
        LookupLoad({port_of(server): {"/1": b"right", "/2": b"right"}}, 3) as load,
    ):
        latencies = load.run(0.0)
        assert len(latencies) == len(server.requests) == 3
        assert {request.path for request in server.requests} == {"/1", "/2"}


def test_a_connection_that_its_server_has_closed_is_opened_again(tmp_path: Path) -> None:
    with StrandlineServer(str(tmp_path), "--keep-alive", "1") as server:
        first = server.ask("/healthz")

        def is_closed() -> bool:
            with HttpClient(server.port, None) as other:
                told = json.loads(other.request("GET", "/v1/strandline/status").body)
            return bool(told["connections"].get("idle"))

        wait_until(is_closed)
        assert server.ask("/healthz") == first


def test_look_ups_are_passed_on_and_compared(tmp_path: Path) -> None:
    rows = list(forwarded(tmp_path, rounds=2, run_s=0.02))
    assert len(rows) == 2 * len(CLIENTS) * len(PERCENTS)
    assert all(len(row.values) == 2 for row in rows)
    assert sum(row.bound is not None for row in rows) == 4


def test_what_one_server_reads_others_adopt(tmp_path: Path, database: ViewDatabase) -> None:
    rows = {
        row.what: row
        for row in adopted(tmp_path, database, 2, Shape(partitions=12, groups=20, slices=2))
    }
    counted = [row for what, row in rows.items() if "reads" in what or "calls" in what]
    assert [row.met for row in counted] == [True] * 4
    assert len(rows["a commit on 12 partitions: adoption"].values) == 6


def test_a_mix_of_look_ups_and_changes_reads_no_instant_twice(
    tmp_path: Path, database: ViewDatabase
) -> None:
    rows = list(
        mixed(tmp_path, database, 1, Shape(partitions=3, groups=2, slices=2), hundreds=1, rare=20)
    )
    reads = [row for row in rows if "reads" in row.what]
    assert [row.met for row in reads] == [True] * 2 * (len(SIZES) - 1)
    assert all(row.values[0] > 0 for row in rows)


def test_no_request_fails_while_a_server_is_away(tmp_path: Path) -> None:
    script = [(20.0, "kill", (1,)), (80.0, "start", (1,))]
    rows = list(figure10(tmp_path, speed=50, servers=2, tables=2, scripts={"short": script}))
    assert (rows[0].what, rows[0].values, rows[0].met) == (
        "figure 10, short's script: failed of 300",
        [0],
        True,
    )


def test_a_second_server_takes_a_record(tmp_path: Path) -> None:
    rows = list(joined(tmp_path, 2, Shape(partitions=12, groups=20, slices=2)))
    assert [row.other for row in rows] == ["load from commits", "asked by partition"] * 2
    calls = rows[2]
    assert calls.met, calls.values
    assert all(len(row.values) == len(row.partners) == 2 for row in rows)
    assert all(
        few < many for row in rows[2:] for few, many in zip(row.values, row.partners, strict=True)
    )


def test_tables_move_while_clients_ask(tmp_path: Path) -> None:
    rows = list(moved(tmp_path, 2, {2: Shape(partitions=3, groups=4, slices=2)}))
    assert [row.what.rpartition(": ")[2] for row in rows[: len(STEPS)]] == [s.name for s in STEPS]
    failed = rows[-2]
    assert failed.met, failed.values
    assert rows[-1].values[0] > 0, "memory was freed"


def test_routers_pass_on_all_that_they_are_asked(tmp_path: Path) -> None:
    rows = list(routed(tmp_path, 2, 0.02, clients=(1, 16)))
    # Two ways at two loads and two sizes; the lower load has a goal.
    assert sum(row.what.startswith("figure 5") for row in rows) == 2 * 2 * (3 + 2)
    assert sum(row.what.startswith("figure 7") for row in rows) == 2 * 4
    assert all(len(row.values) == 2 for row in rows)
    assert sum(row.bound is not None for row in rows) == 2 * 2
