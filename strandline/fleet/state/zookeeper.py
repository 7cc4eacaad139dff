"""``ZookeeperState``: the state store of servers on several machines, in ZooKeeper.

All keys are children of one node, ``/strandline/FLEET``, with ``:`` for the ``/`` of a key:
``seats/3`` is the node ``seats:3``. A node's data is the value; its version is ZooKeeper's number
of the transaction that changed it last (``mzxid``).

A transaction (``Nodes``) reads the nodes that it needs, and sends a multi-transaction that checks
them. As ZooKeeper can only check how often a node was set, and that count restarts when a node is
deleted and created again, each transaction also checks and sets the parent of all nodes. So nothing
was written between its reads and its writes, and of two concurrent transactions one starts over.

Reads send a ``sync`` first, so they don't return the state of a server that is behind. A lease is
an ephemeral node. The client library's thread keeps the session, with all its leases, alive while
the process runs. A renewal sets the node's ACL to what it is: the quorum must take part in that, as
in each write, so the answer has the node as it is at all servers, and no watch is told of it. Nodes
have an open ACL: every client that reaches the servers can change them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from strandline.fleet.state.base import (
    ABSENT,
    Cancel,
    Delete,
    Lease,
    Op,
    Put,
    StateStore,
    Versioned,
    conflict,
)
from strandline.fleet.state.checks import (
    check_key,
    check_ops,
    check_prefix,
    check_session,
    check_value,
    is_key,
)
from strandline.fleet.state.watches import Poller, Watches
from timeline.errors import ConfigError, StateUnavailableError

SESSION_S: Final = 10.0
UNTOLD_S: Final = 40.0
"""Longest session that ZooKeeper makes by default, for releases of kazoo that don't tell it."""
ANSWER_S: Final = 15.0
LOOK_S: Final = 60.0
"""ZooKeeper reports changes, and kazoo that the connection was lost, which may have hidden some.

After this time a client polls even without a report, with one request if nothing has changed.
"""

_RECONNECTING: Final = {"max_tries": -1, "max_delay": 2.0}
"""How a lost connection is made again: kazoo's pauses double, by default up to an hour."""

logger = logging.getLogger(__name__)
_ATTEMPTS: Final = 200
"""Most attempts of a transaction that lost to others; each time one of those succeeded."""
Request = Any
"""kazoo's ``TransactionRequest``: writes that are applied, all or none."""


class Nodes:
    """A client of ZooKeeper with one session, and the nodes below one parent.

    Args:
        hosts: ``host:port`` of the servers, separated by commas.
        root: Path of the parent, created if it doesn't exist.
        session_s: Seconds of silence after which the servers are to end the session.
        answer_s: How long an answer may take.
        on_connection: Called when the connection was lost or made.

    Attributes:
        granted_s: Seconds of silence after which they do: each connection's server may allow less.

    Raises:
        ConfigError: kazoo isn't installed.
        StateUnavailableError: No server can be reached.
    """

    def __init__(
        self,
        hosts: str,
        root: str,
        session_s: float,
        answer_s: float,
        on_connection: Callable[[], object],
    ) -> None:
        self.root = root
        self.place = f"ZooKeeper at {hosts}{root}"
        self.answer_s = answer_s
        self.is_closed = False
        self.client = _kazoo_client()(
            hosts=hosts, timeout=session_s, connection_retry=_RECONNECTING
        )
        self.granted_s = min(session_s, UNTOLD_S)
        self._hear_granted()
        self.client.add_listener(lambda _: on_connection())
        try:
            with self.mapped():
                self.client.start(answer_s)
                self.client.ensure_path(root)
        # On an interrupt, too: the client's threads would keep running.
        except BaseException:
            self.close()
            raise

    @property
    def session(self) -> int:
        """The number of the session; to be used within ``mapped``."""
        client_id = self.client.client_id
        if client_id is None:
            raise StateUnavailableError(f"{self.place}: there is no connection")
        return int(client_id[0])

    def _hear_granted(self) -> None:
        """Take ``granted_s`` from the answer to the first request of each connection.

        kazoo reads it there, and gives it to nobody: its handler of connections is wrapped, if it
        has the form of 2.x.
        """
        handler = getattr(self.client, "_connection", None)
        invoke = getattr(handler, "_invoke", None)
        if handler is None or invoke is None:
            return

        def invoked(*args: Any, **more: Any) -> Any:
            answer = invoke(*args, **more)
            connected = answer[0] if isinstance(answer, tuple) else None
            granted_ms = getattr(connected, "time_out", 0)
            if granted_ms > 0:  # else the session has ended, and kazoo begins another one
                self.granted_s = granted_ms / 1000
            return answer

        handler._invoke = invoked

    def path(self, name: str) -> str:
        """Return the path of a node; ``""`` is the parent."""
        return f"{self.root}/{name}" if name else self.root

    def find(self, request: str, name: str) -> Any:
        """Return the newest answer to a request; ``None``: there is no such node.

        Args:
            request: ``"get"``, ``"exists"`` or ``"get_children"``.
            name: The node.
        """
        # A server may be behind. Both are sent at once, and are answered in order.
        synced = self.client.sync_async(self.root)
        answer = self._asked(request, name)
        synced.get(timeout=self.answer_s)
        return self._answered(answer)

    def read(self, request: str, name: str) -> Any:
        """Return the answer to a request, never older than an earlier answer to this client."""
        return self._answered(self._asked(request, name))

    def _asked(self, request: str, name: str) -> Any:
        return getattr(self.client, f"{request}_async")(self.path(name))

    def _answered(self, answer: Any) -> Any:
        from kazoo.exceptions import NoNodeError  # noqa: PLC0415 - optional

        try:
            return answer.get(timeout=self.answer_s)
        except NoNodeError:
            return None

    def all(self) -> dict[str, Any]:
        """Return the data and the ``ZnodeStat`` of all nodes, by name, as they are at one time.

        Cost: the time of two requests, as those of a session are answered in order.
        """
        with self.mapped():
            for _ in range(_ATTEMPTS):
                synced = self.client.sync_async(self.root)
                first, listed = self._asked("exists", ""), self._asked("get_children", "")
                synced.get(timeout=self.answer_s)
                parent, names = self._there(self._answered(first)), self._answered(listed) or ()
                asked = {name: self._asked("get", name) for name in names}
                last = self._asked("exists", "")
                found = {name: self._answered(each) for name, each in asked.items()}
                now = self._answered(last)
                # Each transaction changes the parent; a session may end in between.
                if now is not None and now.mzxid == parent.mzxid:
                    return {name: node for name, node in found.items() if node is not None}
        raise StateUnavailableError(f"{self.place} changed during each of {_ATTEMPTS} reads")

    def _parent(self) -> Any:
        """Return the newest ``ZnodeStat`` of the parent."""
        return self._there(self.find("exists", ""))

    def _there(self, parent: Any) -> Any:
        """Return the parent's ``ZnodeStat``, which there must be."""
        if parent is None:
            raise StateUnavailableError(f"{self.place} was deleted while it was in use")
        return parent

    def touch(self, name: str) -> Any:
        """Return the ``ZnodeStat`` of a node as it is at all servers; ``None``: there is none.

        It takes a write, with one request: a server that is behind, or a leader that the others
        have left, can't answer it, nor can one whose leader has ended this session.
        """
        from kazoo.security import OPEN_ACL_UNSAFE  # noqa: PLC0415 - optional

        return self._answered(self.client.set_acls_async(self.path(name), OPEN_ACL_UNSAFE))

    def change(self, fill: Callable[[Request], bool]) -> int | None:
        """Run a transaction that fails if others have written meanwhile; repeat it then.

        Args:
            fill: Reads, and adds the writes to the transaction; returns whether there are any.

        Returns:
            ZooKeeper's number of the transaction; ``None`` if nothing was to be written.

        Raises:
            StateUnavailableError: The servers can't be reached. Exceptions of ``fill`` pass
                through.
        """
        with self.mapped():
            for _ in range(_ATTEMPTS):
                parent = self._parent()
                # What is read after the parent is from a server that was up to date then.
                request = self.client.transaction()
                request.set_data(self.root, b"", parent.version)
                if not fill(request):
                    return None
                results = request.commit_async().get(timeout=self.answer_s)
                if not any(isinstance(result, Exception) for result in results):
                    return int(results[0].mzxid)
        raise StateUnavailableError(
            f"{self.place}: other clients wrote before each of {_ATTEMPTS} attempts"
        )

    def numbers(self, tell: Callable[[object], object]) -> dict[str, int]:
        """Return name → number of the transaction that changed each node last.

        Args:
            tell: Called once at the next change of any of them, and when the connection is lost.
        """
        with self.mapped():
            listed = self.client.get_children_async(self.root, tell)
            names: list[str] = listed.get(timeout=self.answer_s)
            asked = {name: self.client.exists_async(self.path(name), tell) for name in names}
            found = {name: each.get(timeout=self.answer_s) for name, each in asked.items()}
        return {name: int(stat.mzxid) for name, stat in found.items() if stat is not None}

    def last_change(self) -> tuple[int, int]:
        """Return the numbers of the transactions that changed the parent and its list last.

        Each transaction of ``change`` changes the parent, and the end of a session the list.
        """
        with self.mapped():
            stat = self.read("exists", "")
        return (0, 0) if stat is None else (int(stat.mzxid), int(stat.pzxid))

    def check_open(self) -> None:
        """Raise ``StateUnavailableError`` after ``close``."""
        if self.is_closed:
            raise StateUnavailableError(f"{self.place} is closed")

    @contextmanager
    def mapped(self) -> Iterator[None]:
        """Map errors of kazoo in the block to ``StateUnavailableError``."""
        from kazoo.exceptions import KazooException  # noqa: PLC0415 - optional
        from kazoo.handlers.threading import KazooTimeoutError  # noqa: PLC0415 - optional

        self.check_open()
        try:
            yield
        except (KazooException, KazooTimeoutError, OSError) as error:
            why = str(error) or type(error).__name__
            raise StateUnavailableError(f"{self.place}: {why}") from error

    def close(self) -> None:
        """End the session, or let it expire if no server can be reached; may be repeated."""
        from kazoo.exceptions import KazooException  # noqa: PLC0415 - optional

        if self.is_closed:
            return
        self.is_closed = True
        try:
            self.client.stop()
            self.client.close()
        except (KazooException, OSError) as error:
            logger.warning("a session with %s wasn't ended: %s", self.place, error)


def _kazoo_client() -> Any:
    try:
        from kazoo.client import KazooClient  # noqa: PLC0415 - optional
    except ImportError as error:
        raise ConfigError(
            "a state store in ZooKeeper needs kazoo: pip install strandline[fleet]"
        ) from error
    return KazooClient


class ZookeeperState(StateStore):
    """A client with one session; ``_lock`` guards its leases and the start of its watches.

    Args:
        hosts: ``host:port`` of the servers, separated by commas.
        fleet: The fleet's name, which must be a valid key.
        session_s: Seconds of silence after which the servers are to end the session and its leases.
            They allow 2 to 20 of their ticks, by default 4 to 40 s. With less than this no lease is
            held or renewed: its holder would trust it for longer.
        answer_s: How long an answer may take.
        look_s: Seconds between two polls for changes that aren't reported.

    Raises:
        ConfigError: kazoo isn't installed.
        InputError: The fleet's name isn't allowed.
        StateUnavailableError: No server can be reached.
    """

    def __init__(
        self,
        hosts: str,
        fleet: str,
        session_s: float = SESSION_S,
        answer_s: float = ANSWER_S,
        look_s: float = LOOK_S,
    ) -> None:
        self._session_s, self._look_s = session_s, look_s
        self._lock = threading.Lock()
        self._made: set[int] = set()
        self._watches = Watches()
        self._poller: Poller | None = None
        self._last_change: tuple[int, int] | None = None
        self._numbers: Mapping[str, int] = {}
        root = f"/strandline/{_node(check_key(fleet))}"
        self._nodes = Nodes(hosts, root, session_s, answer_s, self._changed)

    def get(self, key: str) -> Versioned | None:
        """Return a key's value and version; ``None`` if it doesn't exist."""
        check_key(key)
        with self._nodes.mapped():
            found = self._nodes.find("get", _node(key))
        return None if found is None else _versioned(found)

    def read(self) -> dict[str, Versioned]:
        """Return all keys with their values and versions, as they are at one time."""
        nodes = ((_key(name), node) for name, node in self._nodes.all().items())
        return {key: _versioned(node) for key, node in nodes if is_key(key)}

    def write(self, *ops: Op) -> int:
        """Change keys, all or none; return the version that they have now."""
        check_ops(ops)

        def fill(request: Request) -> bool:
            for op in ops:
                self._add(request, op)
            return True

        version = self._nodes.change(fill)
        assert version is not None
        return version

    def hold(self, key: str, value: bytes, ttl_s: float) -> Lease:
        """Create a lease, which expires with the session, ``session_s`` after its last ping."""
        check_value(check_key(key), value)
        check_session(ttl_s, self._session_s)
        self._check_granted()

        path = self._nodes.path(_node(key))

        def fill(request: Request) -> bool:
            stat = self._nodes.read("exists", _node(key))
            if stat is not None:
                is_left = stat.ephemeralOwner == self._nodes.session
                if not is_left or stat.czxid in self._made:
                    raise conflict(key, stat.mzxid, ABSENT)
                # Created by an earlier call whose answer was lost, so no ``Lease`` refers to it.
                request.delete(path, stat.version)
            request.create(path, value, ephemeral=True)
            return True

        # One at a time: a lease that another thread is creating must not count as left over.
        with self._lock:
            version = self._nodes.change(fill)
            assert version is not None
            self._made.add(version)
        return ZookeeperLease(self, key, version)

    def watch(self, prefix: str, call: Callable[[], object]) -> Cancel:
        """Have a function called after each change of a key or of one below it."""
        check_prefix(prefix)
        with self._lock:
            self._nodes.check_open()
            if self._poller is None:
                self._poller = Poller(self._look, self._watches, self._look_s, self._nodes.place)
                # A change during its first poll was reported before there was a poller to hurry.
                self._poller.hurry()
            return self._watches.add(prefix, call)

    def close(self) -> None:
        """End the watches and the session, which releases its leases; may be repeated."""
        with self._lock:
            poller, self._poller = self._poller, None
        self._watches.clear()
        if poller is not None:
            poller.stop()
        self._nodes.close()

    def renew(self, lease: ZookeeperLease, value: bytes | None) -> int | None:
        """Set a lease's value if one is given; return its version, ``None`` if it is lost."""
        if value is not None:
            check_value(lease.key, value)
        if self._nodes.is_closed:
            return None
        self._check_granted()
        if value is None:
            with self._nodes.mapped():
                stat = self._nodes.touch(_node(lease.key))
            is_held = stat is not None and stat.czxid == lease.made
            return lease.version if is_held else None

        return self._change(lease, lambda request, path, at: request.set_data(path, value, at))

    def _check_granted(self) -> None:
        granted_s = self._nodes.granted_s
        if granted_s < int(1000 * self._session_s) / 1000:  # kazoo asks for whole milliseconds
            raise ConfigError(
                f"strandline.fleet.dead.secs is {self._session_s:g}; allowed: at most"
                f" {granted_s:g}, after which {self._nodes.place} ends sessions",
                hint="or raise maxSessionTimeout at all of ZooKeeper's servers",
            )

    def release(self, lease: ZookeeperLease) -> None:
        """Delete a lease if it is still held."""
        if not self._nodes.is_closed:
            self._change(lease, lambda request, path, version: request.delete(path, version))

    def _change(
        self, lease: ZookeeperLease, add: Callable[[Request, str, int], object]
    ) -> int | None:
        """Change a lease's node if it is still held; return the transaction's number.

        Args:
            lease: The lease.
            add: Adds a write to a transaction, given the node's path and version.
        """

        def fill(request: Request) -> bool:
            stat = self._nodes.read("exists", _node(lease.key))
            is_held = stat is not None and stat.czxid == lease.made
            if is_held:
                add(request, self._nodes.path(_node(lease.key)), stat.version)
            return is_held

        return self._nodes.change(fill)

    def _add(self, request: Request, op: Op) -> None:
        """Add an operation to a transaction; raise ``StateConflictError`` if it can't be done."""
        stat = self._nodes.read("exists", _node(op.key))
        found = ABSENT if stat is None else int(stat.mzxid)
        if found != op.version:
            raise conflict(op.key, found, op.version)
        path = self._nodes.path(_node(op.key))
        if isinstance(op, Put) and stat is None:
            request.create(path, op.value)
        elif isinstance(op, Put):
            request.set_data(path, op.value, stat.version)
        elif isinstance(op, Delete):
            request.delete(path, stat.version)
        elif stat is not None:
            # Sessions may end at any time.
            request.check(path, stat.version)

    def _look(self) -> Mapping[str, int]:
        last = self._nodes.last_change()
        if last == self._last_change:
            return self._numbers
        # Before the numbers are read: a report meanwhile has them read again.
        self._last_change = last
        try:
            found = self._nodes.numbers(self._tell)
        except BaseException:
            self._last_change = None
            raise
        self._numbers = {_key(name): number for name, number in found.items()}
        return self._numbers

    def _tell(self, _: object) -> None:
        self._changed()

    def _changed(self) -> None:
        self._last_change = None
        poller = self._poller
        if poller is not None:
            poller.hurry()


class ZookeeperLease(Lease):
    """An ephemeral node, known by the number of the transaction that made it.

    Attributes:
        made: The number.
    """

    def __init__(self, state: ZookeeperState, key: str, version: int) -> None:
        self._state = state
        self.key = key
        self.version = self.made = version

    def renew(self, value: bytes | None = None) -> bool:
        """Return whether the lease is held; the client's thread keeps it."""
        version = self._state.renew(self, value)
        if version is not None:
            self.version = version
        return version is not None

    def release(self) -> None:
        """Delete the key if it is still held; otherwise do nothing."""
        self._state.release(self)


def _versioned(node: tuple[bytes, Any]) -> Versioned:
    return Versioned(bytes(node[0]), int(node[1].mzxid))


def _node(key: str) -> str:
    return key.replace("/", ":")


def _key(node: str) -> str:
    return node.replace(":", "/")
