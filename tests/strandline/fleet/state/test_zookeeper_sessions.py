"""How long ZooKeeper keeps a session, as its client hears it, or doesn't; without a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from strandline.fleet.state import zookeeper
from strandline.fleet.state.zookeeper import ZookeeperState
from timeline.errors import ConfigError


class Connection:
    """kazoo's handler of connections, as far as the state store knows it."""

    def __init__(self, *granted_ms: int) -> None:
        self.answers: list[Any] = [
            (SimpleNamespace(time_out=granted_ms), None) for granted_ms in granted_ms
        ]

    def _invoke(self, timeout: float, request: object, xid: int | None = None) -> Any:
        return 7 if xid else self.answers.pop(0)

    def connect(self) -> None:
        assert self._invoke(1.0, "connect")
        assert self._invoke(1.0, "auth", xid=-4) == 7


class Client:
    """kazoo's client; ``_connection`` is missing in a release that has another form."""

    def __init__(self, connection: Connection | None) -> None:
        if connection is not None:
            self._connection = connection

    def __call__(self, **_: object) -> Client:
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *_: None

    def start(self, timeout: float) -> None:
        if hasattr(self, "_connection"):
            self._connection.connect()


def opened(
    patched: pytest.MonkeyPatch, connection: Connection | None, session_s: float
) -> ZookeeperState:
    patched.setattr(zookeeper, "_kazoo_client", lambda: Client(connection))
    return ZookeeperState("127.0.0.1:1", "lake", session_s)


@pytest.mark.parametrize(
    ("connection", "session_s", "allowed"),
    [
        (Connection(10_000), 40.0, "10"),
        (Connection(40_000), 40.5, "40"),
        (Connection(0, 4_000), 60.0, "40"),  # the session has ended; kazoo connects again
        (None, 40.5, "40"),
    ],
)
def test_longer_sessions_than_the_servers_grant_are_refused(
    monkeypatch: pytest.MonkeyPatch, connection: Connection | None, session_s: float, allowed: str
) -> None:
    state = opened(monkeypatch, connection, session_s)
    said = rf"dead\.secs is {session_s:g}; allowed: at most {allowed}, after which ZooKeeper at"
    with pytest.raises(ConfigError, match=said):
        state.hold("members/a", b"", 3600.0)


@pytest.mark.parametrize(
    ("connection", "session_s", "granted_s"),
    [(Connection(60_000), 60.0, 60.0), (Connection(4_000), 1.0, 4.0), (None, 40.0, 40.0)],
)
def test_sessions_are_as_long_as_the_servers_say_or_by_default_at_most_40_s(
    monkeypatch: pytest.MonkeyPatch,
    connection: Connection | None,
    session_s: float,
    granted_s: float,
) -> None:
    state = opened(monkeypatch, connection, session_s)
    assert state._nodes.granted_s == granted_s
    state._check_granted()


def test_the_last_connection_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = Connection(60_000, 30_000)
    state = opened(monkeypatch, connection, 60.0)
    connection.connect()
    with pytest.raises(ConfigError, match="allowed: at most 30, after"):
        state.hold("members/a", b"", 3600.0)
