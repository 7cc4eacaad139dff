"""``PostgresConnection``: a connection of psycopg that doesn't wait forever; imports psycopg.

A machine that is gone is noticed by TCP. One whose database was stopped acknowledges what it is
sent and doesn't answer, and the database's own time limits don't run either.
"""

from __future__ import annotations

import select
from collections.abc import Generator
from typing import Any, ClassVar, Final, TypeVar

import psycopg
from psycopg.waiting import Ready, Wait

from fsview.store.sql.postgres.pool import shut_down

T = TypeVar("T")

_EVENTS: Final = {
    Wait.R: select.POLLIN,
    Wait.W: select.POLLOUT,
    Wait.RW: select.POLLIN | select.POLLOUT,
}


class SilentServerError(psycopg.OperationalError):  # type: ignore[misc]
    """The server neither sent nor took anything for too long; the connection is of no use."""


class PostgresConnection(psycopg.Connection[Any]):  # type: ignore[misc]
    """A connection whose server must send or take something within ``answer_s`` seconds.

    Statements may take longer in all: a server that is at work on one for so long without a byte
    of its result counts as one that doesn't answer.
    """

    answer_s: ClassVar[float]

    def wait(self, gen: Generator[Any, Any, T], *_: Any, **__: Any) -> T:
        """Run what psycopg does on this connection; see the class.

        Raises:
            SilentServerError: The server doesn't answer.
        """
        poller, descriptor = select.poll(), self.pgconn.socket
        try:
            wanted = next(gen)
            while True:
                poller.register(descriptor, _EVENTS[wanted])
                found = poller.poll(self.answer_s * 1e3)
                if not found:
                    # Closing it would wait until the server takes what is left.
                    shut_down(self)
                    raise SilentServerError(f"no answer for {self.answer_s:g} s")
                event = found[0][1]
                # The next read or write raises an error of the socket.
                can_read = Ready.R if event & ~select.POLLOUT else Ready.NONE
                can_write = Ready.W if event & ~select.POLLIN else Ready.NONE
                wanted = gen.send(Ready(can_read | can_write))
        except StopIteration as end:
            result: T = end.value
            return result


def connection_class(answer_s: float) -> type[PostgresConnection]:
    """Return the class of connections that wait so long."""
    return type("PostgresConnection", (PostgresConnection,), {"answer_s": answer_s})
