"""The session against a server that misbehaves on a real socket, over both transports.

What only ``http.client`` promises takes no ``open_session``, or is in ``test_deadlines``.
"""

from __future__ import annotations

import gzip
import multiprocessing
import pickle
import threading
from functools import partial

import pytest

from executor_proxy.exchange import Outgoing, Timeouts
from executor_proxy.http import HttpSession
from tests.executor_proxy.scripted_server import Hang, Raw, Reply, Request, ScriptedServer
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.free_port import free_port
from tests.kit.spans import recording
from timeline import tracing
from timeline.errors import (
    BadAnswerError,
    ConfigError,
    InputError,
    RemoteFailureError,
    RootNotAllowedError,
    ServiceError,
    ServiceTimeoutError,
    ServiceUnreachableError,
    ViewBehindError,
)

PATH = "/v1/hoodie/view/slices/all"


@pytest.fixture(params=[None, "tests.executor_proxy.own_session:make"], ids=["default", "requests"])
def open_session(request):
    """Makes a session over one of the transports."""
    return partial(HttpSession, session=request.param)


def always(action):
    return lambda request: action


def test_parameters_token_and_encoding_are_sent(open_session):
    with ScriptedServer(always(Reply(b"[1]"))) as server:
        session = open_session(server.url, token="secret")
        assert session.get(PATH, {"basepath": "file:/a b/é", "partition": "p=1/q&r"}) == b"[1]"
        assert session.request("POST", "/x/", {"basepath": "/t"}) == b"[1]"
    get, post = server.requests
    assert get.params == {"basepath": "file:/a b/é", "partition": "p=1/q&r"}
    assert get.headers["authorization"] == "Bearer secret"
    assert get.headers["accept-encoding"] == "gzip"
    assert get.headers["accept"] == "application/json"
    assert (post.method, post.path, post.params) == ("POST", "/x/", {"basepath": "/t"})
    assert post.headers["content-length"] == "0"


@pytest.mark.parametrize("end", ["/", "?", "#"])
def test_an_address_with_an_empty_end_is_asked_with_and_without_a_trace(end):
    with ScriptedServer(always(Reply(b"[1]"))) as server, recording() as recorded:
        session = HttpSession(server.url + end)
        assert session.get(PATH, {}) == b"[1]"
        with tracing.span("task"):
            assert session.get(PATH, {}) == b"[1]"
        sent = recorded.spans.one(f"GET {PATH}").attributes
        assert (sent["server.address"], sent["url.full"]) == ("127.0.0.1", server.url + PATH)
        assert server.url == f"http://127.0.0.1:{sent['server.port']}"


def test_the_connection_outlives_the_session(open_session):
    with ScriptedServer(always(Reply())) as server:
        for _ in range(3):
            open_session(server.url).get(PATH, {})
        pickle.loads(pickle.dumps(open_session(server.url))).get(PATH, {})
    assert server.connections == 1
    assert len(server.requests) == 4


def test_each_thread_has_its_own_connection(open_session):
    with ScriptedServer(always(Reply())) as server:
        session = open_session(server.url)
        session.get(PATH, {})
        thread = threading.Thread(target=session.get, args=(PATH, {}))
        thread.start()
        thread.join()
    assert server.connections == 2


def _in_child(session, results):
    results.put(session.get(PATH, {}))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # 3.12: fork beside threads
def test_a_forked_process_opens_its_own_connection_and_leaves_the_parents_alone(open_session):
    context = multiprocessing.get_context("fork")
    with ScriptedServer(always(Reply())) as server:
        session = open_session(server.url)
        session.get(PATH, {})
        results = context.Queue()
        child = context.Process(target=_in_child, args=(session, results))
        child.start()
        assert results.get(timeout=PATIENCE_S) == b"[]"
        child.join()
        session.get(PATH, {})
    assert [request.connection for request in server.requests] == [0, 1, 0]


def test_a_connection_closed_while_idle_is_replaced(open_session):
    with ScriptedServer(always(Reply())) as server:
        session = open_session(server.url)
        session.get(PATH, {})
        server.close_connections()
        session.request("POST", PATH, {})  # safe for a POST too: nothing had been sent
    assert server.connections == 2


def drop_second(request: Request):
    return Raw() if request.number == 1 else Reply()


def test_a_get_lost_on_a_kept_connection_is_sent_once_more():
    with ScriptedServer(drop_second) as server:
        session = HttpSession(server.url)
        session.get(PATH, {})
        assert session.get(PATH, {}) == b"[]"
    assert [request.connection for request in server.requests] == [0, 0, 1]


def test_a_post_lost_on_a_kept_connection_is_not_repeated():
    with ScriptedServer(drop_second) as server:
        session = HttpSession(server.url)
        session.get(PATH, {})
        with pytest.raises(ServiceUnreachableError, match="POST"):
            session.request("POST", PATH, {})
    assert len(server.requests) == 2


def test_a_get_is_not_repeated_for_ever():
    with ScriptedServer(lambda request: Reply() if request.number == 0 else Raw()) as server:
        session = HttpSession(server.url)
        session.get(PATH, {})
        with pytest.raises(ServiceUnreachableError, match=PATH):
            session.get(PATH, {})
        with pytest.raises(ServiceUnreachableError):  # a new connection: nothing to retry
            session.get(PATH, {})
    assert len(server.requests) == 4


def test_the_session_works_after_every_failure(open_session):
    answers = [Reply(status=500), Raw(b"garbage\r\n\r\n"), Raw(), Reply(b"no", 400), Reply(b"[1]")]
    with ScriptedServer(lambda request: answers[request.number]) as server:
        session = open_session(server.url)
        for _ in range(3):
            with pytest.raises((RemoteFailureError, BadAnswerError, ServiceUnreachableError)):
                session.get(PATH, {})
        with pytest.raises(ViewBehindError):
            session.get(PATH, {})
        assert session.get(PATH, {}) == b"[1]"


def test_a_closed_port_is_unreachable(open_session):
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(ServiceUnreachableError, match=url):
        open_session(url).get(PATH, {})


def test_an_unknown_host_is_unreachable(open_session):
    with pytest.raises(ServiceUnreachableError, match=r"nowhere\.invalid"):
        open_session("http://nowhere.invalid:1").get(PATH, {})


def test_no_answer_in_time(open_session):
    with (
        ScriptedServer(always(Hang())) as server,
        pytest.raises(ServiceTimeoutError, match=r"within 0\.05 s"),
    ):
        open_session(server.url, timeouts=Timeouts(read_s=0.05)).get(PATH, {})


def test_an_answer_cut_short_is_lost(open_session):
    cut = Reply(b"x" * 1000).encoded()[:-10]
    with (
        ScriptedServer(always(Raw(cut))) as server,
        pytest.raises(ServiceUnreachableError, match="lost"),
    ):
        open_session(server.url).get(PATH, {})


def test_what_is_not_http_is_a_bad_answer(subtests, open_session):
    for garbage in [b"hello\r\n\r\n", b"\x00\xff\x00\r\n\r\n", b"SSH-2.0-x\r\n"]:
        with (
            subtests.test(garbage=garbage),
            ScriptedServer(always(Raw(garbage))) as server,
            pytest.raises(BadAnswerError, match=PATH),
        ):
            open_session(server.url).get(PATH, {})


def test_gzip_is_undone(open_session):
    body = b"[" + b"1," * 5000 + b"1]"
    reply = Reply(gzip.compress(body), headers={"Content-Encoding": "gzip"})
    with ScriptedServer(always(reply)) as server:
        assert open_session(server.url).get(PATH, {}) == body


def test_truncated_gzip_is_a_bad_answer(subtests, open_session):
    for cut in [3, 30]:
        with subtests.test(cut=cut):
            body = gzip.compress(bytes(range(256)) * 20)
            reply = Reply(body[:cut], headers={"Content-Encoding": "gzip"})
            with (
                ScriptedServer(always(reply)) as server,
                pytest.raises(BadAnswerError, match="gzip"),
            ):
                open_session(server.url).get(PATH, {})


def test_an_encoding_not_asked_for_is_a_bad_answer(open_session):
    with (
        ScriptedServer(always(Reply(headers={"Content-Encoding": "br"}))) as server,
        pytest.raises(BadAnswerError, match="'br'"),
    ):
        open_session(server.url).get(PATH, {})


REFUSALS = [
    (400, b"Last known instant from client was 1", ViewBehindError, "client was 1"),
    (
        400,
        b'{"code": "view_behind", "title": "behind", "hint": "sync"}',
        ViewBehindError,
        r"behind \[request [0-9a-f]{8}-[0-9a-f]+\] \(sync",
    ),
    (400, b'{"code": "input", "title": "partition"}', InputError, "partition"),
    (400, b'{"title": "Last known instant", "status": 400}', ViewBehindError, "Last known"),
    (403, b'{"code": "root_not_allowed", "error": "/x"}', RootNotAllowedError, "/x"),
    (401, b"no", RemoteFailureError, "token is this service's"),
    (404, b"Not found", RemoteFailureError, "status 404"),
    (500, b"Internal server error", RemoteFailureError, "status 500"),
    (503, b'{"code": "storage_unavailable", "error": "s3"}', RemoteFailureError, "s3"),
    (400, b'["odd"]', ViewBehindError, "odd"),
    (302, b"", RemoteFailureError, "status 302"),
    (500, b"\xff\xfe", RemoteFailureError, "status 500"),
]


def test_an_error_status_is_raised_as_its_class(subtests, open_session):
    for status, body, error, text in REFUSALS:
        with (
            subtests.test(status=status, body=body),
            ScriptedServer(always(Reply(body, status))) as server,
            pytest.raises(error, match=text),
        ):
            open_session(server.url).get(PATH, {})


def test_the_token_is_never_shown(open_session):
    session = open_session("http://127.0.0.1:1", token="secret")
    assert "secret" not in repr(session)
    with pytest.raises(ServiceUnreachableError) as caught:
        session.get(PATH, {})
    assert "secret" not in repr(caught.value)
    assert "secret" not in str(caught.value.__cause__)


def test_a_url_that_is_none_is_refused(subtests, open_session):
    for url in [
        "",
        "127.0.0.1:80",
        "ftp://h:1",
        "http://h",
        "https://h",
        "http://h:x",
        "http://[::1",
        "http://[zz]:80",
        "http://a b:80",
        "http://a..b:80",
        "http://h:80/path",
        "http://h:80?query",
        "http://user:secret@h:80",
        None,
        5,
    ]:
        with subtests.test(url=url), pytest.raises(ConfigError, match="HOST:PORT"):
            open_session(url)


def test_a_timeout_of_nothing_is_refused(subtests):
    for name in ["connect_s", "read_s", "exchange_s"]:
        with subtests.test(name=name), pytest.raises(ConfigError, match=f"{name} is 0"):
            Timeouts(**{name: 0})


def test_a_session_that_is_none_is_refused(subtests):
    for name, reason in [
        ("tests.executor_proxy.own_session", "allowed: MODULE:FUNCTION"),
        ("tests.executor_proxy.own_session:", "allowed: MODULE:FUNCTION"),
        ("tests.executor_proxy.own_session:NOT_A_FACTORY", "allowed: MODULE:FUNCTION"),
        ("tests.executor_proxy.own_session:nothing", "can't be imported"),
        ("no.such.module:make", "can't be imported"),
    ]:
        with subtests.test(name=name), pytest.raises(ConfigError, match=reason):
            HttpSession("http://h:1", session=name)


def test_a_token_that_is_no_word_is_refused_unseen(subtests, open_session):
    for token in ["", "two words", "secret\n", "é", "€", "a\0b"]:
        with subtests.test(token=token):
            with pytest.raises(ConfigError, match="token is not shown") as caught:
                open_session("http://h:1", token)
            assert not token.strip() or token.strip() not in str(caught.value)


def test_a_password_in_a_url_is_not_shown():
    with pytest.raises(ConfigError) as caught:
        HttpSession("http://user:secret@h:80")
    assert "secret" not in str(caught.value)


def test_a_chunk_of_negative_size_is_a_bad_answer(open_session):
    raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nabc"
    with ScriptedServer(always(Raw(raw))) as server, pytest.raises(ServiceError):
        open_session(server.url).get(PATH, {})


def test_deeply_nested_errors_are_failures_of_the_service(open_session):
    with (
        ScriptedServer(always(Reply(b"[" * 100_000, 500))) as server,
        pytest.raises(RemoteFailureError, match="status 500"),
    ):
        open_session(server.url).get(PATH, {})


def test_a_header_with_a_line_end_is_not_sent():
    with ScriptedServer(always(Reply(b"[1]"))) as server:
        session = HttpSession(server.url)
        transport = session.transport
        with pytest.raises(ValueError, match="a line end"):
            transport.exchange(Outgoing("GET", "/x", "/x", {"Accept": "a\nb"}), Timeouts())
        assert session.get(PATH, {}) == b"[1]"


@pytest.mark.parametrize("name", ["makes_nothing", "needs_arguments", "fails"])
def test_a_factory_that_makes_no_session_is_refused_by_name(name):
    session = HttpSession("http://h:1", session=f"tests.executor_proxy.own_session:{name}")
    with pytest.raises(ConfigError, match=name):
        session.get(PATH, {})


def test_the_sessions_own_headers_are_sent():
    with ScriptedServer(always(Reply())) as server:
        HttpSession(server.url, session="tests.executor_proxy.own_session:make").get(PATH, {})
    assert server.requests[0].headers["user-agent"] == "own-session"
