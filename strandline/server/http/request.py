"""``Request``: an admitted request, as the application sees it.

Every parameter is in the query string. Only batched look-ups have a body; those of other requests
are dropped when they are parsed.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from fsview.wire.lookup_form import LOOKUP_PATH
from strandline.server.http.query import parse_query
from strandline.server.http.reply import Accepted, Reply, accepted
from strandline.server.http.table_of_request import asked_table

Headers = list[tuple[bytes, bytes]]
"""Header fields as received, names in lower case."""
Fields = Mapping[bytes, bytes]
"""Header fields by name in lower case; several of one name are joined by commas."""


def accepted_of(fields: Fields) -> Accepted:
    """Return the forms of a reply that a request with these fields accepts."""
    return accepted(fields.get(b"accept-encoding", b""), fields.get(b"accept", b""))


@dataclass(frozen=True, slots=True)
class Request:
    """One admitted request.

    Attributes:
        method: Such as ``GET``.
        path: Unescaped.
        query: The query string as received, without ``?``.
        fields: Header fields.
        version: Of HTTP, such as ``1.1``.
        peer: The client's address; empty: it has none.
        body: The body, of a request that ``reads_body``.
        cancelled: Set once the client has left or the service stops.
    """

    method: str
    path: str
    query: bytes
    fields: Fields
    version: str = "1.1"
    peer: str = ""
    body: bytes = b""
    cancelled: threading.Event = field(default_factory=threading.Event)

    def parameters(self) -> dict[str, str]:
        """Return the parameters in the query string; see ``parse_query`` for the cost."""
        return parse_query(self.query)

    @property
    def reads_body(self) -> bool:
        """Whether its handler reads its body."""
        return self.method == "POST" and self.path.rstrip("/") == LOOKUP_PATH

    def has_left(self) -> bool:
        """Return whether the reply isn't wanted any more; for any thread."""
        return self.cancelled.is_set()

    @property
    def accept(self) -> str:
        """The ``Accept`` header; empty: there is none."""
        return self.fields.get(b"accept", b"").decode("latin-1")

    @property
    def accepted(self) -> Accepted:
        """The forms that the reply may have."""
        return accepted_of(self.fields)

    @property
    def table(self) -> str:
        """The table that the request is about, unchecked; see ``asked_table``."""
        return asked_table(self.path, self.query)


Application = Callable[[Request], Awaitable[Reply]]
"""Answers requests on the server's loop; an error that it raises becomes a 500."""
