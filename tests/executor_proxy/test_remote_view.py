"""``RemoteView`` over a real socket: recorded answers, pinning, and malformed answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from executor_proxy.failover import ServiceClient
from executor_proxy.http import HttpSession
from executor_proxy.remote_view import RemoteView
from executor_proxy.worker_state import this_worker
from fsview.model.file_group import FileSlice
from fsview.model.file_system_view import LookupQuery
from fsview.table_view import TableView
from fsview.wire.json_form import PathForms
from fsview.wire.lookup_form import LOOKUP_PATH
from tests.conformance.view_suite import ViewSuite, servers
from tests.executor_proxy.scripted_server import Reply, Request, ScriptedServer
from tests.executor_proxy.serving import server_of
from tests.fsview.subject import BY_PATH, LocalClient
from tests.kit.tables import golden
from tests.kit.tables.small_table import SmallTable
from timeline.errors import BadAnswerError, StrandlineError, ViewBehindError

ARGUMENTS = {
    "latest_base_files": ("partition",),
    "latest_base_file": ("partition", "file_id"),
    "all_file_groups": ("partition",),
    "all_latest_file_slices_before_or_on": ("max_instant",),
}
A, B = ("p=1", "a-0"), ("p=2", "b-0")


def service_at(url: str, token: str | None = None) -> ServiceClient:
    return ServiceClient((HttpSession(url, token),), this_worker().circuit, "/t")


class RemoteClient:
    """Takes recorded requests apart, asks a remote view, and puts its answer into a body again."""

    def __init__(self, url: str, base_path: str) -> None:
        self.base_path = base_path
        self._service = service_at(url)

    def ask(self, method: str, path: str, params: Mapping[str, str]) -> tuple[int, bytes]:
        route = BY_PATH[method, path.rstrip("/")]
        view = RemoteView(
            self._service,
            self.base_path,
            params.get("lastinstantts", ""),
            params.get("timelinehash", ""),
        )
        try:
            answer = (
                view.sync() if route.name == "sync" else route.answer(view, route.arguments(params))
            )
        except StrandlineError as error:
            return error.status, str(error).encode()
        return 200, route.encode(answer, PathForms.of(self.base_path))


@pytest.mark.property
class TestRecordings(ViewSuite):
    """Nothing is lost on the way to the wire format and back."""

    @contextmanager
    def serving(self, scenario: str, step: int, directory: Path) -> Iterator[RemoteClient]:
        table = TableView(golden.GoldenStorage(scenario, step, str(directory)))
        with server_of(table) as server:
            yield RemoteClient(server.url, str(directory))

    def steps(self, scenario: str) -> tuple[tuple[str, int], ...]:
        return tuple(
            (server, golden.recorded_steps(scenario, server)[-1]) for server in servers(scenario)
        )


def remote(server: ScriptedServer, table: SmallTable, timeline=None) -> RemoteView:
    timeline = timeline or table.meta.active_timeline().client_timeline()
    last = timeline.last.requested_time if timeline.last else ""
    return RemoteView(service_at(server.url), table.storage.base_path, last, timeline.hash)


def test_what_is_asked_and_what_comes_back():
    table = SmallTable()
    table.write(A, B)
    time = table.write(A)
    with server_of(TableView(table.storage)) as server:
        view = remote(server, table)
        (found,) = view.latest_file_slices("p=1")
        assert isinstance(found, FileSlice)
        assert found.base_instant == time
        assert view.latest_base_file("p=1", "nobody") is None
        assert view.latest_file_slices("nowhere") == ()
        assert [f.path for f in view.all_base_files("p=1")] == [
            file.path for file in table.model.versions("p=1")["a-0"]
        ]
        everything = view.all_latest_file_slices_before_or_on(time)
        assert list(everything) == ["p=1", "p=2"]
        view.load_partitions(["p=1", "p=2"], by_listing=True)  # the server decides
        assert len(view.all_latest_base_files()) == 2
        assert view.last_instant().requested_time == time
        view.close()
    asked = server.requests[0].params
    assert asked == {
        "basepath": "/memory/t",
        "partition": "p=1",
        "lastinstantts": time,
        "timelinehash": table.meta.active_timeline().client_timeline().hash,
    }


def test_a_remote_view_answers_at_its_instant_while_the_table_moves_on():
    table = SmallTable()
    first = table.write(A)
    served = TableView(table.storage)
    with server_of(served) as server:
        view = remote(server, table)
        assert [f.instant for f in view.latest_base_files("p=1")] == [first]
        second = table.write(A)
        served.sync()
        assert [f.instant for f in view.latest_base_files("p=1")] == [first]
        assert view.timeline.last.requested_time == first
        assert view.last_instant().requested_time == first
        view.sync()
        assert [f.instant for f in view.latest_base_files("p=1")] == [second]
        assert view.pin[0] == second
        assert view.timeline.hash == view.pin[1]


def test_an_empty_timeline_is_pinned_without_a_last_instant():
    table = SmallTable()
    with server_of(TableView(table.storage)) as server:
        view = remote(server, table)
        assert view.latest_base_files("p=1") == ()
        assert view.last_instant() is None
    assert "lastinstantts" not in server.requests[0].params


def test_a_timeline_that_is_not_the_services_is_behind():
    table = SmallTable()
    table.write(A)
    with server_of(TableView(table.storage)) as server:
        view = RemoteView(service_at(server.url), table.storage.base_path, "2", "00")
        with pytest.raises(ViewBehindError):
            view.latest_base_files("p=1")
        with pytest.raises(ViewBehindError, match="no longer contains"):
            _ = view.timeline


def test_an_answer_that_is_none_is_a_bad_answer(subtests):
    for body in [
        b"",
        b"{",
        b"null",
        b"{}",
        b"[1]",
        b'[{"fileStatus": null}]',
        b'[{"fullPath": "/elsewhere/f", "fileLen": 1, "fileId": "f", "commitTime": "1"}]',
        b"<html>",
        b"\xff",
    ]:
        with subtests.test(body=body), ScriptedServer(lambda _, body=body: Reply(body)) as server:
            view = RemoteView(service_at(server.url), "/t", "1", "00")
            with pytest.raises(BadAnswerError):
                view.latest_base_files("p")


def test_an_empty_answer_of_the_wrong_kind_is_not_taken_for_no_files():
    answers = {"latest_base_files": (b"{}", b'""', b"null"), "latest_base_file": (b"{}", b"null")}
    answers |= {"all_file_groups": (b"{}", b"0"), "pending_compaction_operations": (b"{}",)}
    answers |= {"all_latest_file_slices_before_or_on": (b"[]", b"null"), "timeline": (b"[]",)}
    said = [b""]
    with ScriptedServer(lambda request: Reply(said[0])) as server:
        view = RemoteView(service_at(server.url), "/t", "1", "00")
        for name, bodies in answers.items():
            for said[0] in bodies:
                with pytest.raises(BadAnswerError):
                    view.ask(name, **dict.fromkeys(ARGUMENTS.get(name, ()), "x"))


def test_the_token_is_not_in_its_repr():
    view = RemoteView(service_at("http://h:1", "secret"), "/t", "1", "00")
    assert "secret" not in repr(view)
    assert "/t" in repr(view)


def test_a_server_without_batches_is_asked_one_by_one_and_for_a_batch_only_once(
    table: SmallTable,
) -> None:
    """As Hudi's server is: it answers 404."""
    client = LocalClient(TableView(table.storage))

    def answer(request: Request) -> Reply:
        if request.path == LOOKUP_PATH:
            return Reply(b"Not found", 404, close=True)
        status, body = client.ask(request.method, request.path, request.params)
        return Reply(body, status)

    with ScriptedServer(answer) as server:
        view = RemoteView(service_at(server.url), table.storage.base_path, *table.known())
        queries = [LookupQuery("latest_base_files", ("p=1", "p=2"))]
        for _ in range(2):
            ((first, second),) = view.look_up(queries)
            assert [file.file_id for file in (*first, *second)] == ["a-0", "b-0"]
        asked = [request.path for request in server.requests]
    single = "/v1/hoodie/view/datafiles/latest/partition"
    assert asked == [LOOKUP_PATH, *[single] * 4]
