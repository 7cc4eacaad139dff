"""``LateAnswers``: bounds the wait of clients that ask for it, and continues their requests.

Loading a cold partition may take minutes. A client with the header ``Strandline-Wait: SECONDS``
gets 503 with ``Retry-After`` when its answer takes longer: so it knows that the service is alive,
and its own timeout doesn't expire. The work continues in its thread, and the same request joins it
when it is repeated. Hudi's clients don't send the header and wait: after a 503 they would list
storage for good.

Work has begun before the request that joins it. So only requests whose answer the client's timeline
determines may join (``fsview.wire.routes.FIXED_BY_TIMELINE``); a refresh, for instance, must see
all commits that precede it. Work has one waiter at a time; further clients with the same request
start work of their own, and the view loads each partition once for all of them (single-flight).
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

from fsview.wire.lookup_form import LOOKUP_PATH
from fsview.wire.param import REFRESH_OFF, TIMELINE_HASH, WAIT_HEADER
from fsview.wire.routes import BY_NAME, FIXED_BY_TIMELINE, PREFIX
from strandline.server.http.reply import Reply, failure_of
from strandline.server.http.request import Request
from timeline.errors import ServiceBusyError

Work = Callable[[Request], Awaitable[Reply]]
"""Answers a request on a thread."""

LONGEST_WAIT_S: Final = 5.0
RETRY_AFTER_S: Final = 1
AT_MOST: Final = 256
"""Most pieces of work without a client; beyond it, clients wait without a bound."""
AT_MOST_BYTES: Final = 16 << 20
"""Most bytes of the bodies of their requests; beyond it, clients wait without a bound, too."""
KEPT_S: Final = 3.0
"""How long a reply is kept for the next try. Without it, work that ended between two tries would be
done again for each, and a failure that takes long would never be reported."""
KEPT_BYTES: Final = 64 << 20
"""Most bytes of all replies that are kept."""

_HEADER: Final = WAIT_HEADER.lower().encode("ascii")
_SECONDS: Final = re.compile(rb"\d{1,4}(\.\d{1,3})?")
JOINED_PATHS: Final = frozenset({LOOKUP_PATH}).union(
    BY_NAME[name].path.rstrip("/")
    for name in (*FIXED_BY_TIMELINE, "load_partitions", "load_all_partitions")
)

_Question = tuple[str, str, bytes, str, bool, bytes]


def wait_of(request: Request) -> float | None:
    """Return how many seconds a client wants to wait; ``None``: as long as it takes.

    Only the view's answers can come later; of other requests the header is ignored.
    """
    return hold_of(request) if request.path.startswith((f"{PREFIX}/", LOOKUP_PATH)) else None


def hold_of(request: Request) -> float | None:
    """Return for how many seconds a request may be held before it is refused, if it says so.

    A malformed value is ignored; a long one counts as ``LONGEST_WAIT_S``.
    """
    value = request.fields.get(_HEADER, b"")
    return min(float(value), LONGEST_WAIT_S) if _SECONDS.fullmatch(value) else None


@dataclass(slots=True, eq=False)
class _Piece:
    """Work on one question; ``has_left``: its client got 503, or left after a 503."""

    question: _Question
    task: asyncio.Task[Reply]
    may_be_joined: bool
    body_bytes: int
    has_left: bool = field(default=False)


class LateAnswers:
    """Work whose clients got 503; used on the server's loop only, except ``status``.

    ``_left`` has the pieces without a client, by question: ``_count`` of them, with
    ``_bytes`` of bodies.
    """

    def __init__(self) -> None:
        self._left: dict[_Question, list[_Piece]] = {}
        self._count = self._bytes = self._kept_bytes = 0
        self._answers = 0

    def status(self) -> dict[str, int]:
        """Return the number of 503 answers, and of pieces without a client; from any thread."""
        return {"answers": self._answers, "unfinished": self._count}

    async def answer(self, request: Request, wait_s: float, work: Work) -> Reply:
        """Answer a request, or report that the service is busy with it.

        Args:
            request: An admitted request.
            wait_s: How long its client waits.
            work: Begins to answer it; used unless the question joins work that was begun before.
        """
        piece = self._joined(request) or self._begun(request, work)
        try:
            await asyncio.wait((piece.task,), timeout=wait_s)
        except asyncio.CancelledError:
            # Clients that got 503 and disconnect may return on another connection.
            if not (piece.has_left and self._leave(piece)):
                piece.task.cancel()
            raise
        # Without room the client waits, so that work without a client stays bounded.
        if piece.task.done() or not self._leave(piece):
            return await piece.task
        self._answers += 1
        busy = ServiceBusyError(f"the service is still at work on {request.path}")
        reply = failure_of(busy, request.accept)
        return replace(reply, headers={"retry-after": str(RETRY_AFTER_S)})

    def _begun(self, request: Request, work: Work) -> _Piece:
        """Begin work on a request; it ends with the service, not when its client disconnects."""
        # A client that disconnects sets the event of ``request``, which must not end this work.
        own = replace(request, cancelled=threading.Event())

        async def run() -> Reply:
            try:
                return await work(own)
            except asyncio.CancelledError:
                # Its thread can't be cancelled, but can check this event.
                own.cancelled.set()
                raise

        task = asyncio.get_running_loop().create_task(run())
        piece = _Piece(_question(request), task, _may_join(request), len(request.body))
        task.add_done_callback(lambda _: self._ended(piece))
        return piece

    def _joined(self, request: Request) -> _Piece | None:
        """Return a piece of work on the same question that has no client."""
        if not _may_join(request):
            return None
        same = self._left.get(_question(request))
        if same is None:
            return None
        piece = same[0]
        # It gets one waiter only: a reply in parts can be sent only once.
        self._forget(piece)
        return piece

    def _leave(self, piece: _Piece) -> bool:
        """Let work continue without a client; return whether there is room for that."""
        has_room = self._count < AT_MOST and self._bytes + piece.body_bytes <= AT_MOST_BYTES
        if not has_room or piece.task.done():
            return False
        piece.has_left = True
        self._left.setdefault(piece.question, []).append(piece)
        self._count += 1
        self._bytes += piece.body_bytes
        return True

    def _ended(self, piece: _Piece) -> None:
        task = piece.task
        if task.cancelled() or task.exception() is not None:
            self._forget(piece)
            return
        size = len(task.result().body)
        if piece.may_be_joined and self._kept_bytes + size <= KEPT_BYTES:
            self._kept_bytes += size
            task.get_loop().call_later(KEPT_S, self._drop, piece, size)
        else:
            self._forget(piece)

    def _drop(self, piece: _Piece, size: int) -> None:
        """Forget a piece whose reply was kept long enough."""
        self._kept_bytes -= size
        self._forget(piece)

    def _forget(self, piece: _Piece) -> None:
        """Remove a piece from those without a client, if it is one."""
        same = self._left.get(piece.question, [])
        if piece in same:
            same.remove(piece)
            self._count -= 1
            self._bytes -= piece.body_bytes
            if not same:
                del self._left[piece.question]


def _question(request: Request) -> _Question:
    """Return all of a request that its reply depends on."""
    body = sha256(request.body).digest()
    return (
        request.method,
        request.path,
        request.query,
        request.accept,
        request.accepted.zipped,
        body,
    )


def _may_join(request: Request) -> bool:
    """Whether the client's timeline determines the answer; see the module."""
    if request.path.rstrip("/") not in JOINED_PATHS:
        return False
    names = {pair.partition(b"=")[0] for pair in request.query.split(b"&")}
    if any(b"%" in name or b"+" in name for name in names):
        return False  # it may be ``REFRESH_OFF``, escaped
    return TIMELINE_HASH.encode() in names and REFRESH_OFF.encode() not in names
