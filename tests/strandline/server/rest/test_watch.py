"""Watchers are told of changes at once, share one look, and hold no thread."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from executor_proxy.view_location import NEWEST, LocatedView, ViewLocation, connect
from fsview.metrics import EXPORTED_TABLES
from fsview.table_view import TableView
from fsview.wire.routes import BY_NAME
from strandline.fleet.forward import Forwarded, Forwarder
from strandline.fleet.peer_connection import CountedBody, PeerAnswer, Received
from strandline.server.http.server import ServiceServer
from strandline.server.http.server_options import ServerOptions
from strandline.server.log_format import REQUEST
from strandline.server.process.composition_root import Parts, _watch_s
from strandline.server.process.options import PartsOptions
from strandline.server.rest.parameter import Refusal
from strandline.server.rest.watch import AT_MOST, Look, TableMark, Watches, look_at_owner
from tests.kit.concurrency.patience import PATIENCE_S, pause
from tests.kit.servers.live_service import TOKEN, HttpClient, running
from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables.small_table import SmallTable
from timeline.errors import ConfigError, StorageUnavailableError, StrandlineError
from timeline.storage.local import LocalStorage
from timeline.storage.table_id import TableId

SYNC = BY_NAME["sync"]
NEVER_S = 80_000.0
"""Between two looks: a test ends before the second one."""


def mark(number: int) -> TableMark:
    return TableMark(str(number), f"{number:064d}.0", (f"{number:064d}", f"{number:064d}"))


class Looking:
    """A table whose state a test sets; ``pauses`` are ended by it."""

    def __init__(self) -> None:
        self.state, self.looks, self.error = mark(1), 0, None
        self.pauses: list[asyncio.Future[None]] = []
        self.paused = asyncio.Event()

    async def look(self, _: TableMark | None, __: frozenset[str]) -> Look:
        self.looks += 1
        if self.error is not None:
            raise self.error
        return Look(self.state, 1.0)

    async def pause(self, _: float) -> None:
        self.pauses.append(asyncio.get_running_loop().create_future())
        self.paused.set()
        await self.pauses[-1]

    async def next_look(self) -> None:
        await self.paused.wait()
        self.paused.clear()
        self.pauses[-1].set_result(None)


def run(test: Callable[[Watches, Looking], Awaitable[None]], at_most: int = AT_MOST) -> None:
    async def ran() -> None:
        looking = Looking()
        await asyncio.wait_for(
            test(Watches(at_most=at_most, pause=looking.pause), looking), PATIENCE_S
        )

    asyncio.run(ran())


def test_one_look_tells_all_watchers_of_a_table() -> None:
    async def test(watches: Watches, looking: Looking) -> None:
        first, changed = await watches.wait("t", None, PATIENCE_S, looking.look)
        assert (first, changed) == (mark(1), True)
        looking.paused.clear()
        waiting = [
            asyncio.ensure_future(watches.wait("t", after, PATIENCE_S, looking.look))
            for after in (mark(1).mark, mark(1).hashes[0], mark(1).mark)
        ]
        await looking.paused.wait()
        looks = looking.looks
        await looking.next_look()
        await looking.paused.wait()
        assert not any(each.done() for each in waiting)
        looking.state = mark(2)
        await looking.next_look()
        assert [*await asyncio.gather(*waiting)] == [(mark(2), True)] * 3
        assert looking.looks == looks + 2
        assert watches.count == 0

    run(test)


def test_nobody_looks_without_watchers() -> None:
    async def test(watches: Watches, looking: Looking) -> None:
        found = await watches.wait("t", mark(1).mark, 0.0, looking.look)
        assert found == (mark(1), False)
        await asyncio.sleep(0)
        before = looking.looks
        for each in looking.pauses:
            assert each.cancelled()
        await asyncio.sleep(0)
        assert looking.looks == before == 1

    run(test)


def test_a_watcher_without_patience_is_told_what_one_look_finds() -> None:
    async def test(watches: Watches, looking: Looking) -> None:
        found = await watches.wait("t", mark(2).mark, 0.0, looking.look)
        assert found == (mark(1), True)

    run(test)


def test_looks_have_no_request_s_context() -> None:
    async def test(watches: Watches, looking: Looking) -> None:
        requests: list[str] = []

        async def look(before: TableMark | None, newer: frozenset[str]) -> Look:
            requests.append(REQUEST.get())
            return await looking.look(before, newer)

        REQUEST.set("first")
        await watches.wait("t", None, PATIENCE_S, look)
        assert requests == [""]

    run(test)


def test_a_table_is_looked_at_again_after_an_unforeseen_error() -> None:
    async def test(watches: Watches, looking: Looking) -> None:
        joined: list[asyncio.Task[tuple[TableMark | None, bool]]] = []

        async def look(before: TableMark | None, newer: frozenset[str]) -> Look:
            if not joined:
                # It comes after the error is told, and before the one that is told has left.
                waits = watches.wait("t", None, PATIENCE_S, look)
                joined.append(asyncio.get_running_loop().create_task(waits))
                raise ValueError("unforeseen")
            return await looking.look(before, newer)

        with pytest.raises(StrandlineError, match="can't be looked at"):
            await watches.wait("t", None, PATIENCE_S, look)
        await looking.next_look()
        assert await joined[0] == (mark(1), True)

    run(test)


def test_a_sync_during_a_look_is_not_lost() -> None:
    async def test(watches: Watches, looking: Looking) -> None:
        table = SmallTable(MemoryStorage("/t"))
        table.write(("p=1", "a-0"))
        view = TableView(table.storage)
        older = TableMark.of(view.sync())

        async def look(_: TableMark | None, __: frozenset[str]) -> Look:
            looking.looks += 1
            table.write(("p=1", f"b-{looking.looks}"))
            watches.synced(view.table_id, view.sync())
            return Look(older, 1.0, view)

        found = await watches.wait("t", older.mark, PATIENCE_S, look)
        assert found == (TableMark.of(view.newest()), True)
        assert looking.looks == 1

    run(test)


class Owner(Forwarder):
    """Another server that answers a watch with this text."""

    def __init__(self, body: bytes) -> None:
        super().__init__("http://here:1", lambda *_: [], None)
        self._body = body

    async def ask(self, urls: Sequence[str], request: Forwarded) -> PeerAnswer:
        assert urls
        assert request.waits
        return PeerAnswer(200, {}, self._body, CountedBody(Received(), 0))


@pytest.mark.parametrize("before", [None, mark(1)])
def test_an_owner_that_knows_no_state_tells_nothing(before: TableMark | None) -> None:
    unknown = b'{"state": "", "hash": null, "instant": null, "changed": false}'
    for body, known in ((unknown, before), (b"[]", None), (b"<html>", None)):
        look = look_at_owner(Owner(body), ("http://a:1",), "/t", before, frozenset())
        found = asyncio.run(look)
        assert (found if isinstance(found, TableMark) else None) == known


@pytest.mark.property
def test_one_watcher_too_many_is_told_when_to_come_again() -> None:
    async def test(watches: Watches, looking: Looking) -> None:
        waiting = [
            asyncio.ensure_future(watches.wait(f"t{n % 7}", mark(1).mark, PATIENCE_S, looking.look))
            for n in range(AT_MOST)
        ]
        await looking.paused.wait()
        assert watches.count == AT_MOST
        with pytest.raises(Refusal) as refused:
            await watches.wait("t0", mark(1).mark, PATIENCE_S, looking.look)
        assert (refused.value.status, refused.value.code) == (503, "too_many_watchers")
        assert refused.value.retry_after_s > 0
        waiting.pop().cancel()
        await asyncio.sleep(0)
        again = await watches.wait("t0", None, PATIENCE_S, looking.look)
        assert again == (mark(1), True)
        watches.end()
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert set(ended) == {(mark(1), False)}

    run(test)


def test_a_failed_look_is_every_watcher_s_error() -> None:
    async def test(watches: Watches, looking: Looking) -> None:
        looking.error = StorageUnavailableError("it is away")
        for _ in range(2):
            with pytest.raises(StorageUnavailableError, match="it is away"):
                await watches.wait("t", mark(1).mark, PATIENCE_S, looking.look)
        looking.error = None
        assert (await watches.wait("t", None, PATIENCE_S, looking.look))[1]

    run(test)


class Served:
    """A served table in memory, which nobody looks at twice."""

    def __init__(self, table: SmallTable, server: ServiceServer) -> None:
        self.table, self.server = table, server
        self.url = server.url

    def ask(self, path: str, **params: str) -> Any:
        with HttpClient(self.server.port) as client:
            answered = client.request("GET", path, params)
        assert answered.status == 200, answered.body
        return json.loads(answered.body)

    def wait_for_watchers(self, count: int) -> None:
        while self.server.parts.rest.watches.count != count:
            pause()

    def lists(self) -> int:
        calls = self.table.storage.calls.snapshot()
        return sum(n for (kind, _), n in calls.items() if kind == "list")


@contextmanager
def served(watch_s: float = NEVER_S) -> Iterator[Served]:
    table = SmallTable(MemoryStorage("/t"))
    table.write(("p=1", "a-0"))
    parts = Parts(PartsOptions(("/t",), TOKEN, watch_s=watch_s), opener=lambda *_: table.storage)
    with running(ServiceServer(parts, ServerOptions())) as server:
        yield Served(table, server)


@pytest.mark.property
def test_refresh_wakes_watchers_and_they_cost_no_lists() -> None:
    with served() as service, ThreadPoolExecutor(3) as pool:
        state = service.ask("/v2/watch", table="/t")["state"]
        lists = service.lists()
        waiting = [
            pool.submit(service.ask, "/v2/watch", table="/t", after=state, timeout="60")
            for _ in range(3)
        ]
        service.wait_for_watchers(3)
        service.table.write(("p=1", "b-0"))
        assert service.lists() == lists
        with HttpClient(service.server.port) as client:
            client.request(SYNC.method, SYNC.path, {"basepath": "/t"})
        answers = [each.result(PATIENCE_S) for each in waiting]
        assert all(answer["changed"] for answer in answers)
        newest = service.ask("/v2/timeline", table="/t")
        assert {answer["state"] for answer in answers} == {newest["state"]} != {state}
        assert {answer["instant"] for answer in answers} == {newest["instant"]}
        assert service.lists() == lists + 1


@pytest.mark.property
def test_a_pending_instant_changes_the_state_too() -> None:
    with served(watch_s=0.05) as service, ThreadPoolExecutor(1) as pool:
        state = service.ask("/v2/watch", table="/t")["state"]
        waiting = pool.submit(service.ask, "/v2/watch", table="/t", after=state, timeout="60")
        service.wait_for_watchers(1)
        service.table.begin([("p=1", "b-0")])
        answer = waiting.result(PATIENCE_S)
        assert answer["changed"]
        assert answer["state"].partition(".")[0] == state.partition(".")[0]
        assert service.ask("/v2/pending", table="/t")["rows"]


@pytest.mark.property
def test_a_client_that_knows_a_newer_state_than_the_service_waits() -> None:
    with served() as service, ThreadPoolExecutor(1) as pool:
        state = service.ask("/v2/watch", table="/t")["state"]
        for others in (0, 1):
            waiting = [
                pool.submit(service.ask, "/v2/watch", table="/t", after=state, timeout="60")
                for _ in range(others)
            ]
            service.wait_for_watchers(others)
            service.table.write(("p=1", f"b-{others}"))
            newer = TableMark.of(TableView(service.table.storage).sync())
            for after in (newer.mark, newer.hashes[1]):
                answer = service.ask("/v2/watch", table="/t", after=after, timeout="0.1")
                assert (answer["changed"], answer["state"]) == (False, newer.mark)
            assert [each.result(PATIENCE_S)["state"] for each in waiting] == [newer.mark] * others
            state = newer.mark


@pytest.mark.property
def test_a_wait_at_a_service_with_too_many_watchers_ends_in_time() -> None:
    with served() as service:
        view = connect(service.url, "/t", token=TOKEN, fallback=False)
        service.server.parts.rest.watches = Watches(at_most=0)
        began_s = time.monotonic()
        assert not view.wait_for_change(0.2)
        assert 0.2 <= time.monotonic() - began_s < PATIENCE_S


def test_waits_are_no_slow_requests() -> None:
    with served() as service:
        service.ask("/v2/watch", table="/t")
        service.ask("/v2/timeline", table="/t")
        timed = {each.route for each in service.server.parts.latencies.snapshot()}
        assert "/v2/timeline" in timed
        assert "/v2/watch" not in timed


@pytest.mark.property
def test_the_status_finds_a_table_by_the_text_in_the_rows(tmp_path: Path) -> None:
    lake, link = tmp_path / "lake", tmp_path / "link"
    SmallTable(LocalStorage(str(lake / "t"))).write(("p=1", "a-0"))
    link.symlink_to(lake)
    parts = Parts(PartsOptions((str(link),), TOKEN))
    with running(ServiceServer(parts, ServerOptions())) as server:
        served = Served(SmallTable(LocalStorage(str(lake / "t"))), server)
        served.ask("/v2/timeline", table=str(link / "t"))
        (row,) = served.ask("/v2/tables")["rows"]
        assert row["table"] == f"file://{link}/t"
        asked = {"table": row["table"], "names": "strandline_syncs"}
        metrics = served.ask("/v2/status", **asked)["servers"][0]["metrics"]
        labels = [s["labels"]["table"] for s in metrics["strandline_syncs_total"]["samples"]]
        assert labels == [f"file://{lake}/t"]


@pytest.mark.property
def test_a_view_waits_for_a_change() -> None:
    with served() as service, ThreadPoolExecutor(1) as pool:
        view = connect(service.url, "/t", token=TOKEN, fallback=False)
        assert isinstance(view, LocatedView)
        assert not view.wait_for_change(0.0)
        waiting = pool.submit(view.wait_for_change, PATIENCE_S)
        service.wait_for_watchers(1)
        service.table.write(("p=1", "b-0"))
        with HttpClient(service.server.port) as client:
            client.request(SYNC.method, SYNC.path, {"basepath": "/t"})
        assert waiting.result(PATIENCE_S)
        assert view.wait_for_change(0.0)
        view.sync()
        assert {file.file_id for file in view.latest_base_files("p=1")} == {"a-0", "b-0"}
        assert not view.wait_for_change(0.0)


@pytest.mark.property
def test_the_status_has_any_table_s_own_figures() -> None:
    with served() as service:
        exported = service.server.parts.metrics.exported
        for number in range(EXPORTED_TABLES):
            exported.add(f"file:///other{number}", ("syncs", ()), 1)
        service.ask("/v2/partitions", table="/t")
        names = "strandline_syncs,strandline_storage_calls,strandline_partitions_loaded"
        for table in ("/t", "file:///t"):
            found = service.ask("/v2/status", table=table, names=names)["servers"][0]["metrics"]
            for name in ("syncs_total", "storage_calls_total", "partitions_loaded"):
                samples = found[f"strandline_{name}"]["samples"]
                assert {sample["labels"]["table"] for sample in samples} == {"file:///t"}
                assert sum(sample["value"] for sample in samples) >= 1


def test_a_view_without_a_service_cant_wait(tmp_path) -> None:
    view = ViewLocation(str(tmp_path), (), None, {}, "", NEWEST).open()
    with pytest.raises(ConfigError, match="needs a service"):
        view.wait_for_change(0.0)


def test_a_server_that_stops_answers_its_watchers() -> None:
    with ThreadPoolExecutor(1) as pool:
        with served() as service:
            state = service.ask("/v2/watch", table="/t")["state"]
            waiting = pool.submit(service.ask, "/v2/watch", table="/t", after=state, timeout="60")
            service.wait_for_watchers(1)
        answer = waiting.result(PATIENCE_S)
        assert (answer["changed"], answer["state"]) == (False, state)


def test_how_often_a_table_is_looked_at_depends_on_its_storage() -> None:
    assert _watch_s(0.0, TableId.of("/t")) == 1.0
    assert _watch_s(0.0, TableId.of("s3://bucket/t")) == 10.0
    assert _watch_s(3.0, TableId.of("s3://bucket/t")) == 3.0
