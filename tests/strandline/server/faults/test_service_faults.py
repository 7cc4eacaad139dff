"""A service whose tables vanish, whose clock jumps, and that is told to end under load."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from strandline.server.http.server import ServiceServer
from strandline.server.http.server_options import ServerOptions
from strandline.server.process.composition_root import Parts
from strandline.server.process.options import PartsOptions
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.live_service import TOKEN, HttpClient, known, running, serving
from tests.kit.servers.raw_http import Answer, RawConnection
from tests.kit.tables.small_table import SmallTable
from tests.strandline.server.faults.service_process import (
    EVERYTHING,
    LATEST,
    MARKERS,
    Service,
    asking,
    local_table,
    made,
    marking,
    stored_markers,
)
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.property
LOAD: Final = "/v1/hoodie/view/loadallpartitions/"
INSTANT: Final = "20261121090000000"
MANY: Final = 200


def files_of(body: bytes) -> set[str]:
    """Return the names of the base files in an answer about a partition."""
    return {said["baseFile"]["fullPath"].rpartition("/")[2] for said in json.loads(body)}


ASKED_BEFORE: Final = 8


class Asker:
    """A client that asks one thing after the other, or some at once, until the service ends."""

    def __init__(
        self, port: int, sent: list[bytes], warm: threading.Barrier, at_once: int = 1
    ) -> None:
        self.port, self.sent, self.warm, self.at_once = port, sent, warm, at_once
        self.answers: list[tuple[bytes, Answer]] = []

    def run(self) -> None:
        with RawConnection(self.port) as connection:
            for number in range(1_000_000):
                if number == ASKED_BEFORE:
                    self.warm.wait(PATIENCE_S)
                said = self.sent[number % len(self.sent)]
                connection.send_what_is_taken(said * self.at_once)
                for _ in range(self.at_once):
                    answer = connection.answer()  # fails the test if it is half an answer
                    if answer is None:
                        return
                    self.answers.append((said, answer))
        raise AssertionError("the service did not end")


@contextmanager
def half_asked(port: int, asked: bytes) -> Iterator[None]:
    """Open some connections that send part of a request, or nothing."""
    with ExitStack() as stack:
        for length in (0, 1, 30, len(asked) - 1):
            connection = stack.enter_context(RawConnection(port))
            connection.socket.sendall(asked[:length])
        yield


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.property)]
)
def test_a_signal_under_load_truncates_no_answer(tmp_path: Path, number: signal.Signals) -> None:
    table = local_table(tmp_path / "t", MANY)
    base = table.storage.base_path
    asked = asking(LATEST, known(table.storage, partition="a"))
    everything = asking(
        EVERYTHING, known(table.storage, partition="a", maxinstant="99991231235959999")
    )
    load = asking(LOAD, {"basepath": base}, "POST")
    indented = asking(LATEST, known(table.storage, partition="a", pretty="1"))
    warm = threading.Barrier(9)
    with Service(tmp_path, tmp_path / "log") as service:
        with RawConnection(service.port) as first:
            right = {said: first.ask(said) for said in (asked, everything, load, indented)}
        assert {answer.status for answer in right.values()} == {200}
        sent = [[asked], [everything], [indented, load], [asked, everything], [load], [asked]]
        askers = [Asker(service.port, said, warm, 1 + n % 3) for n, said in enumerate(sent)]
        markers = [[marking(base, made(f"{n}-{i}")) for i in range(9999)] for n in "xy"]
        markers_made = [Asker(service.port, said, warm) for said in markers]
        with ThreadPoolExecutor(8) as pool, half_asked(service.port, asked):
            done = [pool.submit(asker.run) for asker in (*askers, *markers_made)]
            warm.wait(PATIENCE_S)
            os.kill(service.pid, number)
            for one in done:
                one.result()
        assert service.end() == 0
    stopping = 0
    for asker in askers:
        for said, answer in asker.answers:
            stopping += answer.status == 503
            whole = (answer.status, answer.body) == (200, right[said].body)
            assert whole or b"stopping" in answer.body, answer
    assert stopping <= len(askers)
    acknowledged = sorted(
        said.partition(b"markername=a%2F")[2].partition(b" ")[0].decode()
        for asker in markers_made
        for said, answer in asker.answers
        if answer.body == b"true"
    )
    assert set(acknowledged) <= {name.removeprefix("a/") for name in stored_markers(tmp_path / "t")}
    assert len(acknowledged) >= ASKED_BEFORE * len(markers_made)
    assert "Traceback" not in (tmp_path / "log").read_text()


# Tables that vanish.


def names(table: SmallTable, partition: str) -> set[str]:
    """Return the names of the files that a reader reads now."""
    paths = table.model.read_at("99991231")
    return {path.rpartition("/")[2] for path in paths if path.startswith(f"{partition}/")}


def test_tables_that_take_turns_at_a_path_are_never_mixed_up(tmp_path: Path) -> None:
    """Clients of two tables ask while one, the other or none is there: each gets its own answer,
    or is refused."""
    base = tmp_path / "t"
    tables = []
    for name, group in (("one", "first"), ("two", "second")):
        table = SmallTable(LocalStorage(str(base)))
        table.clock.advance(3_600_000 * len(tables))
        table.write(("a", group))
        tables.append((known(table.storage, partition="a"), names(table, "a")))
        base.rename(tmp_path / name)
    outcomes: Counter[str] = Counter()
    ended = threading.Event()

    def ask(mine: tuple[dict[str, str], set[str]]) -> None:
        params, right = mine
        with HttpClient(server.port) as client:
            while not ended.is_set():
                answered = client.request("GET", LATEST, params)
                outcome = str(answered.status)
                if answered.status == 200 and files_of(answered.body) != right:
                    outcome = f"wrong: {answered.body!r}"
                outcomes[outcome] += 1

    with (
        serving(str(tmp_path)) as server,
        ThreadPoolExecutor(4) as pool,
        ExitStack() as stack,
    ):
        stack.callback(ended.set)
        done = [pool.submit(ask, table) for table in tables * 2]
        with HttpClient(server.port) as client:
            for turn in range(20):
                (tmp_path / ("one", "two")[turn % 2]).rename(base)
                params, right = tables[turn % 2]
                now = client.request("GET", LATEST, params)
                assert (now.status, files_of(now.body)) == (200, right), now.body
                base.rename(tmp_path / ("one", "two")[turn % 2])
                client.request("GET", LATEST, tables[0][0])
        ended.set()
        for one in done:
            one.result()
    assert set(outcomes) <= {"200", "400", "404"}, outcomes


# Clocks.


def test_a_clock_that_jumps_changes_no_answer(tmp_path: Path) -> None:
    table = local_table(tmp_path / "t")
    clock = ManualClock(1_700_000_000_000)
    parts = Parts(PartsOptions((str(tmp_path),), TOKEN), clock=clock)
    with (
        running(ServiceServer(parts, ServerOptions())) as server,
        HttpClient(server.port) as client,
    ):
        asked = known(table.storage, partition="a")
        was = client.request("GET", LATEST, asked)
        assert was.status == 200
        for number, jump_ms in enumerate((10 * 365 * 86_400_000, -20 * 365 * 86_400_000, -1, 1)):
            clock.advance(jump_ms)
            assert client.request("GET", LATEST, asked).body == was.body
            marker = {
                "markerdirpath": f"{table.storage.base_path}/.hoodie/.temp/{INSTANT}",
                "markername": made(f"f{number}"),
                "basepath": table.storage.base_path,
            }
            for answer in (b"true", b"false"):
                assert client.request("POST", f"{MARKERS}/create", marker).body == answer
            table.write(("a", f"new{number}"))
            now = client.request("GET", LATEST, known(table.storage, partition="a"))
            assert files_of(now.body) == names(table, "a")
            status = json.loads(client.request("GET", "/v1/strandline/status").body)
            assert status["uptime_s"] >= 0
        assert len(stored_markers(tmp_path / "t")) == number + 1
