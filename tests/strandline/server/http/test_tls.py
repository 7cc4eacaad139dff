"""https: a service with a certificate, and clients that trust its authority or don't."""

from __future__ import annotations

import logging
import pickle
import re
import socket
import ssl
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cryptography.hazmat.primitives import serialization

from executor_proxy.http import HttpSession
from executor_proxy.view_location import ViewLocation, connect
from executor_proxy.worker_state import start_anew
from fsview.local_view import LocalView
from fsview.table_view import TableView
from strandline import TimelineService
from strandline.server.http.connection_registry import RESERVED
from strandline.server.http.limits import Limits
from strandline.server.http.server import ServiceServer
from strandline.server.http.tls import own_certificate, own_context, server_context
from strandline.settings.service import SERVICE_SETTINGS, TLS, TLS_CA, TLS_CERTIFICATE, TLS_KEY
from strandline.settings.setting import Settings
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.papers import Papers
from tests.kit.servers.live_service import TOKEN, GoldenTables, serving
from tests.kit.servers.raw_http import RawConnection, request
from tests.kit.tables import golden
from timeline.clock import SystemClock
from timeline.errors import ConfigError, ServiceUnreachableError
from timeline.storage.local import LocalStorage

TABLES = GoldenTables()
BASE = TABLES.base_path("cow_basic_v9", 7)
GREETING = request("/", token=TOKEN)


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


@pytest.fixture(scope="module")
def server(papers: Papers) -> Iterator[ServiceServer]:
    with serving(
        TABLES.root, opener=TABLES, tls_certificate=papers.certificate, tls_key=papers.key
    ) as server:
        yield server


def test_a_client_that_trusts_the_authority_is_answered(
    server: ServiceServer, papers: Papers
) -> None:
    assert server.url == f"https://127.0.0.1:{server.port}"
    for url in (server.url, f"https://localhost:{server.port}"):
        session = HttpSession(url, TOKEN, ca_file=papers.ca)
        assert session.get("/", {}) == b"Hello Hudi"
        assert pickle.loads(pickle.dumps(session)).get("/", {}) == b"Hello Hudi"


def test_a_view_over_https_answers_as_any(server: ServiceServer, papers: Papers) -> None:
    partitions = ("2024-01-01", "2024-01-02")
    with serving(TABLES.root, opener=TABLES) as plain:
        same = connect(plain.url, BASE, token=TOKEN, fallback=False)
        expected = [list(same.latest_file_slices(partition)) for partition in partitions]
    assert all(expected)
    before = server.parts.connections()["accepted"]
    for _ in range(3):
        start_anew()  # so that no answer is taken from the cache
        view = connect(server.url, Path(BASE), token=TOKEN, fallback=False, ca_file=Path(papers.ca))
        assert [list(view.latest_file_slices(partition)) for partition in partitions] == expected
    assert server.parts.hot.counts.total() > 0
    assert server.parts.connections()["accepted"] - before <= 1


def test_a_location_takes_the_authority_along(server: ServiceServer, papers: Papers) -> None:
    known = golden.recording("cow_basic_v9", 7).client
    pinned = (known["lastinstantts"], known["timelinehash"])
    location = ViewLocation(
        BASE, (server.url,), TOKEN, {}, *pinned, fallback=False, ca_file=papers.ca
    )
    start_anew()  # so that no answer is taken from the cache
    view = pickle.loads(pickle.dumps(location)).open()
    assert list(view.latest_file_slices("2024-01-01"))


def test_another_authoritys_certificate_is_not_trusted(
    server: ServiceServer, tmp_path: Path
) -> None:
    other = Papers(tmp_path)
    for ca_file in (other.ca, None):
        with pytest.raises(ServiceUnreachableError, match="its certificate isn't trusted") as said:
            HttpSession(server.url, TOKEN, ca_file=ca_file).get("/", {})
        assert TOKEN not in str(said.value)


def test_a_certificate_for_another_name_is_not_trusted(papers: Papers, tmp_path: Path) -> None:
    issued = papers.authority.issue_cert("elsewhere.example")
    certificate, key = str(tmp_path / "c.pem"), str(tmp_path / "k.pem")
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    with serving(TABLES.root, opener=TABLES, tls_certificate=certificate, tls_key=key) as server:
        session = HttpSession(server.url, TOKEN, ca_file=papers.ca)
        with pytest.raises(ServiceUnreachableError, match=r"isn't trusted .*127\.0\.0\.1"):
            session.get("/", {})


def test_a_renewed_certificate_is_used_from_the_next_handshake_on(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    old, new = Papers(tmp_path / "old"), Papers(tmp_path / "new")
    with serving(
        TABLES.root, opener=TABLES, tls_certificate=old.certificate, tls_key=old.key
    ) as server:
        kept = encrypted(server.port, old)
        with pytest.raises(ConfigError, match="they don't belong together"):
            server.use_certificate(new.certificate, old.key)
        assert greeted(server.port, old)
        server.use_certificate(new.certificate, new.key)
        assert greeted(server.port, new)
        assert not greeted(server.port, old)
        with kept:
            assert kept.ask(GREETING).status == 200


def test_old_tls_is_refused(server: ServiceServer, papers: Papers) -> None:
    context = ssl.create_default_context(cafile=papers.ca)
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as plain,
        pytest.raises(ssl.SSLError),
    ):
        context.wrap_socket(plain, server_hostname="127.0.0.1")


def test_plain_http_ends_without_an_answer_or_a_traceback(
    server: ServiceServer, papers: Papers, caplog: pytest.LogCaptureFixture
) -> None:
    with RawConnection(server.port) as raw:
        raw.send_what_is_taken(GREETING)
        assert not raw.rest().startswith(b"HTTP")
    with RawConnection(server.port):
        pass
    assert HttpSession(server.url, TOKEN, ca_file=papers.ca).get("/", {}) == b"Hello Hudi"
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def encrypted(port: int, papers: Papers) -> RawConnection:
    """Return a bare connection over TLS."""
    raw = RawConnection(port)
    context = ssl.create_default_context(cafile=papers.ca)
    raw.socket = context.wrap_socket(raw.socket, server_hostname="127.0.0.1")
    return raw


@pytest.mark.property
def test_limits_hold_over_https(papers: Papers) -> None:
    with serving(
        TABLES.root,
        opener=TABLES,
        limits=Limits(request_s=1, header_count=20),
        tls_certificate=papers.certificate,
        tls_key=papers.key,
    ) as server:
        with encrypted(server.port, papers) as raw:
            many = request("/", *(f"X-{n}: y" for n in range(30)), token=TOKEN)
            raw.socket.sendall(GREETING * 3 + many)
            assert [answer.status for answer in raw.answers()] == [200, 200, 200, 431]
        with encrypted(server.port, papers) as raw:
            raw.socket.sendall(GREETING[:-1])
            assert [answer.status for answer in raw.answers()] == [408]
        with RawConnection(server.port) as silent:  # it doesn't even shake hands
            assert silent.rest() == b""


def greeted(port: int, papers: Papers) -> bool:
    """Return whether a client is answered rather than cut off."""
    try:
        with encrypted(port, papers) as raw:
            raw.send_what_is_taken(request("/v1/strandline/status", token=TOKEN))
            answer = raw.answer()
            return answer is not None and answer.status == 200
    except (ssl.SSLError, ConnectionError):
        return False


@pytest.mark.property
def test_a_connection_counts_before_its_handshake_is_done(papers: Papers) -> None:
    with (
        serving(
            TABLES.root,
            opener=TABLES,
            limits=Limits(connections=10),
            tls_certificate=papers.certificate,
            tls_key=papers.key,
        ) as server,
        ExitStack() as stack,
    ):
        hello = b"\x16\x03\x01\x02\x00\x01"  # the first bytes of a handshake
        half = [stack.enter_context(RawConnection(server.port)) for _ in range(10 + RESERVED)]
        for raw in half:
            raw.send_what_is_taken(hello)
        while server.parts.connections().get("accepted", 0) < 10:
            pass
        more = [stack.enter_context(RawConnection(server.port)) for _ in range(50)]
        for raw in more:
            raw.send_what_is_taken(hello)
        assert half[10].rest() == b""  # the first for which there was no room
        assert server.parts.connections()["open"] == 10
        while not greeted(server.port, papers):
            pass
        assert server.parts.connections()["displaced"] >= 1


@pytest.mark.parametrize("cut", [0, 1, 5, 100])
def test_a_client_that_leaves_in_its_handshake_is_forgotten(
    papers: Papers, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    context = ssl.create_default_context(cafile=papers.ca)
    out = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="127.0.0.1").do_handshake()
    hello = out.read()
    with serving(
        TABLES.root, opener=TABLES, tls_certificate=papers.certificate, tls_key=papers.key
    ) as server:
        for _ in range(3):
            with RawConnection(server.port) as raw:
                raw.socket.sendall(hello[:cut])
        while server.parts.connections().get("no_handshake", 0) < 3:
            pass
        while server.parts.connections()["open"]:  # the last is counted before it is closed
            pass
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_the_end_does_not_wait_for_a_handshake(papers: Papers) -> None:
    with (
        serving(
            TABLES.root,
            opener=TABLES,
            grace_s=20,
            tls_certificate=papers.certificate,
            tls_key=papers.key,
        ) as server,
        RawConnection(server.port) as raw,
    ):
        while server.parts.connections()["open"] < 1:
            pass
        server.stop()
        assert raw.rest() == b""
    assert server.wait(0)


def test_a_long_target_passes_through_tls(server: ServiceServer, papers: Papers) -> None:
    with encrypted(server.port, papers) as raw:
        for _ in range(2):
            assert raw.ask(request(f"/?x={'y' * (1 << 20)}", token=TOKEN)).status == 200


def test_a_kept_connection_that_was_closed_is_replaced(papers: Papers) -> None:
    with serving(
        TABLES.root,
        opener=TABLES,
        keep_alive_s=0.02,
        tls_certificate=papers.certificate,
        tls_key=papers.key,
    ) as server:
        session = HttpSession(server.url, TOKEN, ca_file=papers.ca)
        for closed in range(3):
            assert session.get("/", {}) == b"Hello Hudi"
            while server.parts.connections().get("idle", 0) <= closed:
                pass


@pytest.mark.property
def test_an_embedded_service_speaks_https(papers: Papers, tmp_path: Path) -> None:
    base = golden.build("cow_basic_v9", 7, tmp_path / "lake" / "t")
    named = {
        TLS_CERTIFICATE.name: papers.certificate,
        TLS_KEY.name: papers.key,
        TLS_CA.name: papers.ca,
    }
    settings = Settings.parse(named, SERVICE_SETTINGS)
    with TimelineService([str(tmp_path / "lake")], settings=settings) as service:
        assert service.url.startswith("https://127.0.0.1:")
        assert service.ca_file == papers.ca
        assert service.status()["connections"]["open"] == 1
        view = connect(
            service.url, str(base), token=service.token, fallback=False, ca_file=service.ca_file
        )
        assert list(view.latest_file_slices("2024-01-01"))


def test_without_a_certificate_the_authority_has_nothing_to_say(tmp_path: Path) -> None:
    settings = Settings.parse({TLS_CA.name: "/no/such"}, SERVICE_SETTINGS)
    with TimelineService([str(tmp_path)], settings=settings, in_process=True) as service:
        assert service.url.startswith("http://")
        assert service.ca_file is None
        assert service.status()["pid"]


def locked(papers: Papers, path: Path) -> str:
    """Write the key with a password, and return the file."""
    key = serialization.load_pem_private_key(Path(papers.key).read_bytes(), None)
    secret = serialization.BestAvailableEncryption(b"secret")
    form = serialization.PrivateFormat.TraditionalOpenSSL
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, secret))
    return str(path)


def test_what_is_no_certificate_and_its_key_is_refused_in_one_line(
    papers: Papers, tmp_path: Path
) -> None:
    other = Papers(tmp_path)
    rubbish = tmp_path / "rubbish"
    rubbish.write_text("x")
    certificate, key = papers.certificate, papers.key
    for first, second, said in (
        (certificate, None, "given together"),
        (None, key, "given together"),
        ("/no/such", key, "TLS file /no/such: No such file"),
        (certificate, "/no/such", "TLS file /no/such: No such file"),
        (certificate, str(tmp_path), "Is a directory"),
        (certificate, str(rubbish), "not PEM"),
        (str(rubbish), key, "not PEM"),
        (certificate, other.key, "they don't belong together"),
        (certificate, locked(papers, tmp_path / "locked"), "the key has a password"),
    ):
        with pytest.raises(ConfigError, match=said) as caught:
            server_context(first, second)
        assert "\n" not in str(caught.value)
    assert server_context(None, None) is None


def test_a_ca_file_that_is_none_is_refused(tmp_path: Path) -> None:
    rubbish = tmp_path / "rubbish"
    rubbish.write_text("x")
    with pytest.raises(ConfigError, match="ca_file /no/such: No such file"):
        HttpSession("https://h:1", ca_file="/no/such")
    with pytest.raises(ConfigError, match=f"ca_file {rubbish}: no certificates in PEM"):
        HttpSession("https://h:1", ca_file=str(rubbish))
    with pytest.raises(ConfigError, match="isn't https"):
        HttpSession("http://h:1", ca_file=str(rubbish))


OWN = Settings.parse({TLS.name: "auto"}, SERVICE_SETTINGS)


@pytest.mark.property
@pytest.mark.parametrize("in_process", [False, True])
def test_a_driver_s_service_makes_a_certificate_for_itself(
    tmp_path: Path, in_process: bool
) -> None:
    """Tasks trust that one alone, by its fingerprint, which travels with their views (#32)."""
    base = golden.build("cow_basic_v9", 7, tmp_path / "lake" / "t")
    roots = [str(tmp_path / "lake")]
    with (
        TimelineService(roots, settings=OWN, in_process=in_process) as service,
        TimelineService(roots, settings=OWN, in_process=True) as other,
    ):
        assert service.url.startswith("https://127.0.0.1:")
        assert service.ca_file is not None
        assert re.fullmatch("sha256:[0-9a-f]{64}", service.ca_file)
        assert service.status()["pid"]
        assert other.ca_file != service.ca_file
        view = connect(
            service.url, str(base), token=service.token, fallback=False, ca_file=service.ca_file
        )
        again = pickle.loads(pickle.dumps(view))
        assert list(again.latest_file_slices("2024-01-01"))
        session = HttpSession(other.url, other.token, ca_file=service.ca_file)
        with pytest.raises(ServiceUnreachableError, match=r"has the fingerprint .*; allowed: "):
            session.get("/", {})
        assert "BEGIN" not in repr(service) + repr(service.__dict__)
    assert not list(Path(tempfile.gettempdir()).glob("strandline-tls-*"))


def test_who_takes_the_port_of_a_dead_service_gets_no_token(tmp_path: Path) -> None:
    """Neither with a certificate of its own nor by answering everything in plain HTTP (#32)."""
    base = golden.build("cow_basic_v9", 7, tmp_path / "t")
    right = LocalView.newest(TableView(LocalStorage(str(base)))).latest_base_files("2024-01-01")
    own = own_context(own_certificate(SystemClock()).pem)
    for context in (own, None):
        service = TimelineService([str(base)], settings=OWN, in_process=True)
        service.start()
        url, token, trust = service.url, service.token, service.ca_file
        service.stop()
        with Impostor(urlsplit(url).port or 0, context) as impostor:
            view = connect(url, str(base), token=token, ca_file=trust)
            assert view.latest_base_files("2024-01-01") == right
        assert token is not None
        assert impostor.heard
        assert not any(token.encode() in heard for heard in impostor.heard)


class Impostor:
    """Answers whatever comes to a port with an empty list, and remembers what that was."""

    def __init__(self, port: int, context: ssl.SSLContext | None) -> None:
        self.heard: list[bytes] = []
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", port))
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Impostor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.heard.append(b"")
            with ExitStack() as opened, suppress(OSError):
                opened.enter_context(sock)
                sock.settimeout(PATIENCE_S)
                if self._context is not None:
                    sock = self._context.wrap_socket(sock, server_side=True)
                    opened.enter_context(sock)
                self.heard.append(sock.recv(1 << 16))
                sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")


@pytest.mark.parametrize(
    "given", [{TLS_CERTIFICATE.name: "/c"}, {TLS_KEY.name: "/k"}, {TLS_CA.name: "/a"}]
)
def test_a_certificate_and_one_of_its_own_are_refused(
    tmp_path: Path, given: dict[str, str]
) -> None:
    settings = Settings.parse({TLS.name: "auto", **given}, SERVICE_SETTINGS)
    (name,) = given
    with pytest.raises(ConfigError, match=f"tls is auto, and {name} is given; allowed: one"):
        TimelineService([str(tmp_path)], settings=settings)


def test_without_the_package_that_makes_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What importing it meets when it isn't installed.
    monkeypatch.setitem(sys.modules, "cryptography.x509", None)
    with pytest.raises(ConfigError, match=r"strandline\[tls\]|needs cryptography"):
        TimelineService([str(tmp_path)], settings=OWN)


@pytest.mark.parametrize("trust", ["sha256:", "sha256:00", "sha256:" + "G" * 64])
def test_what_is_no_fingerprint_is_refused(trust: str) -> None:
    with pytest.raises(ConfigError, match="allowed: a file, or sha256: with 64 digits"):
        HttpSession("https://127.0.0.1:1", TOKEN, ca_file=trust)


def test_a_session_of_requests_checks_no_fingerprint() -> None:
    with pytest.raises(ConfigError, match="sessions of requests check no fingerprint"):
        HttpSession(
            "https://127.0.0.1:1", TOKEN, ca_file="sha256:" + "0" * 64, session="requests:Session"
        )
