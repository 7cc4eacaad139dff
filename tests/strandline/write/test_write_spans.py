"""The spans of writes, their tasks and cleans, and of a service in another process."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pyarrow as pa
import pytest

from strandline.table_api.table import Table
from strandline.write.engine.base import TracedTask, traced
from strandline.write.engine.local import LocalEngine
from tests.kit.concurrency.manual_clock import LaterClock
from tests.kit.servers.span_collector import collecting
from tests.kit.spans import recording
from tests.kit.storage.faulty_storage import Crash, Effect, Fault, FaultyStorage
from tests.strandline.write.tables import client, row, table
from tests.timeline.test_tracing import PARENT
from timeline import tracing
from timeline.errors import InputError
from timeline.storage.local import LocalStorage


class Doubling:
    """A task that makes a request, as far as its trace shows, for each batch."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            assert tracing.headers()
            with tracing.child("look-up"):
                yield batch
        yield from ()


@pytest.mark.property
def test_a_write_is_one_trace_of_steps_tasks_and_calls(tmp_path):
    with recording() as recorded, client(tmp_path / "t") as writer:
        result = writer.upsert(table(row("a"), row("b", "us")))
    spans = recorded.spans
    root = spans.one("write upsert")
    assert root.parent == ""
    assert root.attributes["strandline.instant"] == result.instant
    assert root.attributes["strandline.table"] == str(tmp_path / "t")
    assert {span.trace for span in spans.all} == {root.trace}
    steps = {span.name for span in spans.all if span.parent == root.id}
    assert {"step tag", "step commit", "step write"} <= steps
    for task in spans.named("task WriteTask"):
        assert spans.above(task)[1:] == ["step write", "write upsert"]
        assert task.attributes["strandline.task.attempt"].count("-") == 2
    made = [span for span in spans.named("storage create") if "parquet" in _path(span)]
    assert {spans.above(span)[1] for span in made} == {"task WriteTask"}
    assert len(made) == 2


def _path(span):
    path = span.attributes["strandline.storage.path"]
    return path if not path.startswith(".hoodie") else ""


def test_a_write_that_fails_says_why(tmp_path):
    null = table(row("a"), {**row("b"), "id": None})
    with recording() as recorded, client(tmp_path / "t") as writer, pytest.raises(InputError):
        writer.upsert(null)
    root = recorded.spans.one("write upsert")
    assert (root.failed, root.attributes["error.type"]) == (True, "input")


@pytest.mark.property
def test_a_clean_is_a_trace_of_its_own_or_part_of_a_write(tmp_path):
    with client(tmp_path / "t", cleaner__commits__retained=1, clean__parallelism="2") as writer:
        for ts in (1, 2, 3):
            writer.upsert(table(row("a", ts=ts), row("b", "us", ts=ts)))
        with recording() as recorded:
            result = writer.clean()
    assert result.files_deleted == 2
    spans = recorded.spans
    assert spans.roots() == ["clean"]
    done = spans.one("execute clean")
    assert spans.above(done) == ["execute clean", "clean"]
    assert done.attributes == {
        "strandline.table": str(tmp_path / "t"),
        "strandline.instant": result.instant,
        "strandline.files": 2,
    }
    deletes = [span for span in spans.named("storage delete") if _path(span)]
    assert len(deletes) == 2
    above = ["storage delete", "carry out clean", "execute clean", "clean"]
    assert {tuple(spans.above(span)) for span in deletes} == {tuple(above)}


@pytest.mark.property
def test_a_clean_beside_a_write_belongs_to_the_write_that_began_it(tmp_path):
    options = {"clean__automatic": "true", "clean__async__enabled": "true"}
    writer = client(tmp_path / "t", cleaner__commits__retained=1, **options)
    with recording() as recorded, writer:
        for ts in (1, 2, 3):
            writer.upsert(table(row("a", ts=ts)))
    spans = recorded.spans
    (last,) = spans.named("execute clean")[-1:]
    assert spans.above(last) == ["execute clean", "write upsert"]


@pytest.mark.property
def test_a_rollback_is_part_of_the_write_that_repairs_or_of_a_call(tmp_path):
    base = tmp_path / "t"
    with client(base) as writer:
        writer.upsert(table(row("a")))
    dying = FaultyStorage(LocalStorage(str(base)), [Fault(20, Effect.CRASH_BEFORE)])
    with pytest.raises(Crash), client(base, dying) as writer:
        writer.upsert(table(row("a", ts=2)))
    with recording() as recorded, client(base, clock=LaterClock()) as writer:
        result = writer.upsert(table(row("a", ts=3)))
        writer.rollback(result.instant)
    assert len(result.rolled_back) == 1
    spans = recorded.spans
    repair = ["step rollback", "write upsert"]
    assert spans.above(spans.one("plan rollback")) == ["plan rollback", *repair]
    assert ["sweep markers", *repair] in [spans.above(s) for s in spans.named("sweep markers")]
    undone = spans.named("undo instant")
    assert [spans.above(span)[1:] for span in undone] == [
        ["execute rollback", *repair],
        ["execute rollback", "rollback"],
    ]
    assert [span.attributes["strandline.files"] for span in undone] == [1, 1]
    done = [span.attributes["strandline.instant"] for span in spans.named("execute rollback")]
    assert result.rolled_back[0] < done[0] < result.instant < done[1]


@pytest.mark.property
def test_the_loads_of_a_scan_belong_to_the_span_of_its_caller(tmp_path):
    with client(tmp_path / "t") as writer:
        writer.upsert(table(row("a"), row("b", "us")))
    with recording() as recorded:
        Table(tmp_path / "t").to_arrow()
        assert recorded.spans.all == ()
        with tracing.span("report"):
            assert Table(tmp_path / "t").to_arrow().num_rows == 2
    spans = recorded.spans
    assert spans.roots() == ["report"]
    above = {tuple(spans.above(span)) for span in spans.all}
    assert ("storage list", "load", "report") in above
    assert ("storage list", "sync", "report") in above


def test_tasks_take_their_trace_with_them():
    with recording(), tracing.span("write"):
        task = traced(Doubling(), LocalEngine.attempt)
        carrier = tracing.headers()
    copied = pickle.loads(pickle.dumps(task))
    assert isinstance(copied, TracedTask)
    assert copied.carrier == carrier
    assert traced(copied.task, LocalEngine.attempt) is copied.task


def test_a_task_is_current_only_while_it_works():
    """A task takes batches from another one, which works in its own context."""
    rows = pa.RecordBatch.from_pydict({"a": [1]})
    with recording() as recorded:
        inner = TracedTask(Doubling(), PARENT, _attempt)
        outer = TracedTask(Doubling(), PARENT, _attempt)
        made = outer(inner(iter([rows, rows])))
        for _ in range(2):
            next(made)
            assert tracing.headers() == {}
        made.close()
    spans = recorded.spans
    assert [span.parent for span in spans.named("task Doubling")] == ["b" * 16] * 2
    above = [spans.above(span) for span in spans.named("look-up")]
    assert above == [["look-up", "task Doubling"]] * 4


def test_a_worker_that_records_nothing_sends_its_task_s_trace():
    rows = pa.RecordBatch.from_pydict({"a": [1]})
    assert list(TracedTask(Doubling(), PARENT, _attempt)(iter([rows]))) == [rows]
    assert tracing.headers() == {}


def _attempt():
    token = type("Attempt", (), {"write_token": "0-1-2"})
    return token()


@pytest.mark.property  # starts a service
def test_the_embedded_service_continues_a_write_s_trace(tmp_path, monkeypatch):
    with collecting() as collector, recording() as recorded:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=lake")
        options = {
            "embed__timeline__server": "true",
            "write__markers__type": "TIMELINE_SERVER_BASED",
        }
        with client(tmp_path / "t", **options) as writer:
            writer.upsert(table(row("a"), row("b", "us")))
            assert writer.service is not None
            writer.upsert(table(row("a", ts=2), row("b", "us", ts=2)))
        # The service has sent all that it recorded by the time it has ended.
        of_service = collector.spans
    assert collector.paths == {"/v1/traces"}
    assert {span.of for span in of_service.all} == {"strandline"}
    spans = type(of_service)([*recorded.spans.all, *of_service.all])
    second = spans.named("write upsert")[1]
    above = {tuple(spans.above(span)[:-1]) for span in spans.all if span.trace == second.trace}
    lookup, marker = "POST /v1/strandline/lookup", "POST /v1/hoodie/marker/create-all"
    refresh = "POST /v1/hoodie/view/refresh"
    assert ("storage list", "load", lookup, lookup, "step tag") in above
    assert (marker, marker, "task WriteTask", "step write") in above
    assert ("storage list", "sync", refresh, f"{refresh}/", "step sync") in above
    assert spans.roots() == ["write upsert"] * 2
