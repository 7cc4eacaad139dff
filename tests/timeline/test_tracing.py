"""Spans: who begins a trace, who continues it, and what a process that records none does."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from opentelemetry.sdk.trace import sampling

from tests.kit.spans import recording
from timeline import tracing
from timeline.errors import InputError
from timeline.storage.local import LocalStorage
from timeline.threads import JoinedThread, in_context

PARENT = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
UNSAMPLED = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-00"}
HOSTILE = [
    "",
    "x",
    f"00-{'g' * 32}-{'b' * 16}-01",
    f"00-{'A' * 32}-{'b' * 16}-01",
    f"00-{'0' * 32}-{'b' * 16}-01",
    f"00-{'a' * 32}-{'0' * 16}-01",
    f"ff-{'a' * 32}-{'b' * 16}-01",
    f"00-{'a' * 32}-{'b' * 16}-01-more",
    f"00-{'a' * 32}-{'b' * 16}",
    f"00-{'a' * 31}-{'b' * 16}-01",
    f"{PARENT['traceparent']},{PARENT['traceparent']}",
    "0" * 10_000,
    "\u0661" * 55,
]
"""Values of ``traceparent`` that W3C's recommendation has ignored: bad digits, zeros, versions."""


def test_without_a_provider_nothing_is_recorded() -> None:
    with tracing.span("write") as span, tracing.child("sync") as child:
        span.set(tracing.TABLE, "/t")
        child.fail("broken")
        assert tracing.headers() == {}
    assert not tracing.is_on()
    tracing.note("GET", 1.0, {}, kind="SERVER", parent=PARENT)


def test_a_process_that_records_nothing_passes_a_task_s_trace_on() -> None:
    with tracing.continued(PARENT, "task", {}):
        assert tracing.headers() == PARENT
        with tracing.continued(UNSAMPLED, "task", {}):
            assert tracing.headers() == UNSAMPLED
        assert tracing.headers() == PARENT
    assert tracing.headers() == {}


def test_only_some_work_begins_a_trace() -> None:
    with recording() as recorded:
        with tracing.child("sync"):
            assert tracing.headers() == {}
        with tracing.span("write", {tracing.TABLE: "/t"}) as span:
            span.set(tracing.INSTANT, "20300101000000000")
            with tracing.child("sync", kind="CLIENT"):
                pass
    spans = recorded.spans
    assert spans.above(spans.one("sync")) == ["sync", "write"]
    assert spans.one("sync").kind == "CLIENT"
    assert spans.one("write").attributes == {
        "strandline.table": "/t",
        "strandline.instant": "20300101000000000",
    }
    assert tracing.headers() == {}


def test_a_trace_that_is_not_sampled_has_no_spans() -> None:
    with recording(sampling.ALWAYS_OFF) as recorded, tracing.span("write"):
        assert int(tracing.headers()["traceparent"][-2:], 16) & 1 == 0
        with tracing.child("sync"):
            pass
    assert recorded.spans.all == ()


def test_errors_are_recorded_by_their_code() -> None:
    with recording() as recorded:
        with pytest.raises(InputError), tracing.span("write"):
            raise InputError("bad rows")
        with pytest.raises(ZeroDivisionError), tracing.span("clean"):
            1 / 0  # noqa: B018
        with pytest.raises(KeyboardInterrupt), tracing.span("archive"):
            raise KeyboardInterrupt
        with tracing.span("GET") as span:
            span.fail("503")
    failed = {
        span.name: (span.failed, span.attributes.get("error.type")) for span in recorded.spans.all
    }
    assert failed == {
        "write": (True, InputError.code),
        "clean": (True, "ZeroDivisionError"),
        "archive": (False, None),
        "GET": (True, "503"),
    }


def test_a_trace_goes_on_in_another_process() -> None:
    with recording() as recorded:
        with tracing.continued(PARENT, "task", {"strandline.task.attempt": "0-1-2"}):
            (name, sent), *rest = tracing.headers().items()
        tracing.note("GET", 2.0, {}, kind="SERVER", parent=PARENT)
    task, noted = recorded.spans.one("task"), recorded.spans.one("GET")
    assert (task.trace, task.parent) == ("a" * 32, "b" * 16)
    assert (name, sent, rest) == ("traceparent", f"00-{task.trace}-{task.id}-01", [])
    assert (noted.trace, noted.parent, noted.kind) == ("a" * 32, "b" * 16, "SERVER")
    assert round(noted.took_s, 3) == 2.0


def test_the_state_of_vendors_is_passed_on() -> None:
    with recording(), tracing.continued({**PARENT, "tracestate": "a=1"}, "task", {}):
        assert tracing.headers()["tracestate"] == "a=1"


def test_an_invalid_parent_begins_a_trace() -> None:
    for value in HOSTILE:
        with recording() as recorded, tracing.span("GET", parent={"traceparent": value}):
            pass
        assert recorded.spans.one("GET").parent == "", value
        assert recorded.spans.one("GET").trace != "a" * 32, value


def test_a_future_version_continues_the_trace() -> None:
    sent = {"traceparent": f"cc-{'a' * 32}-{'b' * 16}-01-what"}
    with recording() as recorded, tracing.span("GET", parent=sent):
        pass
    assert recorded.spans.one("GET").parent == "b" * 16


def test_a_thread_that_is_waited_for_continues_the_trace() -> None:
    def work() -> None:
        with tracing.child(threading.current_thread().name):
            pass

    with recording() as recorded, tracing.span("write"):
        for name, daemon in (("foreground", False), ("background", True)):
            thread = JoinedThread(work, name, daemon=daemon)
            thread.start()
            thread.join()
        pooled = threading.Thread(target=in_context(work), name="pooled")
        pooled.start()
        pooled.join()
    assert {span.name for span in recorded.spans.all} == {"write", "foreground", "pooled"}


def test_storage_calls_are_recorded_within_a_trace(tmp_path) -> None:
    storage = LocalStorage(str(tmp_path)).for_cause("sync")
    with recording() as recorded:
        storage.create("a", b"1")
        with tracing.span("write"):
            storage.read("a")
            storage.list("")
    spans = recorded.spans
    assert [span.name for span in spans.all] == ["storage read", "storage list", "write"]
    assert spans.one("storage read").attributes == {
        "strandline.table": str(tmp_path),
        "strandline.cause": "sync",
        "strandline.storage.call": "read",
        "strandline.storage.path": "a",
    }


@pytest.mark.property  # a new interpreter
def test_nothing_of_opentelemetry_is_imported_by_itself(tmp_path) -> None:
    program = """
import sys
from strandline import Table, WriteClient
from strandline.server.process.composition_root import Parts
from tests.strandline.write.tables import client, row, table
with client(sys.argv[1]) as writer:
    writer.upsert(table(row("a")))
Table(sys.argv[1]).to_arrow()
print([name for name in sys.modules if "opentelemetry" in name or name == "timeline.recorder"])
"""
    command = [sys.executable, "-c", program, str(tmp_path / "t")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
