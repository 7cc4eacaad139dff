"""``PriorityView``: when it turns to its local view, when it doesn't, and what it reports."""

from __future__ import annotations

import logging
import threading

import pytest

from executor_proxy.http import HttpSession
from executor_proxy.priority_view import PriorityView
from executor_proxy.report import Fallback, LookupReport, ReportedView
from executor_proxy.worker_state import MAX_LOGGED, this_worker
from fsview.model.file_system_view import FileSystemView
from tests.executor_proxy.scripted_server import Raw, Reply, ScriptedServer
from tests.kit.servers.free_port import free_port
from timeline.errors import (
    BadAnswerError,
    CorruptMetadataError,
    InputError,
    RemoteFailureError,
    RootNotAllowedError,
    ServiceBusyError,
    ServiceError,
    ServiceTimeoutError,
    ServiceUnreachableError,
    StorageUnavailableError,
    TableNotFoundError,
    ViewBehindError,
)

UNREACHABLE = ServiceUnreachableError("nobody there")


class Scripted(FileSystemView):
    """Answers its name, or raises the next error of its script.

    Attributes:
        cached_answers: Cached answers by method.
    """

    def __init__(self, name: str, *script: Exception | None) -> None:
        self.name = name
        self.script = list(script)
        self.asked: list[str] = []
        self.closed = 0
        self.cached_answers: dict[str, object] = {}
        self.urls: tuple[str, ...] = ("http://h:1",)

    def ask(self, name, **arguments):
        self.asked.append(name)
        error = self.script.pop(0) if self.script else None
        if error is not None:
            raise error
        return (self.name, arguments)

    def cached(self, name, arguments):
        return (self.cached_answers[name],) if name in self.cached_answers else None

    def pin_to(self, timeline) -> None:
        self.pinned_to = timeline

    def close(self) -> None:
        self.closed += 1


class Priority:
    """A priority view over two scripted ones, and its calls."""

    def __init__(self, remote: Scripted, local: Scripted | None = None) -> None:
        self.remote = remote
        self.local = local or Scripted("local")
        self.made = 0
        self.report = LookupReport()
        self.view = PriorityView(remote, self.make, self.report)

    def make(self) -> Scripted:
        self.made += 1
        return self.local

    @property
    def causes(self) -> list[str]:
        return [each.cause for each in self.report.fallbacks]


def test_the_service_is_asked_first_and_no_local_view_is_made():
    subject = Priority(Scripted("remote"))
    assert subject.view.latest_base_file("p", "f") == (
        "remote",
        {"partition": "p", "file_id": "f"},
    )
    assert subject.view.timeline == ("remote", {})
    assert subject.made == 0
    assert subject.causes == []


def test_a_failure_turns_to_the_local_view_for_the_rest(subtests):
    for error, cause in [
        (UNREACHABLE, "unreachable"),
        (ServiceTimeoutError("late"), "late"),
        (ServiceBusyError("still loading"), "late"),
        (RemoteFailureError("500"), "refused"),
        (BadAnswerError("<html>"), "wrong-answer"),
        (ViewBehindError("behind"), "behind"),
        (StorageUnavailableError("the service's storage"), "refused"),
        (CorruptMetadataError("as the service reads it"), "refused"),
        (RootNotAllowedError("its root was removed"), "refused"),
    ]:
        with subtests.test(error=error):
            subject = Priority(Scripted("remote", error))
            for _ in range(3):
                assert subject.view.latest_base_files("p") == ("local", {"partition": "p"})
            assert subject.remote.asked == ["latest_base_files"]
            assert subject.made == 1
            assert subject.report.fallbacks == [Fallback(cause, f"{type(error).__name__}: {error}")]


@pytest.mark.parametrize("error", [InputError("partition"), TableNotFoundError("/t")])
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


def test_without_a_local_view_a_failure_is_raised_each_time():
    remote = Scripted("remote", UNREACHABLE, RemoteFailureError("500"))
    view = PriorityView(remote, None, LookupReport())
    for error in (ServiceUnreachableError, RemoteFailureError):
        with pytest.raises(error):
            view.latest_base_files("p")
    assert view.latest_base_files("p")[0] == "remote"


def test_a_cached_answer_needs_no_request_even_after_a_fallback():
    subject = Priority(Scripted("remote", UNREACHABLE))
    subject.remote.cached_answers["latest_base_files"] = "cached"
    assert subject.view.latest_base_files("p") == "cached"
    assert subject.remote.asked == []
    assert subject.view.all_base_files("p")[0] == "local"
    assert subject.view.latest_base_files("p") == "cached"
    assert [each.source for each in subject.report.lookups] == ["cache", "local", "cache"]


def refused(status: int) -> RemoteFailureError:
    error = RemoteFailureError(f"it answered {status}")
    error.answered = status
    return error


def test_a_worker_logs_each_class_of_errors_once_for_each_address(caplog):
    errors = [refused(401), RootNotAllowedError("outside the roots"), refused(500), refused(401)]
    with caplog.at_level(logging.WARNING):
        for urls in (("http://h:1",), ("http://h:2",), ("http://h:1",)):
            for error in errors:
                remote = Scripted("remote", error)
                remote.urls = urls
                Priority(remote).view.latest_base_files("p")
    said = ["RemoteFailureError: it answered 401", "RootNotAllowedError: outside the roots"]
    said.append("RemoteFailureError: it answered 500")
    assert [record.getMessage().partition("service: ")[2] for record in caplog.records] == said * 2


def test_the_number_of_remembered_warnings_is_bounded(caplog):
    with caplog.at_level(logging.WARNING):
        for number in range(MAX_LOGGED + 1):
            this_worker().log_fallback(number, "because")
        this_worker().log_fallback(0, "because")
    assert len(caplog.records) == MAX_LOGGED + 2


def test_a_worker_logs_each_cause_once(caplog):
    with caplog.at_level(logging.WARNING):
        for error in (ServiceTimeoutError("no answer in 3 s"), UNREACHABLE):
            for _ in range(3):
                Priority(Scripted("remote", error)).view.latest_base_files("p")
    first, second = (record.getMessage() for record in caplog.records)
    assert "ServiceTimeoutError: no answer in 3 s" in first
    assert "nobody there" in second


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
    assert len(subject.causes) == 1
    assert subject.local.closed == subject.made - 1  # of those that were made at the same time


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

    subject.view = PriorityView(subject.remote, make, subject.report)
    with pytest.raises(StorageUnavailableError):
        subject.view.latest_base_files("p")
    assert subject.view.latest_base_files("p")[0] == "local"


def test_sync_goes_back_to_the_service():
    subject = Priority(Scripted("remote", RemoteFailureError("500")))
    assert subject.view.latest_base_files("p")[0] == "local"
    subject.view.sync()
    assert subject.local.closed == 1
    assert subject.view.latest_base_files("p")[0] == "remote"


def test_sync_of_a_dead_service_moves_both_views_to_the_newest_instant():
    subject = Priority(Scripted("remote", *[UNREACHABLE] * 3))
    subject.view.sync()
    assert subject.made == 1
    assert subject.remote.pinned_to == ("local", {})  # the local view's timeline
    assert subject.causes == ["unreachable"]
    subject.view.sync()
    assert subject.made == 1, "the local view is kept and synced"
    assert subject.local.asked == ["timeline", "sync", "timeline"]
    assert subject.view.latest_base_files("p")[0] == "local"


def test_close_closes_both():
    subject = Priority(Scripted("remote", RemoteFailureError("500")))
    subject.view.latest_base_files("p")
    subject.view.close()
    assert subject.remote.closed == subject.local.closed == 1
    subject.view.close()
    assert subject.local.closed == 1


def test_the_report_has_the_source_and_reason_of_each_answer():
    subject = Priority(Scripted("remote", None, RemoteFailureError("status 500")))
    for _ in range(3):
        subject.view.latest_base_files("p")
    assert [(each.route, each.source) for each in subject.report.lookups] == [
        ("latest_base_files", "service"),
        ("latest_base_files", "local"),
        ("latest_base_files", "local"),
    ]
    assert subject.causes == ["refused"]
    assert all(each.seconds >= 0 for each in subject.report.lookups)


def test_reports_merge():
    one, two = LookupReport(), LookupReport()
    ReportedView(lambda: Scripted("x"), "local", one).latest_base_files("p")
    ReportedView(lambda: Scripted("x"), "service", two).all_base_files("p")
    two.fall_back("behind", ViewBehindError("because"))
    one.add_calls({("list", "lookup"): 2})
    total = LookupReport()
    total.merge(one)
    total.merge(two.as_dict())
    total.merge(one.as_dict())
    assert [each.source for each in total.lookups] == ["local", "service", "local"]
    assert total.fallbacks == [Fallback("behind", "ViewBehindError: because")]
    assert total.storage_calls() == {("list", "lookup"): 4}


def test_a_service_is_told_at_its_next_request_what_gave_it_up() -> None:
    """A report about other addresses isn't sent here; all of one cause are one number."""
    with ScriptedServer(lambda _: Reply()) as server:
        session = HttpSession(server.url)
        session.get("/", {})
        give_up("late", "http://other:1", server.url)
        give_up("late", "http://other:1", server.url)
        give_up("late", server.url, "http://another:1")
        give_up("behind", server.url)
        give_up("behind", "http://other:1", "http://h:1")
        session.get("/", {})
        session.get("/", {})
    told = [request.headers.get("strandline-fallbacks") for request in server.requests]
    assert told == [None, "late=3,behind=1", None]


@pytest.mark.parametrize(
    ("answer", "is_kept"),
    [
        (Reply(status=401), True),
        (Reply(status=431), True),
        (Reply(status=404), False),
        (Reply(status=500), False),
        (Reply(status=503, headers={"Retry-After": "1"}), False),
        (Reply(headers={"Content-Encoding": "br"}), False),
        (Raw(), False),
    ],
)
def test_a_report_is_sent_again_if_the_service_can_not_have_counted_it(
    answer: Reply | Raw, is_kept: bool
) -> None:
    answers = iter([answer, Reply()])
    with ScriptedServer(lambda _: next(answers)) as server:
        session = HttpSession(server.url)
        give_up("late", server.url)
        with pytest.raises(ServiceError):
            session.request("POST", "/", {})
        session.get("/", {})
    told = [request.headers.get("strandline-fallbacks") for request in server.requests]
    assert told == ["late=1", "late=1" if is_kept else None]


def test_a_report_to_nobody_is_kept() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    give_up("unreachable", url)
    with pytest.raises(ServiceUnreachableError):
        HttpSession(url).get("/", {})
    assert this_worker().fallbacks.take(url) == [((url,), "unreachable", 1)]


def give_up(cause: str, *urls: str) -> None:
    LookupReport().fall_back(cause, UNREACHABLE, urls)
