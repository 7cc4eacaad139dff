"""``Nodes``: the nodes of a state store in ZooKeeper, and its transactions.

A transaction reads the nodes that it needs, and sends a multi-transaction that checks them. As
ZooKeeper can only check how often a node was set, and that count restarts when a node is deleted
and created again, each transaction also checks and sets the parent of all nodes. So nothing was
written between its reads and its writes, and of two concurrent transactions one starts over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from timeline.errors import ConfigError, StateUnavailableError

logger = logging.getLogger(__name__)

_ATTEMPTS: Final = 200
"""Most attempts of a transaction that lost to others; each time one of those succeeded."""

Stat = Any
"""kazoo's ``ZnodeStat``."""


class NodeTransaction:
    """Writes to apply, all or none, if what was read hasn't changed.

    Args:
        nodes: The nodes.
        parent: The parent as it was read before all others.
    """

    def __init__(self, nodes: Nodes, parent: Stat) -> None:
        self._nodes = nodes
        self._request = nodes.client.transaction()
        self._request.set_data(nodes.root, b"", parent.version)

    def find(self, name: str) -> Stat | None:
        """Return a node's stat; ``None`` if it doesn't exist."""
        # The parent was read before, from a server that was up to date.
        return self._nodes.read("exists", name)

    def create(self, name: str, value: bytes, *, is_lease: bool) -> None:
        """Create a node, ephemeral if it is a lease."""
        self._request.create(self._nodes.path(name), value, ephemeral=is_lease)

    def set(self, name: str, value: bytes, stat: Stat) -> None:
        """Set a node that was found."""
        self._request.set_data(self._nodes.path(name), value, stat.version)

    def delete(self, name: str, stat: Stat) -> None:
        """Delete a node that was found."""
        self._request.delete(self._nodes.path(name), stat.version)

    def check(self, name: str, stat: Stat) -> None:
        """Fail the transaction if a node that was found is gone: sessions may end at any time."""
        self._request.check(self._nodes.path(name), stat.version)

    def commit(self) -> int | None:
        """Write; return ZooKeeper's number of the transaction, ``None`` if anything has changed."""
        results = self._request.commit_async().get(timeout=self._nodes.answer_s)
        if any(isinstance(result, Exception) for result in results):
            return None
        return int(results[0].mzxid)


class Nodes:
    """A client of ZooKeeper with one session, and the nodes below one parent.

    Args:
        hosts: ``host:port`` of the servers, separated by commas.
        root: Path of the parent, created if it doesn't exist.
        session_s: Seconds of silence after which the servers end the session.
        answer_s: How long an answer may take.
        on_connection: Called when the connection was lost or made.

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
        self.client = _kazoo_client()(hosts=hosts, timeout=session_s)
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

    def change(self, fill: Callable[[NodeTransaction], bool]) -> int | None:
        """Run a transaction; repeat it while other writers are faster.

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
                parent = self.find("exists", "")
                if parent is None:
                    raise StateUnavailableError(f"{self.place} was deleted while it was in use")
                transaction = NodeTransaction(self, parent)
                if not fill(transaction):
                    return None
                number = transaction.commit()
                if number is not None:
                    return number
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
