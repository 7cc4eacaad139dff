"""A child that dies or hangs is replaced on the same port, until that is hopeless."""

from __future__ import annotations

import http.client
import json
import logging
import os
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import pytest
import trustme

from strandline import TimelineService
from strandline.server.process.supervisor import RESTARTS, RESTARTS_WITHIN_S, RestartLimit
from strandline.settings.service import (
    EMBED_PING_TIMEOUT,
    SERVICE_SETTINGS,
    TLS_CA,
    TLS_CERTIFICATE,
    TLS_KEY,
)
from strandline.settings.setting import Settings
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.processes import is_alive, wait_for_end
from tests.strandline.server.process.services import (
    LATEST,
    BrokenStart,
    address,
    is_refused,
    kill,
    params,
    patient,
    status_of,
)
from timeline.errors import (
    ServiceUnreachableError,
)

pytestmark = pytest.mark.property

WINDOW_MS = int(RESTARTS_WITHIN_S * 1000)


class Asking:
    """Asks over kept connections in threads, and repeats what a killed child didn't answer.

    A connection that is refused, or not answered in 30 seconds, fails the thread.
    """

    def __init__(self, service: TimelineService, base: Path, threads: int) -> None:
        self.address, self.token = address(service), service.token
        self.target = f"{LATEST}?{urlencode(params(base))}"
        self.enough = threading.Event()
        self.pool = ThreadPoolExecutor(threads)
        self.running = [self.pool.submit(self.ask) for _ in range(threads)]

    def ask(self) -> tuple[int, int, set[bytes]]:
        """Return how many requests were answered, and repeated, and the answers."""
        answered, repeated, answers = 0, 0, set()
        connection = http.client.HTTPConnection(*self.address, timeout=PATIENCE_S)
        headers = {"Authorization": f"Bearer {self.token}"}
        while not self.enough.is_set():
            try:
                connection.request("GET", self.target, headers=headers)
                response = connection.getresponse()
                answers.add(response.read())
                assert response.status == 200
                answered += 1
            except (ConnectionResetError, BrokenPipeError, http.client.HTTPException):
                repeated += 1
                connection.close()
        connection.close()
        return answered, repeated, answers

    def results(self) -> list[tuple[int, int, set[bytes]]]:
        self.enough.set()
        with self.pool:
            return [thread.result() for thread in self.running]


def test_killed_twenty_times_it_answers_every_request(lake: Path) -> None:
    clock = ManualClock(0)
    with TimelineService([str(lake / "one")], clock=clock) as service:
        url, token = service.url, service.token
        asking = Asking(service, lake / "one", 3)
        pids = []
        for turn in range(20):
            pids.append(kill(service))
            clock.advance(WINDOW_MS)
            if turn == 5:
                # Returns once the replacement, or the one that was killed before, serves it.
                service.add_root(str(lake / "two"))
        last = status_of(service)
        results = asking.results()
        assert (service.url, service.token) == (url, token)
        assert last["restarts"] == 20
        assert len({*pids, last["pid"]}) == 21
        assert len(json.loads(patient(service).get(LATEST, params(lake / "two")))) == 2
    assert not any(map(is_alive, pids))
    assert sum(repeated for _, repeated, _ in results) > 0
    assert all(answered > 0 for answered, _, _ in results)
    (answer,) = set.union(*(answers for _, _, answers in results))
    assert len(json.loads(answer)) == 2


def test_a_root_is_served_when_adding_it_returns_although_the_child_was_killed(
    lake: Path,
) -> None:
    with TimelineService([str(lake / "one")]) as service:
        for table in ("two", "three"):
            kill(service)
            service.add_root(str(lake / table))
        kill(service)
        assert patient(service).get(LATEST, params(lake / "two")).startswith(b"[")


def test_a_child_that_hangs_is_killed_and_replaced(
    lake: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings.parse({EMBED_PING_TIMEOUT.name: "3"}, SERVICE_SETTINGS)
    with TimelineService([str(lake)], settings=settings) as service:
        url, pid = service.url, status_of(service)["pid"]
        os.kill(pid, signal.SIGSTOP)
        service.add_root(str(lake / "two"))
        after = status_of(service)
        assert after["pid"] != pid
        assert after["restarts"] == 1
        assert not is_alive(pid)
    # The replacement may answer before it is logged. ``stop`` joins the thread that logs.
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == (
        f"the timeline service's process {pid} did not answer for 3 s and was killed;"
        f" process {after['pid']} replaces it on {url} (restart 1)"
    )


def test_a_tls_service_keeps_its_certificate_and_token(lake: Path, tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    files = {TLS_CA: "ca.pem", TLS_CERTIFICATE: "service.pem", TLS_KEY: "service.key"}
    paths = {setting: tmp_path / name for setting, name in files.items()}
    authority.cert_pem.write_to_path(str(paths[TLS_CA]))
    issued.private_key_pem.write_to_path(str(paths[TLS_KEY]))
    for blob in issued.cert_chain_pems:
        blob.write_to_path(str(paths[TLS_CERTIFICATE]), append=True)
    settings = Settings.parse(
        {setting.name: str(path) for setting, path in paths.items()}, SERVICE_SETTINGS
    )
    with TimelineService([str(lake)], settings=settings) as service:
        # The handshake counts as connecting, and waits for the replacement.
        session = patient(service)
        before = session.get(LATEST, params(lake / "one"))
        pid = kill(service)
        wait_for_end(pid)
        assert session.get(LATEST, params(lake / "one")) == before
        assert status_of(service)["restarts"] == 1


def test_a_replacement_with_rocksdb_continues_from_the_stored_view(
    lake: Path, tmp_path: Path
) -> None:
    """Its store is free: the child that was killed is reaped before another is started."""
    with TimelineService([lake], storage="rocksdb", store_dir=tmp_path) as service:
        session = patient(service)
        before = session.get(LATEST, params(lake / "one"))
        wait_for_end(kill(service))
        assert session.get(LATEST, params(lake / "one")) == before
        (table,) = status_of(service)["tables"].values()
        loads = [name for name in table["counters"] if name.startswith("partition_loads")]
        assert loads
        assert all("source=record" in name for name in loads)


def test_after_three_restarts_in_vain_it_gives_up_and_refuses_connections(
    lake: Path, broken_start: BrokenStart, caplog: pytest.LogCaptureFixture
) -> None:
    # A clock that stands still: all restarts count, however long they take.
    with TimelineService([str(lake)], clock=ManualClock(0)) as service:
        at, url = address(service), service.url
        broken_start.fail()
        pid = kill(service)
        with socket.create_connection(at, timeout=PATIENCE_S) as waiting:
            with pytest.raises(ServiceUnreachableError, match=f"on {url} has ended"):
                service.add_root(str(lake / "two"))
            assert not service.is_running
            assert is_refused(at)
            # A connection in the backlog is cut off, too.
            with pytest.raises(ConnectionResetError):
                waiting.recv(1)
        lines = [record.getMessage() for record in caplog.records if "process" in record.msg]
        failed, last = lines[:-1], lines[-1]
        assert len(failed) == RESTARTS
        assert all(
            "can't be replaced: the timeline service's process ended with 1" in line
            for line in failed
        )
        assert "this httptools is broken" in failed[0]
        assert last == (
            f"the timeline service's process {pid} ended with -9; it is not replaced any more"
            f" after 3 restarts within 60 s, and {url} is closed"
        )
    assert not is_alive(pid)


def test_a_child_that_dies_again_and_again_is_not_replaced_for_ever(lake: Path) -> None:
    clock = ManualClock(0)
    with TimelineService([str(lake)], clock=clock) as service:
        at = address(service)
        for _ in range(RESTARTS + 1):
            kill(service)
        with pytest.raises(ServiceUnreachableError):
            service.add_root(str(lake / "two"))
        assert is_refused(at)


def test_the_limit_counts_restarts_within_a_moving_window() -> None:
    limit = RestartLimit()
    assert [limit.allow(now) for now in (0, 10, 20, 59.9)] == [True, True, True, False]
    assert [limit.allow(now) for now in (60, 60.1, 70, 79.9, 80)] == [
        True,
        False,
        True,
        False,
        True,
    ]


def test_the_log_is_one_line_a_start(lake: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "strandline"), TimelineService([str(lake)]) as service:
        pid = kill(service)
        wait_for_end(pid)
        # Returns once the replacement counts as serving: until then ``stop`` would kill it.
        service.add_root(str(lake / "two"))
        url, after = service.url, status_of(service)
    # The replacement may answer before it is logged. ``stop`` joins the thread that logs.
    started, line = [record.getMessage() for record in caplog.records]
    assert started.startswith(f"the timeline service serves {lake} on http://")
    assert line == (
        f"the timeline service's process {pid} ended with -9; process {after['pid']}"
        f" replaces it on {url} (restart 1)"
    )
