"""A write doesn't wait for its client's service to start: it lists storage, and the next one asks.

``holding`` keeps services from starting: their threads wait for the lock over the shared services.
"""

from __future__ import annotations

import logging
import multiprocessing
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.server.process.shared_service import SharedService
from strandline.write.embedded import FEW_LISTS
from strandline.write.engine.base import Task
from strandline.write.engine.local import LocalEngine, LocalRows
from strandline.write.index.colocated import FindTask
from strandline.write.result import WriteResult
from strandline.write.tasks.write_task import WriteTask
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.free_port import free_port
from tests.kit.tables import reader
from tests.strandline.write.engine.test_fetched_rows import FetchingEngine
from tests.strandline.write.tables import client, row, table
from timeline.errors import ConfigError
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.property

ON = {"embed__timeline__server": True}
NEW, NEXT = table(row("a"), row("b", "us")), table(row("a", ts=2), row("c", "asia"))


@contextmanager
def holding() -> Iterator[ExitStack]:
    """Keep services from starting until the stack is closed, on this thread."""
    with ExitStack() as held:
        held.enter_context(SharedService._shared_lock)
        yield held


@pytest.fixture
def taken_port() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        yield taken


class Releasing(LocalEngine):
    """Lets the service start before the tasks of a kind, and waits for that if told to."""

    def __init__(self, kind: type[Task]) -> None:
        super().__init__(2, cores=1)
        self.kind = kind
        self.held, self.starting = ExitStack(), None

    def transform(self, data: LocalRows, task: Task, schema: pa.Schema) -> LocalRows:
        if isinstance(task, self.kind):
            self.held.close()
            if self.starting is not None:
                self.starting.result()
        return super().transform(data, task, schema)


def sources(result: WriteResult) -> set[str]:
    return {each.source for each in result.lookups}


def are_none_running() -> bool:
    return not any(service.is_running for service in SharedService._shared.values())


@pytest.mark.parametrize("write", ["upsert", "insert", "insert_overwrite"])
def test_a_write_ends_before_its_service_has_started(tmp_path: Path, write: str) -> None:
    with client(tmp_path, **ON) as c, holding() as held:
        for rows in (NEW, NEXT):
            result = getattr(c, write)(rows)
            assert sources(result) <= {"local"}
            assert (result.fallbacks, result.warnings) == ((), ())
            # Nothing is synced: the service has read nothing yet.
            assert result.seconds["sync"] == 0
        held.close()
        assert c.service
        result = getattr(c, write)(NEXT)
        assert sources(result) <= {"service"}
        # The commits before the service was ready are in its answers.
        assert result.rows_updated == (2 if write == "upsert" else 0)
        assert ("list", "lookup") not in result.storage_calls


def test_a_clean_before_the_service_has_started_lists_storage(tmp_path: Path) -> None:
    options = {**ON, "clean__automatic": True, "clean__commits__retained": 1}
    with client(tmp_path, **options) as c, holding() as held:
        *_, cleaned = (c.upsert(table(row("a", ts=ts))) for ts in range(1, 4))
        assert cleaned.clean.files_deleted == 1
        held.close()
        assert c.service
        cleaned = c.upsert(table(row("a", ts=4)))
        assert cleaned.clean.files_deleted == 1
        assert (cleaned.fallbacks, cleaned.warnings) == ((), ())
        # The view that listed storage is replaced by one that asks the service.
        assert ("list", "sync") not in cleaned.storage_calls
    assert [r["ts"] for r in reader.rows(tmp_path)] == [4]


def test_a_service_that_is_ready_in_mid_write_learns_of_the_commit(tmp_path: Path) -> None:
    engine = Releasing(WriteTask)
    with client(tmp_path, engine=engine, **ON) as c, holding() as engine.held:
        c._context.embedded.begin_start()
        engine.starting = c._context.embedded._start
        result = c.upsert(NEW)
        assert sources(result) == {"local"}
        assert (result.fallbacks, result.warnings) == ((), ())
        assert list(c.service.status()["tables"]) == [f"file://{tmp_path}"]
        assert sources(c.upsert(NEXT)) == {"service"}


def test_markers_that_the_service_keeps_wait_for_it(tmp_path: Path) -> None:
    with client(tmp_path) as alone:
        alone.upsert(NEW)
    # Its look-ups are over when keys are searched in the files that they found.
    engine = Releasing(FindTask)
    served = {**ON, "write__markers__type": "TIMELINE_SERVER_BASED"}
    with client(tmp_path, engine=engine, **served) as c, holding() as engine.held:
        result = c.upsert(NEXT)
    assert sources(result) == {"local"}
    assert (result.fallbacks, result.marker_fallbacks) == ((), ())
    assert result.storage_calls["create", "marker"] == 1  # MARKERS.type


def test_a_start_that_fails_after_a_write_is_logged_by_the_next(
    tmp_path: Path, taken_port: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    port = taken_port.getsockname()[1]
    with (
        client(tmp_path, **ON, embed__timeline__server__port=port) as c,
        caplog.at_level(logging.WARNING),
        holding() as held,
    ):
        result = c.upsert(NEW)
        assert (sources(result), result.fallbacks, caplog.records) == ({"local"}, (), [])
        held.close()
        with pytest.raises(ConfigError):
            c._context.embedded._start.result()
        taken_port.close()
        # It logs the failure, and has the service started again.
        result = c.upsert(NEXT)
        assert result.fallbacks == ()
        (record,) = caplog.records
        assert c.service.url == f"http://127.0.0.1:{port}"
        assert sources(c.upsert(NEXT)) == {"service"}
    assert len(caplog.records) == 1
    assert f"can't listen on 127.0.0.1 port {port}: Address already in use" in record.getMessage()
    assert [r["ts"] for r in reader.rows(tmp_path)] == [2, 1, 1]


def test_a_start_that_fails_is_logged_when_the_client_closes(
    tmp_path: Path, taken_port: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    port = taken_port.getsockname()[1]
    with (
        caplog.at_level(logging.WARNING),
        client(tmp_path, **ON, embed__timeline__server__port=port) as c,
    ):
        c._context.embedded.begin_start()
        # A start that has not begun would only be dropped.
        with pytest.raises(ConfigError):
            c._context.embedded._start.result()
        assert caplog.records == []
    (record,) = caplog.records
    assert "can't be started" in record.getMessage()


def test_a_client_that_is_closed_while_its_service_starts_leaves_none(tmp_path: Path) -> None:
    c = client(tmp_path, **ON)
    closing = threading.Thread(target=c.close)
    with holding():
        c.upsert(NEW)
        closing.start()
    closing.join(PATIENCE_S)
    assert not closing.is_alive()
    assert are_none_running()


class Remote(LocalStorage):
    """A storage whose lists take long."""

    is_remote = True


def test_look_ups_of_many_partitions_of_a_remote_storage_wait(tmp_path: Path) -> None:
    with client(tmp_path, Remote(str(tmp_path)), **ON) as c, holding() as held:
        c.upsert(NEW)
        embedded, timeline = c._context.embedded, c._target().timeline
        assert embedded.lookup_location(timeline, FEW_LISTS).urls == ()
        held.close()
        assert embedded.lookup_location(timeline, FEW_LISTS + 1).urls == (c.service.url,)


@pytest.mark.parametrize(
    ("is_remote", "options", "partitions", "waits"),
    [
        (False, {}, FEW_LISTS + 1, False),
        (False, {}, None, False),
        (True, {}, FEW_LISTS, False),
        (True, {}, FEW_LISTS + 1, True),
        (True, {}, None, True),
        (False, {"filesystem__remote__backup__view__enable": False}, 1, True),
    ],
)
def test_who_waits_for_a_service_that_is_starting(
    tmp_path: Path, is_remote: bool, options: dict, partitions: int | None, waits: bool
) -> None:
    storage = Remote(str(tmp_path)) if is_remote else None
    with client(tmp_path, storage, **ON, **options) as c, ExitStack() as held:
        c.bulk_insert(NEW)
        timeline = c._target().timeline
        if not waits:
            held.enter_context(SharedService._shared_lock)
        location = c._context.embedded.lookup_location(timeline, partitions)
        assert bool(location.urls) == waits


MANY = table(*(row(f"k{n}", f"p{n}") for n in range(FEW_LISTS + 1)))


@pytest.mark.parametrize(
    ("is_remote", "options", "rows", "begins"),
    [
        (False, {}, NEXT, False),
        (False, {}, MANY, True),
        (True, {}, NEXT, True),
        (False, {"write__markers__type": "TIMELINE_SERVER_BASED"}, NEXT, True),
        (False, {"filesystem__remote__backup__view__enable": False}, NEXT, True),
        (False, {"strandline__write__driver__max__rows": 0}, NEXT, True),
        (False, {"strandline__write__driver__max__rows": 1}, NEXT, True),
    ],
)
def test_small_batches_of_a_local_disk_begin_no_service(
    tmp_path: Path, is_remote: bool, options: dict, rows: pa.Table, begins: bool
) -> None:
    storage = Remote(str(tmp_path)) if is_remote else None
    with client(tmp_path, storage) as alone:
        alone.upsert(NEW)
    with client(tmp_path, storage, engine=FetchingEngine(), **ON, **options) as c:
        result = c.upsert(rows)
        assert c._context.embedded.is_begun == begins
        assert sources(result) <= {"local", "service"}
        # One that another use has started is asked.
        assert c.service is not None
        assert sources(c.upsert(NEXT)) == {"service"}


def close_after_fork(c, answers: multiprocessing.Queue) -> None:
    # Also the lock of the outcome may have been held by the thread that doesn't exist here.
    c._context.embedded.replace_ended()
    was_begun = c._context.embedded.is_begun
    c.close()
    answers.put(was_begun)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("replaces", [False, True])
def test_a_forked_process_waits_for_no_start(tmp_path: Path, replaces: bool) -> None:
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    with client(tmp_path, **ON) as c, holding() as held:
        c.upsert(NEW)
        use = close_after_fork if replaces else (lambda c, answers: answers.put(bool(c.close())))
        fork = context.Process(target=use, args=(c, answers))
        fork.start()
        assert answers.get(timeout=PATIENCE_S) is False
        fork.join(PATIENCE_S)
        assert fork.exitcode == 0
        answers.close()
        held.close()
        assert c.service
        assert sources(c.upsert(NEXT)) == {"service"}
