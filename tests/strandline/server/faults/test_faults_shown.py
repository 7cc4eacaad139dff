"""Each fault that operators meet: log, metrics and status name its cause, table and client.

The page shows what the status has (`tests/ui/test_faults_on_the_page.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fsview.wire.param import WATCH_PATH
from strandline.cli.top import as_lines, watched
from strandline.client import RestClient
from strandline.server.http.limits import Limits
from strandline.server.http.server import ServiceServer
from tests.fsview.shared_work import wait_until
from tests.kit.servers.live_service import TOKEN, HttpClient, serving
from tests.kit.servers.raw_http import RawConnection, request
from tests.kit.tables.small_table import SmallTable
from tests.strandline.server.api.promtool import alerts
from tests.strandline.server.api.test_metrics import LATEST, Stuck, scrape, value
from tests.strandline.server.rest.conftest import checked
from timeline.clock import SystemClock
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.property

PEER = "127.0.0.1"


@dataclass
class Lake:
    """A table, its service, and what shows a fault of them."""

    path: Path
    server: ServiceServer
    log: pytest.LogCaptureFixture
    table: SmallTable = field(init=False)

    def __post_init__(self) -> None:
        self.table = SmallTable(LocalStorage(f"{self.path}/t"))
        self.table.write(("p=1", "a-0"))

    @property
    def name(self) -> str:
        return f"{self.path}/t"

    def asked(self, table: str = "", token: str | None = TOKEN, **more: str) -> int:
        """Return the status of a look-up."""
        params = {"basepath": table or self.name, "partition": "p=1", **more}
        with HttpClient(self.server.port, token) as client:
            return client.request("GET", LATEST, params).status

    def corrupt(self) -> Path:
        """Commit, and cut the commit's file short; return it."""
        folder = self.path / "t" / ".hoodie"
        commits = set(folder.rglob("*.commit"))
        self.table.write(("p=1", "a-0"))
        (newest,) = set(folder.rglob("*.commit")) - commits
        newest.write_bytes(b"{")
        return newest

    def is_refused(self, status: int, code: str, table: str, reason: str) -> None:
        """Check that all show the newest refusal."""
        lines = [line for line in self.log.messages if line.startswith(f"{status} {code} ")]
        assert re.search(f"to {PEER} for table {re.escape(table)}: .*{reason}", lines[-1])
        with HttpClient(self.server.port) as client:
            found = scrape(client)
            newest = shown(client)["newest_refusals"][0]
        labels = {"route": LATEST.rstrip("/"), "status": str(status), "code": code}
        assert value(found, "refusals_total", **labels) == newest["count"] == 1
        # A client may name any path: metrics name tables that are open.
        is_open = any(
            ("table", f"file://{table}") in each and ("client", PEER) not in each
            for _, each in found
        )
        label = f"file://{table}" if is_open else "other"
        assert value(found, "table_refusals_total", table=label, code=code) == 1
        kind = {"code": code, "table": f"file://{table}", "client": PEER}
        assert value(found, "client_refusals_total", **kind) == 1
        assert (newest["status"], newest["code"]) == (status, code)
        assert (newest["table"], newest["client"]) == (table, PEER)
        assert re.search(reason, newest["reason"])


def shown(client: HttpClient) -> dict[str, Any]:
    """Return what the page has of the server."""
    answered = client.request("GET", "/v2/status", {"names": "strandline_ready"})
    (server,) = checked(answered, "/v2/status")["servers"]
    found: dict[str, Any] = server
    return found


def alert(name: str) -> str:
    """Return the expression of an alert."""
    (found,) = [rule["expr"] for rule in alerts() if rule["alert"] == name]
    return str(found)


@pytest.fixture
def lake(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Lake]:
    with serving(str(tmp_path)) as server:
        yield Lake(tmp_path, server, caplog)


def test_a_job_with_a_wrong_root(lake: Lake) -> None:
    elsewhere = f"{lake.path.parent}/elsewhere/t"
    assert lake.asked(elsewhere) == 403
    lake.is_refused(403, "root_not_allowed", elsewhere, "outside the roots served")
    assert 'code="root_not_allowed"' in alert("StrandlineWrongRoot")


def test_a_job_with_a_wrong_token(lake: Lake) -> None:
    assert lake.asked(token="of another service") == 401
    lake.is_refused(401, "unauthorized", lake.name, "wants its bearer token")
    assert 'status="401"' in alert("StrandlineClientsNotAdmitted")


def test_a_corrupt_instant(lake: Lake) -> None:
    assert lake.asked() == 200
    newest = lake.corrupt()
    assert lake.asked() == 500
    lake.is_refused(500, "corrupt_metadata", lake.name, newest.name)
    with HttpClient(lake.server.port) as client:
        failures = {"table": f"file://{lake.name}", "code": "corrupt_metadata"}
        assert value(scrape(client), "sync_failures_total", **failures) >= 1
    assert "corrupt_metadata" in alert("StrandlineTableUnreadable")


def test_a_client_that_is_behind(lake: Lake) -> None:
    assert lake.asked(lastinstantts="20200101000000000", timelinehash="unknown") == 400
    lake.is_refused(400, "view_behind", lake.name, "20200101000000000")
    assert 'code="view_behind"' in alert("StrandlineClientsBehind")


def test_watchers_alone_wait_for_a_storage_that_hangs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stuck = Stuck(f"{tmp_path}/t")
    rules = {"hangs_s": 1.0, "limits": Limits(write_s=0.1)}
    with (
        serving(str(tmp_path), opener=lambda *_: stuck, **rules) as server,
        ExitStack() as stack,
    ):
        lake = Lake(tmp_path, server, caplog)
        watcher = stack.enter_context(RawConnection(server.port, "127.0.0.2"))
        watcher.socket.sendall(request(f"{WATCH_PATH}?table={lake.name}", token=TOKEN))
        wait_until(lambda: any("waited for by 127.0.0.2" in text for text in caplog.messages))
        stuck.go.set()


def test_a_table_whose_storage_hangs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stuck = Stuck(f"{tmp_path}/t")
    # Opening the table, before the call, takes far less than half of `hangs_s`.
    rules = {"hangs_s": 1.0, "limits": Limits(write_s=0.1), "metrics_port": 0}
    with (
        serving(str(tmp_path), opener=lambda *_: stuck, **rules) as server,
        HttpClient(server.port) as client,
        HttpClient(server.metrics_port or 0) as scraper,
        ThreadPoolExecutor(1) as pool,
        ExitStack() as stack,
    ):
        lake = Lake(tmp_path, server, caplog)
        scrape(scraper)
        watcher = stack.enter_context(RawConnection(server.port, "127.0.0.2"))
        watcher.socket.sendall(request(f"{WATCH_PATH}?table={lake.name}", token=TOKEN))
        waiting = pool.submit(lake.asked)
        wait_until(lambda: any("a request has held a thread" in m for m in caplog.messages))
        found = scrape(scraper)
        (row,) = shown(client)["hanging"]
        frames = watched(RestClient(server.url, TOKEN).get, SystemClock(), lambda _: None, 1.0)
        in_a_terminal = [*as_lines(server.url, next(frames)[0])]
        stuck.go.set()
        assert waiting.result() == 200
        wait_until(lambda: shown(client)["hanging"] == [])
    for lines in (caplog.messages, in_a_terminal):
        (line,) = [each for each in lines if "a request has held a thread" in each]
        held = rf"{re.escape(lake.name)}: a request has held a thread for \d+ s; calls to its"
        assert re.fullmatch(
            rf"{held} storage: list for timeline, \d+ s; waited for by {PEER}", line
        )
    assert (row["table"], row["clients"]) == (lake.name, [PEER])
    assert [(each["kind"], each["cause"]) for each in row["calls"]] == [("list", "timeline")]
    longest = {"table": "other", "kind": "list", "cause": "timeline"}
    assert value(found, "storage_call_longest_seconds", **longest) > 0
    waits = {"table": f"file://{lake.name}", "client": PEER}
    assert value(found, "request_hanging_seconds", **waits) >= 1
    assert "storage_call_longest_seconds" in alert("StrandlineStorageHangs")
