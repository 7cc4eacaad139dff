"""``strandline.server.http.authorization``: admission by token or by address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from strandline.server.http.authorization import (
    EVERYTHING,
    NOTHING,
    Admission,
    Right,
    new_token,
    parse_networks,
    read_token_file,
)
from strandline.server.http.server import ServiceServer
from strandline.server.http.server_options import ServerOptions
from strandline.server.process.composition_root import Parts
from strandline.server.process.options import PartsOptions
from tests.kit.servers.live_service import TOKEN, GoldenTables, HttpClient, running
from timeline.errors import ConfigError

VIEW = "/v1/hoodie/view/slices/partition/latest/"
CREATE = "/v1/hoodie/marker/create"
NAMES = "/v1/hoodie/marker/all"


def test_only_the_token_passes():
    admission = Admission("abc")
    assert admission.bears_token(b"Bearer abc")
    assert admission.bears_token(b"bearer  abc ")
    for header in (None, b"", b"Bearer", b"Bearer ", b"Bearer abcd", b"Basic abc", b"Bearer \xff"):
        assert not admission.bears_token(header)
    assert admission.free_to("127.0.0.1") == NOTHING
    assert not admission.is_open


def test_without_a_token_every_request_is_admitted():
    admission = Admission(None)
    assert admission.free_to("127.0.0.1") == admission.free_to(None) == EVERYTHING
    assert admission.is_open


def test_without_a_token_only_the_networks_are_admitted():
    admission = Admission(None, "10.0.0.0/8")
    assert not admission.is_open
    assert admission.free_to("10.1.2.3") == EVERYTHING
    assert admission.free_to("11.1.2.3") == NOTHING
    assert not admission.bears_token(b"Bearer None")


READS = Right.READS | Right.METRICS
NETWORKS = [
    (["10.0.0.0/8=metrics"], "10.255.0.1", Right.METRICS),
    (["10.0.0.0/8"], "10.255.0.1", EVERYTHING),
    (["10.0.0.0/8=all"], "10.255.0.1", EVERYTHING),
    (["10.0.0.0/8=reads"], "10.255.0.1", READS),
    (["10.0.0.0/8 = Markers"], "10.255.0.1", Right.MARKERS),
    (["10.0.0.0/8=reads", "10.1.0.0/16=markers"], "10.1.0.1", EVERYTHING),
    (["10.0.0.0/8=reads,10.1.0.0/16=markers"], "10.2.0.1", READS),
    (["10.0.0.0/8"], "::ffff:10.0.0.1", EVERYTHING),
    (["::ffff:10.0.0.0/104=reads"], "10.0.0.1", READS),
    (["::ffff:10.0.0.0/104"], "::ffff:11.0.0.1", NOTHING),
    (["10.0.0.7"], "10.0.0.7", EVERYTHING),
    (["10.0.0.7"], "10.0.0.8", NOTHING),
    (["fd00::/8"], "fd12::1", EVERYTHING),
    (["fe80::/10=reads"], "fe80::1%eth0", READS),
    (["fd00::/8"], "10.0.0.1", NOTHING),
    (["0.0.0.0/0"], "fd12::1", NOTHING),
    (["0.0.0.0/0=reads"], "192.0.2.1", READS),
    (["10.0.0.0/8"], None, NOTHING),
    ([], "127.0.0.1", NOTHING),
]


def test_a_peers_network_says_what_is_free_to_it(subtests):
    for networks, peer, free in NETWORKS:
        with subtests.test(networks=networks, peer=peer):
            assert Admission("abc", ",".join(networks)).free_to(peer) == free


def test_what_is_no_network_is_refused(subtests):
    for text, said in [
        ("10.0.0.1/8", "10.0.0.1/8 has host bits set"),
        ("ten", "'ten' does not appear to be an IPv4 or IPv6 network"),
        ("10.0.0.0/33", "10.0.0.0/33"),
        ("10.0.0.0/8=writes", "'writes' is no right; allowed: reads, markers, metrics, all"),
        ("10.0.0.0/8=", "'' is no right"),
        ("10.0.0.0/8,=reads", "'' does not appear to be an IPv4 or IPv6 network"),
    ]:
        with subtests.test(text=text), pytest.raises(ConfigError, match=f"^network '.*{said}"):
            Admission("abc", text)


def test_no_networks_are_none():
    assert parse_networks("") == parse_networks(" , ") == ()


def test_the_token_is_not_shown():
    token = new_token()
    assert len(token) >= 43
    assert token not in repr(Admission(token)) + str(Admission(token))
    assert new_token() != token


def test_its_text_names_the_admitted_clients():
    assert str(Admission(None)) == "everybody"
    assert str(Admission("abc")) == "bearers of the token"
    admission = Admission("abc", "10.0.0.0/8=reads, fd00::/8")
    assert str(admission) == "bearers of the token, 10.0.0.0/8 (reads), fd00::/8"


def test_a_second_token_is_admitted_too():
    admission = Admission("abc", other_token="def")
    assert admission.bears_token(b"Bearer abc")
    assert admission.bears_token(b"Bearer def")
    assert not admission.bears_token(b"Bearer abcdef")
    assert admission.tokens == ("abc", "def")
    assert admission.renew(("def", "ghi"))
    assert not admission.renew(("def", "ghi"))
    assert [admission.bears_token(b"Bearer " + t) for t in (b"abc", b"def", b"ghi")] == [
        *(False, True, True)
    ]
    assert admission.renew(("ghi",))
    assert not admission.bears_token(b"Bearer def")


class Watched(tuple[str, ...]):
    """Tokens; whoever takes one of them finds those that the admission has to admit meanwhile."""

    admission: Admission

    def __getitem__(self, index: Any) -> Any:
        self.check()
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[str]:
        for token in super().__iter__():
            self.check()
            yield token

    def check(self) -> None:
        assert self.admission.bears_token(b"Bearer old")
        assert self.admission.bears_token(b"Bearer new")


def test_tokens_are_swapped_at_once() -> None:
    swapped = Watched(("new", "old"))
    swapped.admission = Admission("old", other_token="new")
    assert swapped.admission.renew(swapped)
    assert swapped.admission.tokens == ("new", "old")


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        (" s3cret\n", ("s3cret",)),
        ("a\n b \n", ("a", "b")),
        ("a\r\nb\r\n", ("a", "b")),
        ("\na\na\n\n", ("a",)),
    ],
)
def test_a_token_file_holds_one_word_or_two_on_a_line_each(tmp_path, content, tokens):
    path = tmp_path / "token"
    path.write_text(content)
    assert read_token_file(str(path)) == tokens


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"  \n", b"two words", b"\xc3\xa9", b"a\nb\nc\n", b"a\n\nb\n", b"a\nb c\n"),
        *(b"a\x00\n", b"x" * (1 << 20)),
    ],
)
def test_another_content_is_refused_without_showing_it(tmp_path, content):
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"token file {path}: ") as caught:
        read_token_file(str(path))
    assert "two words" not in str(caught.value)


def test_a_missing_token_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        read_token_file(str(tmp_path / "none"))


# On real sockets.

TABLES = GoldenTables()
LOOK_UP = TABLES.known("cow_basic_v9", 7, partition="2024-01-01")
MARKER = {"markerdirpath": "/golden/t/.hoodie/.temp/20261121090000000"}
# All refused for what they ask, once they are admitted: nothing is there to be written to.
ASKED = (("POST", CREATE), ("GET", NAMES))


@contextmanager
def admitting(
    *networks: str, token: str | None = TOKEN, host: str = "127.0.0.1"
) -> Iterator[ServiceServer]:
    """Run a service that admits networks."""
    options = PartsOptions((TABLES.root,), token, admit_networks=",".join(networks))
    server = ServiceServer(Parts(options, opener=TABLES), ServerOptions(host))
    with running(server):
        yield server


def statuses(server: ServiceServer, token: str | None, **headers: str) -> dict[str, set[int]]:
    """Return the statuses of look-ups (both ways) and of markers (both ways)."""
    with HttpClient(server.port, token) as client:
        reads = {client.request("GET", VIEW, LOOK_UP, headers).status for _ in range(3)}
        markers = {client.request(*asked, MARKER, headers).status for asked in ASKED}
    return {"reads": reads, "markers": {status == 401 for status in markers}}


FREE, REFUSED = {False}, {True}


def test_a_network_has_what_it_was_given(subtests: pytest.Subtests) -> None:
    for networks, reads, markers in [
        (["127.0.0.0/8"], {200}, FREE),
        (["127.0.0.0/8=reads"], {200}, REFUSED),
        (["127.0.0.0/8=markers"], {401}, FREE),
        (["127.0.0.0/8=markers", "127.0.0.1=reads"], {200}, FREE),
        (["10.0.0.0/8"], {401}, REFUSED),
        ([], {401}, REFUSED),
    ]:
        with subtests.test(networks=networks), admitting(*networks) as server:
            assert statuses(server, None) == {"reads": reads, "markers": markers}
            if reads == {200}:
                assert server.parts.hot.counts.total() > 0
            assert statuses(server, "wrong") == {"reads": reads, "markers": markers}
            assert statuses(server, TOKEN) == {"reads": {200}, "markers": FREE}


def test_what_headers_say_of_the_peer_does_not_count() -> None:
    with admitting("10.0.0.0/8") as server:
        for header in ("X-Forwarded-For", "Forwarded", "X-Real-IP", "True-Client-IP"):
            for said in ("10.1.2.3", "for=10.1.2.3"):
                assert statuses(server, None, **{header: said})["reads"] == {401}, header


def test_an_ipv4_peer_of_a_socket_for_both_families_is_one() -> None:
    with admitting("127.0.0.1/32=reads", host="::") as server:
        assert statuses(server, None) == {"reads": {200}, "markers": REFUSED}
        with HttpClient(server.port, None, host="::1") as other:
            assert other.request("GET", VIEW, LOOK_UP).status == 401


def test_markers_are_refused_whatever_their_path_looks_like() -> None:
    """Paths that only resemble a marker route's aren't routed to it."""
    with admitting("127.0.0.0/8=reads") as server, HttpClient(server.port, None) as client:
        for path in (NAMES, f"{NAMES}/", "/v1/hoodie/%6Darker/all", "/v1/hoodie/marker%2Fall"):
            assert client.request("GET", path, MARKER).status == 401, path
        for path in (
            "//v1/hoodie/marker/all",
            "/v1/hoodie/view/../marker/all",
            "/v1/hoodie/Marker/all",
        ):
            assert client.request("GET", path, MARKER).status in (401, 404), path
