"""``ZookeeperLock``: a queue of ephemeral nodes, with the node names of Curator's mutex.

A client that wants the lock creates the node ``_c_<uuid>-lock-NNNNNNNNNN`` below the lock's path;
the server numbers it. The lowest number has the lock, and each of the others watches the next lower
one. Curator orders all nodes by what follows ``lock-``, so that name is part of the protocol:
kazoo's own lock names its nodes differently, and Hudi's writers wouldn't be excluded by it.

Nodes end with their session, so a killed holder's lock is free after the session's time-out, and a
holder that can't reach the server must consider its lock lost.

Source: Hudi 1.2.0 ``BaseZookeeperBasedLockProvider``; Curator ``InterProcessMutex``,
``LockInternals``, ``StandardLockInternalsDriver``; the XXH64 specification (a table's
node is named by that hash of its base path).
"""

from __future__ import annotations

import logging
import os
import re
import socket
import struct
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeVar

from strandline.commit.lock import settings
from strandline.commit.lock.base import LockProvider
from strandline.settings.setting import seconds
from timeline.clock import Clock, SystemClock
from timeline.errors import ConfigError, LockError

logger = logging.getLogger(__name__)

T = TypeVar("T")

IMPLICIT_KEY: Final = "lock_key"
_HASH_SEED: Final = 0xFFFF_FFFF_DABA_DABA
"""Hudi's seed, an ``int`` that Java extends to a ``long`` with its sign."""
_SEQUENCE: Final = "lock-"

_MASK: Final = (1 << 64) - 1
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5


@dataclass(frozen=True, slots=True)
class ZookeeperAddress:
    """How to reach the lock.

    Attributes:
        hosts: ``host:port`` of the servers, separated by commas; a path after them is the root.
        path: The node below which clients queue.
        session_timeout_s: How long the server keeps the nodes of a client that is silent.
        connection_timeout_s: How long connecting may take.
        retries: How often a request is repeated after the connection was lost.
        retry_wait_s: Pause before the first repetition; doubles up to ``retry_max_wait_s``.
        retry_max_wait_s: Longest pause.
    """

    hosts: str
    path: str
    session_timeout_s: float = settings.ZOOKEEPER_SESSION_TIMEOUT.field(seconds)
    connection_timeout_s: float = settings.ZOOKEEPER_CONNECTION_TIMEOUT.field(seconds)
    retries: int = settings.RETRIES.field()
    retry_wait_s: float = settings.RETRY_WAIT.field(seconds)
    retry_max_wait_s: float = settings.RETRY_MAX_WAIT.field(seconds)


def implicit_path(base_path: str) -> str:
    """Return the node that Hudi derives from the text of a base path for an implicit lock."""
    text = re.sub("^s3a://", "s3://", base_path, flags=re.IGNORECASE)
    return f"/tmp/{xxhash64(text.encode(), _HASH_SEED):016X}/{IMPLICIT_KEY}"  # noqa: S108 - a node


class ZookeeperLock(LockProvider):
    """A lock by a queue of nodes.

    Args:
        address: How to reach it.
        clock: Measures time-outs.

    Raises:
        ConfigError: kazoo isn't installed.
    """

    name: ClassVar[str] = "ZookeeperBasedLockProvider"

    def __init__(self, address: ZookeeperAddress, clock: Clock | None = None) -> None:
        _require_kazoo()
        self._address = address
        self._clock = clock or SystemClock()
        self._client: Any = None
        # Prefix of this attempt's node; it finds the node if the response to its creation was lost.
        self._prefix = ""
        self._node: str | None = None
        self._session: object = None
        self._held = False
        self._other = b""

    def try_lock(self, timeout_s: float) -> bool:
        """Queue for the lock, waiting at most ``timeout_s`` seconds."""
        if self._held:
            return True
        deadline = self._clock.monotonic() + timeout_s
        try:
            self._held = self._asked(lambda: self._queued(deadline))
        finally:
            if not self._held:
                # Otherwise this node would get the lock once it is the lowest.
                self._leave()
        return self._held

    def _queued(self, deadline: float) -> bool:
        self._connected()
        self._request("ensure_path", self._address.path)
        self._join()
        while True:
            lower = self._next_lower()
            if lower is None:
                return True
            if not self._waited_for(lower, deadline):
                return False

    def _waited_for(self, lower: str, deadline: float) -> bool:
        """Wait until a node changes or is gone; return whether that was before the deadline."""
        changed = threading.Event()
        found = self._read(lower, lambda _: changed.set())
        if found is None:
            return True  # the node is gone already
        self._other = found
        # The watch also fires when the connection is lost; the next request then shows the state.
        return changed.wait(max(deadline - self._clock.monotonic(), 0))

    def _join(self) -> None:
        """Create this attempt's node at the end of the queue."""
        client = self._client
        self._prefix = f"_c_{uuid.uuid4()}-{_SEQUENCE}"
        self._session = client.client_id
        place = f"{self._address.path}/{self._prefix}"
        who = f"application_id=strandline-{socket.gethostname()}-{os.getpid()}"

        def create() -> str:
            # Repeated after a lost connection, when the first request may have been carried out.
            found = self._find_own()
            if found is not None:
                return found
            options = {"ephemeral": True, "sequence": True}
            path: str = self._answer("create", place, who.encode(), **options)
            return path.rpartition("/")[2]

        self._node = client.retry(create)

    def _children(self) -> list[str]:
        names: list[str] = self._request("get_children", self._address.path)
        # Curator orders nodes by the text after the last ``lock-``, or by the whole name.
        return sorted(names, key=lambda node: node.rpartition(_SEQUENCE)[2])

    def _find_own(self) -> str | None:
        return next((name for name in self._children() if name.startswith(self._prefix)), None)

    def _next_lower(self) -> str | None:
        """Return the node to wait for; ``None``: ours is the lowest.

        Raises:
            LockError: Our node is gone: the session ended.
        """
        names = self._children()
        if self._node not in names:
            raise LockError(f"the session with {self._address.hosts} ended while it waited")
        place = names.index(self._node)
        return names[place - 1] if place else None

    def _read(self, node: str, watch: Callable[[Any], None] | None = None) -> bytes | None:
        from kazoo.exceptions import NoNodeError  # noqa: PLC0415 - optional

        path = f"{self._address.path}/{node}"
        try:
            data, _ = self._request("get", path, watch)
        except NoNodeError:
            return None
        return bytes(data)

    def unlock(self) -> None:
        """Delete this client's node."""
        was_held, self._held = self._held, False
        if not self._prefix:
            return
        try:
            was_there = self._asked(self._left)
        except LockError:
            # A node that stays would be ahead of this client's own next one: closing the session
            # removes it.
            self.close()
            raise
        if was_held and not was_there:
            raise LockError(f"{self.describe()} was lost while it was held: the session ended")

    def _leave(self) -> None:
        """Leave the queue after a failed attempt, if the server can be reached."""
        if self._client is None or not self._prefix:
            return
        try:
            self._asked(self._left)
        except LockError as error:
            logger.info("%s; the session is closed, with which its node ends", error)
            self.close()

    def _left(self) -> bool:
        """Delete this attempt's node; return whether it was there."""
        from kazoo.exceptions import NoNodeError  # noqa: PLC0415 - optional

        client = self._connected()
        node = self._find_own()
        if node is not None:
            # If the first response was lost, the repeated request finds no node; the session
            # decides below.
            with suppress(NoNodeError):
                self._request("delete", f"{self._address.path}/{node}")
        self._prefix, self._node = "", None
        return node is not None and client.client_id == self._session

    def is_held(self) -> bool:
        """Return whether this client's node exists in the session that created it.

        Asks the server for its newest state: a client that was paused would otherwise notice too
        late that its session has ended.
        """
        if not self._held or self._client is None or self._client.client_id != self._session:
            return False
        try:
            return self._asked(self._exists)
        except LockError:
            return False

    def _exists(self) -> bool:
        self._answer("sync", self._address.path)
        return self._answer("exists", f"{self._address.path}/{self._node}") is not None

    def describe(self) -> str:
        """Return servers and node."""
        return f"{self._address.hosts}{self._address.path}"

    def holder(self) -> str:
        """Return the content of the awaited node: Hudi writes an application's id."""
        return self._other.decode(errors="replace")

    def advice(self) -> str:
        """Return when the node of a killed writer ends."""
        return (
            "a killed writer's node ends with its session, after"
            f" {self._address.session_timeout_s:g} s by this client's settings"
        )

    def close(self) -> None:
        """End the session, which releases the lock if it is held."""
        client, self._client = self._client, None
        self._held, self._prefix, self._node = False, "", None
        if client is not None:
            _closed(client)

    def _connected(self) -> Any:
        if self._client is None:
            self._client = self._started()
        return self._client

    def _started(self) -> Any:
        from kazoo.client import KazooClient  # noqa: PLC0415 - optional

        address = self._address
        retry = {
            "max_tries": address.retries,
            "delay": address.retry_wait_s,
            "max_delay": address.retry_max_wait_s,
        }
        client = KazooClient(
            hosts=address.hosts, timeout=address.session_timeout_s, command_retry=retry
        )
        try:
            client.start(address.connection_timeout_s)
        # On an interrupt, too: the client's threads would keep running.
        except BaseException:
            _closed(client)
            raise
        return client

    def _request(self, name: str, *args: Any) -> Any:
        """Return the answer to a request, which is repeated when the connection is lost."""
        return self._client.retry(lambda: self._answer(name, *args))

    def _answer(self, name: str, *args: Any, **options: Any) -> Any:
        """Return the answer to one request.

        Without the time-out kazoo would keep the request until there is a connection again.
        """
        asked = getattr(self._client, f"{name}_async")(*args, **options)
        return asked.get(timeout=self._address.connection_timeout_s)

    def _asked(self, ask: Callable[[], T]) -> T:
        """Return the answer of ZooKeeper; its errors become ``LockError``."""
        from kazoo.exceptions import KazooException  # noqa: PLC0415 - optional
        from kazoo.handlers.threading import KazooTimeoutError  # noqa: PLC0415 - optional

        try:
            return ask()
        except (KazooException, KazooTimeoutError, OSError) as error:
            why = str(error) or type(error).__name__
            raise LockError(f"ZooKeeper at {self.describe()}: {why}") from error


class ImplicitZookeeperLock(ZookeeperLock):
    """A lock whose node is derived from the table's base path."""

    name: ClassVar[str] = "ZookeeperBasedImplicitBasePathLockProvider"


def _closed(client: Any) -> None:
    """End a client's session, or let it expire if the server can't be reached."""
    from kazoo.exceptions import KazooException  # noqa: PLC0415 - optional

    try:
        client.stop()
        client.close()
    except KazooException as error:
        logger.warning("a session with ZooKeeper wasn't ended: %s", error)


def _require_kazoo() -> None:
    try:
        import kazoo.client  # noqa: F401, PLC0415 - optional
    except ImportError as error:
        raise ConfigError(
            "ZookeeperBasedLockProvider needs kazoo: pip install strandline[zookeeper]"
        ) from error


def xxhash64(data: bytes, seed: int = 0) -> int:
    """Return the XXH64 hash, an unsigned number of 64 bits."""
    rest = len(data) % 32
    if len(data) >= 32:
        lanes = [(seed + start) & _MASK for start in (_P1 + _P2, _P2, 0, -_P1)]
        for words in struct.iter_unpack("<4Q", data[: len(data) - rest]):
            lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
        value = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            value = ((value & _MASK) ^ _round(0, lane)) * _P1 + _P4
    else:
        value = seed + _P5
    value = (value + len(data)) & _MASK
    return _avalanche(_with_tail(value, data[len(data) - rest :]))


def _with_tail(value: int, tail: bytes) -> int:
    """Return the value with the last bytes, fewer than 32, mixed in."""
    while len(tail) >= 8:
        value ^= _round(0, int.from_bytes(tail[:8], "little"))
        value = (_rotated(value, 27) * _P1 + _P4) & _MASK
        tail = tail[8:]
    if len(tail) >= 4:
        value ^= (int.from_bytes(tail[:4], "little") * _P1) & _MASK
        value = (_rotated(value, 23) * _P2 + _P3) & _MASK
        tail = tail[4:]
    for byte in tail:
        value ^= (byte * _P5) & _MASK
        value = (_rotated(value, 11) * _P1) & _MASK
    return value


def _avalanche(value: int) -> int:
    value = ((value ^ (value >> 33)) * _P2) & _MASK
    value = ((value ^ (value >> 29)) * _P3) & _MASK
    return value ^ (value >> 32)


def _round(lane: int, word: int) -> int:
    return (_rotated((lane + word * _P2) & _MASK, 31) * _P1) & _MASK


def _rotated(value: int, by: int) -> int:
    return ((value << by) | (value >> (64 - by))) & _MASK
