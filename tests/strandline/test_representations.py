"""What views, tables, clients and results say of themselves: place and state, never a token."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from executor_proxy import connect
from executor_proxy.worker_state import start_anew
from fsview.local_view import LocalView
from fsview.table_view import TableView
from strandline import LocalEngine, Table, WriteClient
from strandline.client import RestClient
from strandline.server.process.timeline_service import TimelineService
from strandline.write.result import WriteResult
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.tables.small_table import SmallTable
from timeline.storage.local import LocalStorage

OPTIONS = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.embed.timeline.server": False,
}
TOKEN = "a-token-that-nobody-should-see"

CONNECT = """
import json, sys
from executor_proxy import connect
from executor_proxy.failover import Patience
patience, wrong = Patience(first_s=float(sys.argv[1])), json.load(sys.stdin)
print(json.dumps([repr(connect(*a, token=t, patience=patience)) for *a, t in wrong * 2]))
"""


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    start_anew()
    found = SmallTable(LocalStorage(str(tmp_path / "t")))
    found.write(("p=1", "a-0"))
    return found


@pytest.mark.property
def test_a_wrong_token_root_or_port_is_told_once_on_stderr_and_shown(
    table: SmallTable, tmp_path: Path
) -> None:
    base, other = str(tmp_path / "t"), str(tmp_path / "other")
    SmallTable(LocalStorage(other)).write(("p=1", "a-0"))
    with TimelineService([base], in_process=True) as service:
        dead = "http://127.0.0.1:9"
        wrong = [
            (service.url, base, TOKEN),
            (service.url, other, service.token),
            (dead, base, service.token),
        ]
        ran = subprocess.run(
            [sys.executable, "-c", CONNECT, str(PATIENCE_S)],
            input=json.dumps(wrong),
            capture_output=True,
            text=True,
            check=True,
        )
        assert str(service.token) not in ran.stdout + ran.stderr
    assert TOKEN not in ran.stdout + ran.stderr
    reasons = ("401: this service wants its bearer token", "outside the roots served", "listens")
    lines = ran.stderr.splitlines()
    views = json.loads(ran.stdout)
    assert len(lines) == len(reasons)
    for reason, line, once, again, (url, path, _) in zip(
        reasons, lines, views[:3], views[3:], wrong, strict=True
    ):
        assert line.startswith("listing storage instead of asking the timeline service: ")
        assert reason in line
        for view in (once, again):
            assert f"LocatedView({path!r}" in view
            assert f"service={url} failed, listing storage: " in view
            assert reason in view


def test_a_view_names_its_table_instant_and_service(table: SmallTable, tmp_path: Path) -> None:
    base, last = str(tmp_path / "t"), table.meta.active_timeline().last_time
    with TimelineService([base], in_process=True) as service:
        view = connect(service.url, base, token=service.token)
        shown = f"LocatedView({base!r}, at={last!r}, service={service.url})"
        assert repr(view) == repr(pickle.loads(pickle.dumps(view))) == shown
        assert repr(RestClient(service.url, service.token)) == f"RestClient({service.url!r})"
        kind = "COPY_ON_WRITE, version 9"
        asking = Table(base, service=service.url, token=service.token)
        assert repr(asking) == f"Table({base!r}, {kind}, service={service.url})"
        assert repr(Table(base)) == f"Table({base!r}, {kind})"
    own = TableView(table.storage)
    assert repr(LocalView.newest(own)) == f"LocalView({base!r}, at={last!r})"
    assert repr(own) == f"TableView({base!r})"


def test_a_client_names_its_table_and_service(tmp_path: Path) -> None:
    base = str(tmp_path / "t")
    with WriteClient(LocalEngine(), base, OPTIONS) as client:
        assert repr(client) == f"WriteClient({base!r}, service=off)"
    assert repr(client) == f"WriteClient({base!r}, closed)"
    with WriteClient(LocalEngine(), base, {**OPTIONS, "hoodie.embed.timeline.server": True}) as own:
        assert repr(own) == f"WriteClient({base!r}, service=not started)"


def test_a_result_fits_on_a_line() -> None:
    result = WriteResult("20261130", "UPSERT", "driver", 3, 2, 1, 4, 5120, {"tag": 1, "write": 2})
    assert repr(result) == (
        "WriteResult(20261130 UPSERT: 3 inserted, 2 updated, 1 deleted, 4 files of 5120 bytes,"
        " 3.0 s by driver)"
    )
    failed = WriteResult("20261130", "INSERT", rolled_back=("20261129",), warnings=("a", "b"))
    assert repr(failed).endswith(" by driver, rolled back: 1, warnings: 2)")


@pytest.mark.property
def test_a_client_that_has_written_names_its_service(tmp_path: Path) -> None:
    base = str(tmp_path / "t")
    with WriteClient(LocalEngine(), base, {**OPTIONS, "hoodie.embed.timeline.server": True}) as own:
        own.upsert(pa.table({"id": ["a"]}))
        service = own.service
        assert service is not None
        assert repr(own) == f"WriteClient({base!r}, service={service.url})"
        assert str(service.token) not in repr(own) + repr(service)
