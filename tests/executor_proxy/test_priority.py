"""``PriorityView``: when it turns to its own view, when it doesn't, and what it says."""

from __future__ import annotations

import logging
import threading

import pytest

from executor_proxy.priority import PriorityView, Retry
from executor_proxy.report import LookupReport, ReportedView
from fsview.model.file_system_view import FileSystemView
from timeline.errors import (
    BadAnswerError,
    CorruptMetadataError,
    InputError,
    RemoteFailureError,
    RootNotAllowedError,
    ServiceTimeoutError,
    ServiceUnreachableError,
    StorageUnavailableError,
    TableNotFoundError,
    ViewBehindError,
)

UNREACHABLE = ServiceUnreachableError("nobody there")


class Scripted(FileSystemView):
    """Answers its name, or raises the next error of its script."""

    def __init__(self, name: str, *script: Exception | None) -> None:
        self.name = name
        self.script = list(script)
        self.asked: list[str] = []
        self.closed = 0

    def ask(self, name, **arguments):
        self.asked.append(name)
        error = self.script.pop(0) if self.script else None
        if error is not None:
            raise error
        return (self.name, arguments)

    def close(self) -> None:
        self.closed += 1


class Priority:
    """A priority view over two scripted ones, and its calls."""

    def __init__(self, remote: Scripted, local: Scripted | None = None, **more) -> None:
        self.remote = remote
        self.local = local or Scripted("local")
        self.made = 0
        self.report = LookupReport()
        self.waits: list[float] = []
        more = {"report": self.report, "wait": self.waits.append, "jitter": lambda: 0.5, **more}
        self.view = PriorityView(remote, self.make, **more)

    def make(self) -> Scripted:
        self.made += 1
        return self.local


def test_the_service_is_asked_first_and_no_local_view_is_made():
    subject = Priority(Scripted("remote"))
    assert subject.view.latest_base_file("p", "f") == (
        "remote",
        {"partition": "p", "file_id": "f"},
    )
    assert subject.view.timeline == ("remote", {})
    assert subject.made == 0


@pytest.mark.parametrize(
    "error",
    [
        UNREACHABLE,
        ServiceTimeoutError("late"),
        RemoteFailureError("500"),
        BadAnswerError("<html>"),
        ViewBehindError("behind"),
        StorageUnavailableError("the service's storage"),
        CorruptMetadataError("as the service reads it"),
    ],
)
def test_a_failure_turns_to_the_local_view_for_the_rest(error):
    subject = Priority(Scripted("remote", error), retry=Retry(times=0))
    for _ in range(3):
        assert subject.view.latest_base_files("p") == ("local", {"partition": "p"})
    assert subject.remote.asked == ["latest_base_files"]
    assert subject.made == 1
    assert subject.report.fallbacks == [f"{type(error).__name__}: {error}"]


@pytest.mark.parametrize(
    "error", [InputError("partition"), RootNotAllowedError("/etc"), TableNotFoundError("/t")]
)
def test_a_wrong_question_is_the_askers(error):
    subject = Priority(Scripted("remote", error))
    with pytest.raises(type(error)):
        subject.view.latest_base_files("p")
    assert subject.made == 0
    assert subject.view.latest_base_files("p")[0] == "remote"


def test_what_is_no_error_of_ours_is_not_swallowed():
    subject = Priority(Scripted("remote", KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        subject.view.latest_base_files("p")
    assert subject.made == 0


def test_a_lost_connection_is_tried_again_after_growing_waits():
    subject = Priority(Scripted("remote", UNREACHABLE, UNREACHABLE), retry=Retry(3, 0.1, 10))
    assert subject.view.latest_base_files("p")[0] == "remote"
    assert subject.waits == pytest.approx([0.075, 0.15])
    assert not subject.report.fallbacks


def test_retries_are_bounded_and_not_repeated_by_the_next_question():
    subject = Priority(Scripted("remote", *[UNREACHABLE] * 10), retry=Retry(3, 1.0, 2.5))
    assert subject.view.latest_base_files("p")[0] == "local"
    assert subject.waits == pytest.approx([0.75, 1.5, 1.875])
    assert subject.view.latest_base_files("p")[0] == "local"
    assert len(subject.remote.asked) == 4
    assert len(subject.report.fallbacks) == 1


@pytest.mark.parametrize("error", [ServiceTimeoutError("late"), RemoteFailureError("500")])
def test_only_lost_connections_are_tried_again(error):
    subject = Priority(Scripted("remote", error))
    assert subject.view.latest_base_files("p")[0] == "local"
    assert subject.waits == []


def test_waits_are_spread():
    retry = Retry(4, 0.1, 0.3)
    least, most = list(retry.waits(lambda: 0.0)), list(retry.waits(lambda: 1.0))
    assert least == pytest.approx([0.05, 0.1, 0.15, 0.15])
    assert most == pytest.approx([0.1, 0.2, 0.3, 0.3])


def test_giving_up_is_logged_once_with_its_reason(caplog):
    subject = Priority(Scripted("remote", ServiceTimeoutError("no answer in 3 s")), report=None)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            subject.view.latest_base_files("p")
    (record,) = caplog.records
    assert "ServiceTimeoutError: no answer in 3 s" in record.getMessage()


def test_several_threads_give_up_once():
    errors = [ServiceTimeoutError(str(n)) for n in range(8)]
    gate = threading.Barrier(8)

    class Slow(Scripted):
        def ask(self, name, **arguments):
            gate.wait()
            return super().ask(name, **arguments)

    subject = Priority(Slow("remote", *errors))
    threads = [
        threading.Thread(target=subject.view.latest_base_files, args=("p",)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(subject.report.fallbacks) == 1
    assert subject.made == 1


def test_behind_on_both_sides_is_raised():
    local = Scripted("local", ViewBehindError("storage has moved on"))
    subject = Priority(Scripted("remote", ViewBehindError("400")), local)
    with pytest.raises(ViewBehindError, match="storage has moved on"):
        subject.view.latest_base_files("p")


def test_a_local_view_that_could_not_be_made_is_made_at_the_next_question():
    subject = Priority(Scripted("remote", RemoteFailureError("500")))
    failures = [StorageUnavailableError("not now")]

    def make() -> Scripted:
        if failures:
            raise failures.pop()
        return subject.local

    subject.view = PriorityView(subject.remote, make)
    with pytest.raises(StorageUnavailableError):
        subject.view.latest_base_files("p")
    assert subject.view.latest_base_files("p")[0] == "local"


def test_sync_goes_back_to_the_service():
    subject = Priority(Scripted("remote", RemoteFailureError("500")))
    assert subject.view.latest_base_files("p")[0] == "local"
    subject.view.sync()
    assert subject.local.closed == 1
    assert subject.view.latest_base_files("p")[0] == "remote"


def test_sync_of_a_dead_service_syncs_the_local_view():
    subject = Priority(Scripted("remote", *[UNREACHABLE] * 3))
    subject.view.sync()
    assert subject.local.asked == ["sync"]


def test_close_closes_both():
    subject = Priority(Scripted("remote", RemoteFailureError("500")))
    subject.view.latest_base_files("p")
    subject.view.close()
    assert subject.remote.closed == subject.local.closed == 1
    subject.view.close()
    assert subject.local.closed == 1


def test_the_report_has_the_source_and_reason_of_each_answer():
    report = LookupReport()
    subject = Priority(Scripted("remote", None, RemoteFailureError("status 500")), report=report)
    for _ in range(3):
        subject.view.latest_base_files("p")
    assert [(each.route, each.source) for each in report.lookups] == [
        ("latest_base_files", "service"),
        ("latest_base_files", "local"),
        ("latest_base_files", "local"),
    ]
    assert report.fallbacks == ["RemoteFailureError: status 500"]
    assert all(seconds >= 0 for seconds in report.lookup_seconds)


def test_reports_merge():
    one, two = LookupReport(), LookupReport()
    ReportedView(lambda: Scripted("x"), "local", one).latest_base_files("p")
    ReportedView(lambda: Scripted("x"), "service", two).all_base_files("p")
    two.fallbacks.append("because")
    from timeline.storage.base import StorageCalls

    calls = StorageCalls()
    one.watch(calls)
    calls.add("list", "lookup", 2)
    total = LookupReport()
    total.merge(one)
    total.merge(two.as_dict())
    total.merge(one.as_dict())
    assert [each.source for each in total.lookups] == ["local", "service", "local"]
    assert total.fallbacks == ["because"]
    assert total.storage_calls() == {("list", "lookup"): 4}
