"""``/healthz`` says why the service isn't ready, and says it soon even if something hangs."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fsview.store.base import RETRY_S
from fsview.store.rocksdb.store_directory import StorePlace
from fsview.store.stores import StoreOptions, Stores
from fsview.view_manager import ViewManager
from strandline.server.api.readiness import (
    LANES,
    STOPPING,
    Health,
    Readiness,
    ReadinessCheck,
    ServiceChecks,
)
from strandline.server.http.server import ServiceServer
from strandline.server.http.server_options import ServerOptions
from strandline.server.process.composition_root import Parts
from strandline.server.process.options import PartsOptions
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.live_service import AppClient, HttpClient, serving
from tests.kit.tables import golden
from timeline.clock import SystemClock
from timeline.errors import StorageUnavailableError
from timeline.storage.local import LocalStorage
from timeline.storage.table_id import TableId

LATEST = "/v1/hoodie/view/slices/partition/latest/"
HANG_S = 0.05
"""How long tests wait for what hangs."""


class Things:
    """Two dependencies of a service, each of which may fail or hang; counts the looks at each."""

    def __init__(self) -> None:
        self.wrong: dict[str, str] = {"a": "", "b": ""}
        self.looked: dict[str, int] = {"a": 0, "b": 0}
        self.hanging: dict[str, threading.Event] = {}

    def __call__(self) -> dict[str, ReadinessCheck]:
        return {name: ReadinessCheck(self._look_at(name)) for name in self.wrong}

    def _look_at(self, name: str) -> Callable[[], None]:
        def look() -> None:
            self.looked[name] += 1
            if name in self.hanging:
                self.hanging[name].wait()
            if self.wrong[name]:
                raise StorageUnavailableError(self.wrong[name])

        return look


@pytest.fixture
def things() -> Iterator[Things]:
    things = Things()
    yield things
    for hanging in things.hanging.values():
        hanging.set()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(0)


def readiness(things: Things, clock: ManualClock, wait_s: float = 20) -> Readiness:
    return Readiness(things, clock, wait_s=wait_s, kept_s=1)


def test_the_service_is_ready_when_nothing_is_wrong(things: Things, clock: ManualClock) -> None:
    assert readiness(things, clock).ask().result().reasons == ()
    assert things.looked == {"a": 1, "b": 1}


def test_a_service_that_is_not_ready_gives_all_reasons(things: Things, clock: ManualClock) -> None:
    things.wrong = {"a": "gone\nfor good", "b": "full"}
    assert readiness(things, clock).ask().result().reasons == ("a: gone\\nfor good", "b: full")


def test_an_answer_holds_for_a_second(things: Things, clock: ManualClock) -> None:
    ready = readiness(things, clock)
    assert ready.ask().result().reasons == ()
    things.wrong["a"] = "gone"
    clock.advance(900)
    assert ready.ask().result().reasons == ()
    clock.advance(100)
    assert ready.ask().result().reasons == ("a: gone",)
    things.wrong["a"] = ""
    clock.advance(1000)
    assert ready.ask().result().reasons == ()
    assert things.looked == {"a": 3, "b": 3}


def test_a_hanging_check_is_reported_and_takes_one_thread(
    things: Things, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    things.wrong = {"a": ""}
    things.hanging["a"] = threading.Event()
    ready = readiness(things, clock, HANG_S)
    for seconds in (0, 10, 20):
        assert ready.ask().result().reasons == (f"a: no answer for {seconds} s",)
        clock.advance(10_000)
    assert things.looked["a"] == 1
    assert [record.getMessage() for record in caplog.records] == ["not ready: a: no answer for 0 s"]
    (looker,) = (t for t in threading.enumerate() if t.name == "readiness-check")
    things.hanging["a"].set()
    looker.join()
    clock.advance(1000)
    ready.ask().result()
    assert things.looked["a"] == 2


def test_what_hung_and_answers_is_no_reason_any_more(things: Things, clock: ManualClock) -> None:
    """If asked while a look still runs, it waits for that look's result."""
    things.hanging["a"] = threading.Event()
    hung = Readiness(things, clock, wait_s=0)
    assert hung.ask().result().reasons[0] == "a: no answer for 0 s"
    ready = readiness(things, clock)
    answer: list[tuple[str, ...]] = []
    asking = threading.Thread(target=lambda: answer.append(ready.ask().result().reasons))
    asking.start()
    things.hanging["a"].set()
    asking.join()
    assert answer == [()]


def test_a_change_is_logged_once(
    things: Things, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    ready = readiness(things, clock)
    for wrong in ("", "gone", "gone", "", ""):
        things.wrong["a"] = wrong
        ready.ask().result()
        # The change is logged after the answer, by the thread that ran the checks.
        for thread in threading.enumerate():
            if thread.name == "readiness":
                thread.join()
        clock.advance(1000)
    assert [record.getMessage() for record in caplog.records] == [
        "not ready: a: gone",
        "ready again",
    ]


def test_concurrent_probes_share_one_check(things: Things, clock: ManualClock) -> None:
    things.hanging["a"] = threading.Event()
    ready = readiness(things, clock)
    answers: list[tuple[str, ...]] = []
    threads = [
        threading.Thread(target=lambda: answers.append(ready.ask().result().reasons))
        for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    things.hanging["a"].set()
    for thread in threads:
        thread.join()
    assert answers == [()] * 20
    assert things.looked == {"a": 1, "b": 1}


def roots_of(things: Things) -> Callable[[], dict[str, ReadinessCheck]]:
    """Return checks that look at roots."""
    return lambda: {name: ReadinessCheck(check.run, root=name) for name, check in things().items()}


def test_it_is_ready_while_any_root_is_unless_all_are_required(
    things: Things, clock: ManualClock
) -> None:
    ready = Readiness(roots_of(things), clock, kept_s=0)
    strict = Readiness(roots_of(things), clock, kept_s=0, requires_roots=True)
    things.wrong = {"a": "", "b": "gone"}
    assert ready.ask().result() == Health(is_ready=True, reasons=("b: gone",))
    assert strict.ask().result() == Health(is_ready=False, reasons=("b: gone",))
    assert ready.ask("b").result() == Health(is_ready=False, reasons=("b: gone",))
    assert ready.ask("a").result() == Health(is_ready=True, reasons=())
    things.wrong = {"a": "away", "b": "gone"}
    assert not ready.ask().result().is_ready
    things.wrong = {}
    assert ready.ask().result().is_ready


def test_a_root_is_not_ready_without_the_store(things: Things, clock: ManualClock) -> None:
    things.wrong, things.looked = {"store": "full"}, {"store": 0}
    checks = {"a": ReadinessCheck(lambda: None, root="a"), **things()}
    ready = Readiness(lambda: checks, clock)
    assert ready.ask().result() == Health(is_ready=False, reasons=("store: full",))
    assert ready.ask("a").result() == Health(is_ready=False, reasons=("store: full",))


@pytest.mark.property
def test_checks_that_hang_keep_no_thread_from_the_others(
    things: Things, clock: ManualClock
) -> None:
    hanging = [f"hanging {number:02d}" for number in range(3 * LANES)]
    healthy = [f"healthy {number:02d}" for number in range(200)]
    things.wrong = dict.fromkeys((*hanging, *healthy), "")
    things.looked = dict.fromkeys(things.wrong, 0)
    things.hanging = dict.fromkeys(hanging, threading.Event())
    ready = Readiness(roots_of(things), clock)
    reasons = tuple(f"{name}: no answer for 0 s" for name in hanging)
    assert ready.ask().result() == Health(is_ready=True, reasons=reasons)
    assert set(things.looked.values()) == {1}
    for event in set(things.hanging.values()):
        event.set()


def test_a_probe_of_one_root_waits_for_no_other(things: Things, clock: ManualClock) -> None:
    things.hanging = {"a": threading.Event()}
    ready = Readiness(roots_of(things), clock, wait_s=PATIENCE_S)
    whole = ready.ask()
    assert ready.ask("b").result(PATIENCE_S) == Health(is_ready=True, reasons=())
    assert not whole.done()
    things.hanging["a"].set()
    assert whole.result(PATIENCE_S) == Health(is_ready=True, reasons=())


def test_what_is_known_to_hang_is_not_waited_for_again(things: Things, clock: ManualClock) -> None:
    things.hanging = {"a": threading.Event()}
    ready = Readiness(roots_of(things), clock, wait_s=HANG_S)
    ready.ask().result()
    clock.advance(2000)
    ready._wait_s = PATIENCE_S / 60
    clock.advance(2000)
    assert ready.ask().result(PATIENCE_S / 2).reasons == ("a: no answer for 4 s",)


def test_a_service_that_ends_says_so_without_looking(things: Things, clock: ManualClock) -> None:
    ready = readiness(things, clock)
    ready.stopping = True
    assert ready.ask().result().reasons == (STOPPING,)
    assert things.looked == {"a": 0, "b": 0}


def test_roots_are_looked_at_with_one_call_each(tmp_path: Path) -> None:
    for name in ("lake", "other"):
        (tmp_path / name).mkdir()
    views = ViewManager([str(tmp_path / "lake"), f"file://{tmp_path}/other/"])
    looks = ServiceChecks(views)
    assert list(looks()) == [f"root {tmp_path}/lake", f"root {tmp_path}/other", "store"]
    assert Readiness(looks, SystemClock()).ask().result().reasons == ()


@pytest.mark.parametrize("how", ["gone", "a file", "a link"])
def test_a_root_that_can_not_be_listed_is_named(tmp_path: Path, how: str) -> None:
    root = tmp_path / "lake"
    root.mkdir()
    parts = Parts(PartsOptions((str(root),)))
    assert parts.readiness.ask().result().reasons == ()
    root.rmdir()
    if how == "a file":
        root.write_text("")
    if how == "a link":
        root.symlink_to(tmp_path)
    reasons = Readiness(ServiceChecks(parts.views), SystemClock()).ask().result().reasons
    said = "it is not there, or no directory"
    if how == "a link":
        said = "it leads elsewhere than when the service began"
    assert reasons == (f"root {root}: {said}",)
    parts.close()


def test_a_root_whose_driver_is_missing_is_named() -> None:
    parts = Parts(PartsOptions(("tape://vault/lake",)))
    (reason,) = parts.readiness.ask().result().reasons
    assert reason.startswith(
        "root tape://vault/lake: base path 'tape://vault/lake' can't be opened"
    )
    assert "Protocol not known: tape" in reason
    parts.close()


def test_an_object_store_is_looked_at_without_listing_all_of_it(tmp_path: Path) -> None:
    import fsspec

    fsspec.filesystem("memory").makedirs("/readiness/lake", exist_ok=True)
    views = ViewManager(["memory://readiness/lake", "memory://readiness/none"])
    ready = Readiness(ServiceChecks(views), SystemClock())
    assert ready.ask().result().reasons == (
        "root memory:///readiness/none: it is not there, or no directory",
    )
    storage = views.storage_of("memory://readiness/lake")[1].for_cause("ready")
    storage.check_base()
    assert storage.calls.snapshot() == {("stat", "ready"): 1}


def test_a_root_is_opened_once_for_all_looks(tmp_path: Path) -> None:
    """A driver may make a client for each thread that opens it, and each look has its thread."""
    opened: list[str] = []

    def opener(base_path: str, _: Any) -> LocalStorage:
        opened.append(base_path)
        return LocalStorage(base_path)

    ready = Readiness(
        ServiceChecks(ViewManager([str(tmp_path)], opener=opener)), SystemClock(), kept_s=0
    )
    assert [ready.ask().result().reasons for _ in range(3)] == [()] * 3
    assert opened == [str(tmp_path)]


def test_a_local_root_is_not_listed_to_its_end(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path), "ready")
    storage.check_base()
    assert storage.calls.snapshot() == {("list", "ready"): 1}


@pytest.mark.parametrize("kind", ["spillable", "rocksdb"])
def test_a_store_that_can_not_be_written_is_named(tmp_path: Path, kind: str) -> None:
    """The service is ready all the same, as tables are followed in memory (#32)."""
    directory = tmp_path / "store"
    views = ViewManager(stores=Stores(StoreOptions(kind, str(directory))))
    checks = ServiceChecks(views)
    ready = Readiness(checks, SystemClock(), kept_s=0)
    assert ready.ask().result().reasons == ()
    assert not [path for path in directory.rglob("*") if "check" in path.name]
    assert checks.notes == ()
    directory.rename(tmp_path / "elsewhere")
    assert ready.ask().result().reasons == ()
    assert checks.notes == (
        f"store: no file can be written in {directory}: No such file or directory",
    )
    views.close()
    assert ready.ask().result().reasons == ("store: the stores are closed",)


def test_tables_that_are_followed_in_memory_are_told_until_they_are_written(
    tmp_path: Path,
) -> None:
    """A probe has their stores written again (#32)."""
    base = str(golden.build("cow_basic_v9", 7, tmp_path / "t"))
    directory = tmp_path / "store"
    store = StoreOptions("rocksdb", str(directory))
    clock = ManualClock(0)
    parts = Parts(PartsOptions(roots=(base,), token=None, store=store), clock=clock)
    in_the_way = StorePlace.of(directory, TableId.of(base)).path
    in_the_way.write_text("")
    client = AppClient(parts)

    def told() -> list[str]:
        clock.advance(int(RETRY_S * 1000))
        answer = client.request("GET", "/healthz")
        assert answer.status == 200
        return json.loads(answer.body).get("reasons", [])

    assert told() == []
    query = {"basepath": base, "partition": "2024-01-01"}
    assert client.request("GET", LATEST, query).status == 200
    (reason,) = told()
    assert reason.startswith(f"store: tables followed in memory: 1, as file://{base}: ")
    assert in_the_way.name in reason
    assert parts.status()["store"]["in_memory"]["tables"] == 1
    in_the_way.unlink()
    assert told() == []
    assert parts.status()["store"]["in_memory"] == {"tables": 0, "why": None}
    parts.close()
    again = Parts(PartsOptions(roots=(base,), token=None, store=store))
    assert AppClient(again).request("GET", LATEST, query).status == 200
    assert again.metrics.get("partition_loads", source="record") == 1
    again.close()


class HangingRoot(LocalStorage):
    """A root on a mount whose server is gone."""

    def __init__(self, base_path: str, gone: threading.Event) -> None:
        super().__init__(base_path)
        self.gone = gone

    def check_base(self) -> None:
        self.gone.wait()


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[tuple[str, Callable[[str, Any], LocalStorage]]]:
    """A root that hangs, and a function that opens its storage."""
    gone = threading.Event()
    yield str(tmp_path), lambda base_path, _: HangingRoot(base_path, gone)
    gone.set()


@pytest.mark.property
def test_a_root_that_hangs_hangs_neither_the_probe_nor_the_loop(
    hanging: tuple[str, Callable[[str, Any], LocalStorage]],
) -> None:
    """With one thread for the application, two probes and a greeting at a time."""
    root, opener = hanging
    parts = Parts(PartsOptions((root,)), opener=opener)
    server = ServiceServer(parts, ServerOptions(threads=1))
    thread = server.start_thread()
    with HttpClient(server.port, None) as probe, HttpClient(server.port, None) as other:
        probe.connection.request("GET", "/healthz")
        assert other.ask("GET", "/", {}) == (200, b"Hello Hudi")
        assert other.ask("GET", "/v1/strandline/status", {})[0] == 200
        answer = probe.connection.getresponse()
        assert answer.status == 503
        assert f"root {root}: no answer for 2 s" in answer.read().decode()
        assert server.parts.readiness.status()["looked"]
    server.stop()
    thread.join()


def test_a_probe_is_answered_over_http_with_reasons_and_without_a_token(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    root.mkdir()
    with serving(str(root)) as server, HttpClient(server.port, None) as client:
        assert client.ask("GET", "/healthz", {}) == (200, b'{\n  "ok": true\n}\n')
        assert client.ask("GET", "/healthz/", {})[0] == 200
        head = client.request("HEAD", "/healthz")
        assert (head.status, head.body) == (200, b"")
        assert client.ask("POST", "/healthz", {})[0] == 404
        server.parts.readiness.stopping = True
        status, body = client.ask("GET", "/healthz", {})
        assert (status, json.loads(body)) == (503, {"ok": False, "reasons": [STOPPING]})


def test_one_root_of_several_is_asked_about_without_a_token(tmp_path: Path) -> None:
    for name in ("lake", "gone"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    gone = tmp_path / "gone"
    with serving(f"{tmp_path}/link", str(gone)) as server, HttpClient(server.port, None) as client:
        gone.rmdir()
        reasons = [f"root {gone}: it is not there, or no directory"]
        for path, status, told in (
            ("/healthz", 200, {"ok": True, "reasons": reasons}),
            ("/readyz", 503, {"ok": False, "reasons": reasons}),
            (f"/readyz?root={gone}", 503, {"ok": False, "reasons": reasons}),
            (f"/readyz/?root=file://{gone}/", 503, {"ok": False, "reasons": reasons}),
            (f"/readyz?root={tmp_path}/link", 200, {"ok": True}),
            (f"/readyz?root={tmp_path}/lake", 200, {"ok": True}),
        ):
            answered, body = client.ask("GET", path, {})
            assert (answered, json.loads(body)) == (status, told), path
        for other in (str(tmp_path), "", "x" * 20_000):
            answered, body = client.ask("GET", f"/readyz?root={other}", {})
            assert answered == 404
            assert json.loads(body)["reasons"][0].startswith("no root ")
        assert client.request("HEAD", "/readyz").status == 503


def awaiting(*roots: Path) -> Parts:
    parts = Parts(PartsOptions(tuple(map(str, roots)), None, awaits_roots=True))
    parts.readiness._kept_s = 0
    return parts


def test_a_root_that_is_missing_at_the_start_is_served_once_it_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    golden.build("cow_basic_v9", 0, tmp_path / "lake" / "t")
    late, real = tmp_path / "late", tmp_path / "real"
    parts = awaiting(tmp_path / "lake", late)
    client = AppClient(parts)
    reasons = (f"root {late}: it is not there, or no directory",)
    assert parts.readiness.ask().result() == Health(is_ready=True, reasons=reasons)
    assert parts.status()["awaited_roots"] == [str(late)]
    (said,) = (record.getMessage() for record in caplog.records)
    assert said == f"ready, except: {reasons[0]}"
    last = "/v1/hoodie/view/timeline/instant/last"
    assert client.ask("GET", last, {"basepath": f"{tmp_path}/lake/t"})[0] == 200
    status, body = client.ask("GET", last, {"basepath": f"{late}/t"})
    assert (status, b"below a root that isn't there yet" in body) == (503, True)
    # It resolves elsewhere than a root that was there would have.
    golden.build("cow_basic_v9", 0, real / "t")
    late.symlink_to(real)
    assert parts.readiness.ask(str(late)).result() == Health(is_ready=True, reasons=())
    assert client.ask("GET", last, {"basepath": f"{late}/t"})[0] == 200
    assert parts.status()["awaited_roots"] == []
    assert parts.status()["roots"] == [str(tmp_path / "lake"), str(real)]
    assert parts.readiness.ask().result() == Health(is_ready=True, reasons=())
    parts.close()


def test_without_any_root_it_is_not_ready(tmp_path: Path) -> None:
    parts = awaiting(tmp_path / "late")
    assert not parts.readiness.ask().result().is_ready
    parts.remove_root(str(tmp_path / "late"))
    assert parts.readiness.ask().result() == Health(is_ready=True, reasons=())
    parts.close()


def test_the_status_shows_the_answers_to_probes(tmp_path: Path) -> None:
    parts = Parts(PartsOptions((str(tmp_path / "none"),), "token"))
    answer = AppClient(parts).request("GET", "/healthz")
    reason = f"root {tmp_path}/none: it is not there, or no directory"
    assert (answer.status, json.loads(answer.body)) == (503, {"ok": False, "reasons": [reason]})
    assert parts.status()["ready"] == {"looked": True, "reasons": [reason]}
    parts.close()
