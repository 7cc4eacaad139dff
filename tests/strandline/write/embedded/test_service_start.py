"""The service starts beside the first rows' keys; whatever interrupts that, it is released."""

from __future__ import annotations

import itertools
import threading

import pyarrow as pa
import pytest

from strandline.server.process.shared_service import SharedService
from strandline.write import embedded
from strandline.write.embedded import ServiceStart
from strandline.write.engine.base import Task
from strandline.write.engine.local import LocalEngine, LocalRows
from strandline.write.tasks.key_task import KeyTask
from tests.kit.concurrency.interrupts import interrupted
from tests.kit.concurrency.patience import PATIENCE_S
from tests.strandline.write.tables import client, row, table
from timeline.errors import ConfigError, InputError

ON = {"embed__timeline__server": True}


class Services:
    """Counts the uses of a service."""

    def __init__(self) -> None:
        self.uses = 0

    def acquire(self) -> Services:
        self.uses += 1
        return self

    def release(self) -> None:
        self.uses -= 1


def test_a_start_runs_once_on_another_thread() -> None:
    threads = []
    start = ServiceStart(lambda: threads.append(threading.current_thread()))
    start.begin()
    for _ in range(2):
        start.result()
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()


def test_a_start_that_has_not_begun_runs_in_its_caller() -> None:
    assert ServiceStart(threading.current_thread).result() is threading.current_thread()


def test_a_start_for_which_there_is_no_thread_runs_in_its_caller() -> None:
    start = ServiceStart(threading.current_thread)
    # More than there is address space for, so that the system refuses the thread.
    usual = threading.stack_size(1 << 46)
    try:
        start.begin()
    finally:
        threading.stack_size(usual)
    assert not start.is_running
    assert start.result() is threading.current_thread()


def test_the_error_of_a_start_is_its_results() -> None:
    def refuse() -> None:
        raise ConfigError("no")

    start = ServiceStart(refuse)
    start.begin()
    with pytest.raises(ConfigError, match="no"):
        start.result()
    assert start.has_failed
    assert not start.is_running
    error = start.abandon(lambda _: pytest.fail("there is nothing to release"))
    assert str(error) == "no"


def test_a_service_that_is_still_starting_is_released_when_it_has_started() -> None:
    services, begun, proceed = Services(), threading.Event(), threading.Event()

    def acquire() -> Services:
        begun.set()
        assert proceed.wait(PATIENCE_S)
        return services.acquire()

    start = ServiceStart(acquire)
    assert not start.is_running
    start.begin()
    assert begun.wait(PATIENCE_S)
    assert start.is_running
    proceed.set()
    start.abandon(Services.release)
    assert services.uses == 0
    assert start.result() is services


def test_a_start_that_has_not_begun_is_dropped() -> None:
    services = Services()
    ServiceStart(services.acquire).abandon(Services.release)
    assert services.uses == 0


def test_a_start_interrupted_at_any_step_leaves_no_service() -> None:
    for at in itertools.count(1):
        services = Services()
        start = ServiceStart(services.acquire)

        def work(start: ServiceStart[Services] = start) -> None:
            start.begin()
            start.result()

        was_interrupted = interrupted(work, at, (embedded,))
        start.abandon(Services.release)
        assert services.uses == 0, f"in use after an interrupt at opcode {at}"
        if not was_interrupted:
            break
    assert at > 20


@pytest.mark.parametrize("step", ["result", "abandon"])
def test_an_interrupt_at_any_step_leaves_a_start_that_can_be_abandoned(step: str) -> None:
    """Also one that comes right after the caller has claimed the start for itself."""
    for at in itertools.count(1):
        services = Services()
        start = ServiceStart(services.acquire)

        def work(start: ServiceStart[Services] = start) -> None:
            start.abandon(Services.release) if step == "abandon" else start.result()

        was_interrupted = interrupted(work, at, (embedded,))
        later = threading.Thread(target=start.abandon, args=(Services.release,), daemon=True)
        later.start()
        later.join(PATIENCE_S)
        assert not later.is_alive(), f"waits for ever after an interrupt at opcode {at}"
        assert services.uses == 0, f"in use after an interrupt at opcode {at}"
        if not was_interrupted:
            break
    assert at > 15


class Watching(LocalEngine):
    """Notes whether the client's service has begun to start when keys are made."""

    def __init__(self) -> None:
        super().__init__(2, cores=1)
        self.begun: list[bool] = []

    def transform(self, data: LocalRows, task: Task, schema: pa.Schema) -> LocalRows:
        if isinstance(task, KeyTask):
            names = [thread.name for thread in threading.enumerate()]
            running = [s for s in SharedService._shared.values() if s.is_running]
            self.begun.append("strandline-service-start" in names or bool(running))
        return super().transform(data, task, schema)


@pytest.mark.property
def test_the_embeddeds_while_keys_are_made(tmp_path) -> None:
    engine = Watching()
    options = {**ON, "strandline__embed__timeline__server__linger__secs": 0}
    with client(tmp_path / "t", engine=engine, **options) as c:
        c.bulk_insert(table(row("a")))
        assert engine.begun == [False]
        with pytest.raises(InputError):
            c.upsert(table(row("")))
        c.upsert(table(row("a", ts=2)))
        assert engine.begun == [False, True, True]
    assert not any(service.is_running for service in SharedService._shared.values())


@pytest.mark.property
def test_a_client_that_closes_while_its_embeddeds_leaves_none(tmp_path) -> None:
    options = {**ON, "strandline__embed__timeline__server__linger__secs": 0}
    with client(tmp_path / "t", **options) as c, pytest.raises(InputError):
        c.upsert(table(row("")))
    assert not any(service.is_running for service in SharedService._shared.values())
