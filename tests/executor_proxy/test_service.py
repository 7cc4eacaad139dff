"""Proxy and service together: a job's look-ups, tokens, roots, and a service that goes away."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from executor_proxy.report import LookupReport
from executor_proxy.view_location import ViewLocation, connect
from fsview.model.file_system_view import FileSystemView
from strandline.server.process.timeline_service import TimelineService
from tests.kit.tables.small_table import SmallTable
from timeline.errors import RemoteFailureError, RootNotAllowedError
from timeline.storage.local import LocalStorage

A, B = ("p=1", "a-0"), ("p=2", "b-0")


@pytest.fixture
def service(table: SmallTable) -> Iterator[TimelineService]:
    with TimelineService([table.storage.base_path], in_process=True) as running:
        yield running


def location(table: SmallTable, service: TimelineService, **more) -> ViewLocation:
    token = more.pop("token", service.token)
    base = table.storage.base_path
    return ViewLocation(base, (service.url,), token, {}, *table.known(), **more)


def test_a_job_looks_up_through_the_service_and_lists_nothing(table, service):
    report = LookupReport()
    for _ in range(3):
        view = location(table, service).open(report)
        assert {f.path for p in ("p=1", "p=2") for f in view.latest_base_files(p)} == (
            table.model.read_at("9")
        )
        table.write(A)
    assert {each.source for each in report.lookups} == {"service"}
    assert report.storage_calls() == {}


def test_a_relative_base_path_is_the_callers(table, service, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    view = connect(service.url, "t", token=service.token, fallback=False)
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert {f.path for f in view.latest_base_files("p=2")} < table.model.read_at("9")


def test_a_wrong_token_is_a_failure_that_says_so(table, service):
    view = location(table, service, token="wrong", fallback=False).open()
    with pytest.raises(RemoteFailureError, match="token is this service's"):
        view.latest_base_files("p=1")
    assert location(table, service, token="wrong").open().latest_base_files("p=1")


def test_a_table_outside_the_roots_is_refused_and_listed_by_the_task(table, service, tmp_path):
    other = SmallTable(LocalStorage(str(tmp_path / "other")))
    other.write(A)
    report = LookupReport()
    view = location(other, service).open(report)
    assert {f.path for f in view.latest_base_files("p=1")} == other.model.read_at("9")
    assert [each.cause for each in report.fallbacks] == ["refused"]
    view = location(other, service, fallback=False).open()
    with pytest.raises(RootNotAllowedError):
        view.latest_base_files("p=1")


def test_views_outlive_the_root_of_their_table(table, service):
    def connected() -> FileSystemView:
        return connect(service.url, table.storage.base_path, token=service.token)

    view = connected()
    insisting = connect(service.url, table.storage.base_path, token=service.token, fallback=False)
    pickled = pickle.dumps(view)
    service.remove_root(table.storage.base_path)
    for each in (view, pickle.loads(pickled), connected()):
        found = {f.path for p in ("p=1", "p=2") for f in each.latest_base_files(p)}
        assert found == table.model.read_at("9")
        each.sync()
    with pytest.raises(RootNotAllowedError):
        insisting.latest_base_files("p=1")
