"""``Forwarding``: requests about another server's table, on their way to it and back.

=====================================  =========================================================
look-ups at a client's timeline        answered by the owner or any copy
other requests to a view               by the owner; the server that answers syncs first
markers                                by the owner, which keeps them; else by the next copy
Flink's instant states                 by the owner; else by the next copy, which lists first
``/v2`` of a table                     by the owner; else by the next copy
everything else                        by the server that received the request
=====================================  =========================================================

Ready bytes are sent before any forwarding (``strandline.server.lookup.ready_answer``), whichever
server is the owner: a snapshot's answer can't be wrong. Answers of other servers are passed on
unchanged.

A client without a bound on its wait may wait for minutes while its table is loaded. Its request is
forwarded with a bound and repeated as long as the owner answers that it is busy: this distinguishes
a server that loads from one that hangs.

A table of another group of servers is forwarded to those, whether or not this server has its root:
to the table's servers, then to others of the group. It is answered here only if none answers, and
this server has the root. A table outside its group's roots is refused by every server; if
those aren't known, because no server of the group has joined yet, or as their record is damaged,
that is left to the group's servers.

Markers are created by the table's own servers alone, its owner and its copies, or by further ones
of its group once none of these lives. Any other server that can't pass a creation on refuses it, to
be asked again: it may be the only one that can't reach them. So does a server that is another
member at the end of a creation than at its beginning, or isn't sure any more to be the same one.

A request that another server has forwarded is answered by the server that receives it, so that it
goes in no circle. Only if that one knows a newer epoch than the sender, and the table has become
other servers', it goes on to these: creations of markers, as two owners do harm, and requests to a
view that isn't open here, lest it be opened for a late server's sake. Each hop has a newer epoch.

A server that has answered ``refresh/`` notifies the table's other servers
(``strandline.fleet.copies``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from http import HTTPStatus
from typing import Final

from fsview.wire.lookup_form import LOOKUP_PATH
from fsview.wire.marker_form import (
    CREATE_MARKER,
    CREATE_MARKERS,
    DELETE_DIRECTORY,
    DIRECTORY_EXISTS,
    MARKERS,
)
from fsview.wire.param import (
    BASE_PATH,
    OWNED_PATHS,
    PARTITION,
    REFRESH_OFF,
    TIMELINE_HASH,
    V2,
    WAIT_HEADER,
)
from fsview.wire.routes import BY_NAME, ROUTES
from strandline.fleet.copies import TOLD, Copies
from strandline.fleet.current import CurrentFleet, KnownFleet
from strandline.fleet.forward import (
    EPOCH,
    SHORTEST_S,
    Forwarded,
    Forwarder,
    is_plain,
    preceding,
)
from strandline.fleet.groups import Group
from strandline.fleet.peer_connection import PeerAnswer
from strandline.fleet.safe_mode import SETTLED, UNSURE, SafeMode
from strandline.server.api.late_answers import (
    JOINED_PATHS,
    LONGEST_WAIT_S,
    RETRY_AFTER_S,
    hold_of,
    wait_of,
)
from strandline.server.api.unanswered import no_creator, no_server, outside, perhaps_lost
from strandline.server.http.reply import TEXT, Reply, failure_of
from strandline.server.http.request import (
    INSTANT_STATES,
    REQUEST_ID,
    Application,
    Request,
    unquoted,
)
from strandline.server.http.request_span import TRACE_HEADERS
from timeline.errors import (
    NoServerError,
    ServiceBusyError,
    ServiceError,
    StateUnavailableError,
    StrandlineError,
)
from timeline.storage.table_id import TableId, is_relative

MARGIN_S: Final = 1.0
"""How much later than ``LONGEST_WAIT_S`` the answer to a request without a bound may come."""
_TICK_S: Final = 0.001
"""Resolution of the header."""
LONGEST_S: Final = 240.0
"""How long a request without a bound is repeated, before the server that was asked serves it."""
_LONGEST_RETRY_S: Final = 5
_PARTITION_BYTES: Final = 4096
"""Longest partition by which an owner is found; longer ones count as none."""

_TOLD: Final = TOLD.encode("ascii")
_EPOCH: Final = EPOCH.encode("ascii")
_UNSURE: Final = UNSURE.encode("ascii")
_WAIT: Final = WAIT_HEADER.lower().encode("ascii")
_PASSED: Final = (
    b"accept",
    b"accept-encoding",
    b"if-none-match",
    _WAIT,
    REQUEST_ID,
    *TRACE_HEADERS,
)
"""Headers that an answer depends on, and those by which servers' logs and traces belong together.
"""
_SYNC: Final = BY_NAME["sync"]


@dataclass(frozen=True, slots=True)
class _Kind:
    """The properties of a route that decide how it is forwarded.

    Attributes:
        is_pinnable: Whether a client's timeline may determine its answer.
        is_safe: Whether a request may arrive twice.
        of_partition: Whether it names one partition.
        is_refresh: Whether the table's copies are notified of its result.
        first: Method and path of a request that the server must answer first, as another server
            (the owner, or one that answered in its place) may have been notified of newer changes.
        is_told: Whether the owner skips ``first``. It refreshes by itself at times, like a server
            without a fleet.
        opens: Whether the table must be open to answer it.
    """

    is_pinnable: bool = False
    is_safe: bool = True
    of_partition: bool = False
    is_refresh: bool = False
    first: tuple[str, str] | None = None
    is_told: bool = False
    opens: bool = False


def _kinds() -> dict[tuple[str, str], _Kind]:
    """Return the routes that have an owner, by method and path without a slash at the end."""
    sync, refresh = (_SYNC.method, _SYNC.path), ("POST", f"{INSTANT_STATES}/refresh")
    kinds = {
        (route.method, route.path.rstrip("/")): _Kind(
            is_pinnable=route.synced,
            of_partition=route.of_partition,
            is_refresh=route is _SYNC,
            first=None if route is _SYNC else sync,
            opens=True,
        )
        for route in ROUTES
    }
    kinds["POST", LOOKUP_PATH] = _Kind(is_pinnable=True, first=sync, opens=True)
    for name in ("all", "create-and-merge", "append"):
        kinds["GET", f"{MARKERS}/{name}"] = _Kind()
    kinds["GET", DIRECTORY_EXISTS] = kinds["POST", DELETE_DIRECTORY] = _Kind()
    # A repeated request would be answered that the marker existed, or with a conflict.
    kinds["POST", CREATE_MARKER] = kinds["POST", CREATE_MARKERS] = _Kind(is_safe=False)
    kinds["GET", f"{INSTANT_STATES}/all"] = _Kind(first=refresh, is_told=True)
    kinds[refresh] = _Kind()
    return kinds | {("GET", path): _Kind() for path in OWNED_PATHS}


_KINDS: Final = _kinds()


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request that has an owner, and what it asks.

    Attributes:
        request: The request.
        began_s: When it came, by the loop's clock.
        kind: The properties of its route.
        method: Method of the route.
        base_path: The table's base path as it was sent.
        table: Text of the table's id.
        is_pinned: Whether the client's timeline determines the answer.
        partition: The partition by which an owner is found, if that is. Unpinned requests go to the
            table's owner, as writers send their ``refresh/`` there, even if each partition has an
            owner of its own.
    """

    request: Request
    began_s: float
    kind: _Kind
    method: str
    base_path: str
    table: str
    is_pinned: bool
    partition: str | None

    @classmethod
    def of(cls, request: Request, began_s: float) -> _Asked | None:
        """Return what a request asks that came at a time; ``None``: it has no owner."""
        method = "GET" if request.method == "HEAD" else request.method
        path = request.path.rstrip("/")
        # Only known routes: a path is unescaped, so that any other may hold a whole request.
        kind = _KINDS.get((method, path))
        base_path = request.table
        table = None if kind is None else _table_text(base_path)
        if kind is None or table is None:
            return None
        # Not decoded on the loop but for one value: a query may be long.
        pairs = [pair.partition(b"=") for pair in request.query.split(b"&")]
        is_pinned = kind.is_pinnable and _is_pinned(pairs)
        partition = _partition_of(pairs) if kind.of_partition and is_pinned else None
        return cls(request, began_s, kind, method, base_path, table, is_pinned, partition)

    @property
    def spent_s(self) -> float:
        """How long ago it came."""
        return asyncio.get_running_loop().time() - self.began_s

    def rest(self, request: Request | None = None) -> Request:
        """Return it, or another request in its place, with the time that its client still waits."""
        request = request or self.request
        wait_s, spent_s = wait_of(request), self.spent_s
        if wait_s is None or spent_s < _TICK_S:
            return request
        left_s = max(wait_s - spent_s, min(wait_s, SHORTEST_S))
        return replace(request, fields={**request.fields, _WAIT: b"%.3f" % left_s})

    def forwarded(self) -> Forwarded:
        """Return it as it is sent to another server.

        One that is repeated as long as the other server is busy has a bound, ``within_s``.
        """
        request, wait_s = self.request, wait_of(self.request)
        given = ((name, request.fields.get(name, b"")) for name in _PASSED)
        headers = {name: value for name, value in given if is_plain(value)}
        is_repeated = wait_s is None and request.path.rstrip("/") in JOINED_PATHS
        if is_repeated:
            headers[_WAIT] = b"%d" % LONGEST_WAIT_S
        return Forwarded(
            self.method,
            request.path.encode("ascii") + (b"?" + request.query if request.query else b""),
            headers,
            request.body,
            is_safe=self.kind.is_safe,
            within_s=LONGEST_WAIT_S + MARGIN_S if is_repeated else None,
            wait_s=wait_s,
            table=self.table,
        )


@dataclass(frozen=True, slots=True)
class _Sender:
    """What another server of the fleet says of itself in a request that it has forwarded.

    Attributes:
        epoch: The epoch of the fleet that it knows; ``None`` if it doesn't say.
        unsure: Of a creation of markers: the address of a server in doubt, or ``SETTLED``; empty if
            no server is in doubt.
        notifies: Whether it only notifies this server of a change, as it does all others.
    """

    epoch: int | None
    unsure: str
    notifies: bool


@dataclass(frozen=True, slots=True)
class _Began:
    """What a server knew when it began to answer a creation of markers.

    Attributes:
        known: The fleet.
        membership: See ``CurrentFleet.membership``.
    """

    known: KnownFleet
    membership: int | None


class Forwarding:
    """Answers the requests of a server in a fleet; used on its loop.

    Args:
        forwarder: Forwards requests.
        copies: Notifies other servers.
        newest: Base path of a table that is open → timeline hash of its newest snapshot. Never
            waits.
        serves: Whether a base path may be one of this server's tables, by its text. Requests for
            others are forwarded if they are another group's, and refused here if not. Never waits.
        current: Knows the groups; ``None``: all servers have the same roots.
        rest_failure: Returns the reply that reports an error below ``/v2``.
    """

    def __init__(
        self,
        forwarder: Forwarder,
        copies: Copies,
        newest: Callable[[str], str | None],
        serves: Callable[[str], bool] = lambda _: True,
        current: CurrentFleet | None = None,
        rest_failure: Callable[[StrandlineError, Request], Reply] | None = None,
    ) -> None:
        self._rest_failure = rest_failure
        self._forwarder = forwarder
        self._copies = copies
        self._newest = newest
        self._serves = serves
        self._current = current
        self._safe_mode = None if current is None else SafeMode(current, forwarder)

    async def answer(self, here: Application, request: Request) -> Reply:
        """Return the answer of the best server for a request.

        Args:
            here: Answers it on this server.
            request: An admitted request.
        """
        asked = _Asked.of(request, asyncio.get_running_loop().time())
        if asked is None:
            return await here(request)
        sender = self._sender(request)
        if sender is not None:
            reply = await self._passed_on(asked, sender)
            if reply is None:
                reply = await self._answered(here, asked, sender)
            return replace(reply, headers={**reply.headers, **self._forwarder.told_epoch()})
        group, is_here = self._other_group(asked.table), self._serves(asked.base_path)
        if group is not None and not group.may_have(asked.table):
            return self._failure(outside(asked.base_path, asked.table, group), request)
        if group is not None or is_here:
            elsewhere = await self._elsewhere(asked, group)
            if elsewhere is not None:
                return elsewhere
        if group is not None and not is_here:
            return self._later(no_server(asked.base_path, group), request)
        return await self._answered(here, asked)

    def _failure(self, error: StrandlineError, request: Request) -> Reply:
        """Return the reply that reports an error, in the form of the request's routes."""
        if self._rest_failure is not None and request.path.startswith(f"{V2}/"):
            return self._rest_failure(error, request)
        return failure_of(error, request.accept)

    def _later(self, error: StrandlineError, request: Request) -> Reply:
        """Return the reply that reports an error, and says when to ask again."""
        reply = self._failure(error, request)
        return replace(reply, headers={"retry-after": str(RETRY_AFTER_S)})

    def _sender(self, request: Request) -> _Sender | None:
        """Return what a server says that has forwarded a request; ``None``: a client sent it."""
        fields = request.fields
        if not self._forwarder.is_passed_on(fields):
            return None
        epoch = self._forwarder.hear(fields.get(_EPOCH, b"").decode("latin-1"))
        return _Sender(epoch, fields.get(_UNSURE, b"").decode("latin-1"), _TOLD in fields)

    async def _passed_on(self, asked: _Asked, sender: _Sender) -> Reply | None:
        """Return the reply of the servers that have a table now; ``None``: this one answers.

        The server that has forwarded the request may not know yet who has the table.
        """
        is_theirs = self._forwarder.is_newer(sender.epoch) and not self._forwarder.has(asked.table)
        is_open = not asked.kind.opens or self._newest(asked.base_path) is not None
        if is_open or sender.notifies or not is_theirs:
            return None
        return await self._elsewhere(asked, self._other_group(asked.table))

    async def _elsewhere(self, asked: _Asked, group: Group | None) -> Reply | None:
        """Return the reply of a better server than this one; ``None``: there is none.

        ``group`` is the one that has the table, if it isn't this server's.
        """
        urls = self._before(asked)
        try:
            answer = await self._ask(urls, asked)
            if answer is None and (group is not None or not self._may_create(asked)):
                answer = await self._of_others(urls, asked)
        except ServiceError as error:
            return self._failure(error, asked.request)
        return None if answer is None else _reply(answer)

    def _before(self, asked: _Asked) -> tuple[str, ...]:
        """Return the servers to ask before this one, best first."""
        if asked.kind.is_safe or self._current is None:
            is_shared = asked.is_pinned
            return self._forwarder.before(asked.table, asked.partition, is_shared=is_shared)
        return preceding(self._current.known.creators(asked.table), self._current.url)

    def _may_create(self, asked: _Asked) -> bool:
        """Whether this server may answer if no better one does: any may, but for creations."""
        current = self._current
        if asked.kind.is_safe or current is None:
            return True
        return current.known.may_create(asked.table, current.url, current.group)

    async def _of_others(self, urls: tuple[str, ...], asked: _Asked) -> PeerAnswer | None:
        """Return the answer of further servers of the table's group, or at last of any on trial.

        ``urls`` are those that were asked or spared. This server can't answer.
        """
        further = self._further(asked.table, urls) if asked.kind.is_safe else ()
        rest = replace(asked, request=asked.rest())
        return await self._ask(further, rest, at_last=(*urls, *further))

    async def _answered(
        self, here: Application, asked: _Asked, sender: _Sender | None = None
    ) -> Reply:
        """Return this server's answer, unless another one must create the markers."""
        kind, request = asked.kind, asked.request
        if not kind.is_safe and self._safe_mode is not None and self._current is not None:
            began = _Began(self._current.known, self._current.membership())
            # For all that it may have to wait for.
            until_s = self._safe_mode.until_s(asked.began_s, hold_of(request))
            try:
                answer = await self._in_doubt(self._safe_mode, asked, sender, until_s)
                if answer is None:
                    epoch = None if sender is None else sender.epoch
                    await self._safe_mode.handed_over(asked.table, epoch, until_s)
                    rest = replace(asked, request=asked.rest())
                    return await self._created(here, rest, self._safe_mode, began)
            except (StateUnavailableError, NoServerError) as error:
                return self._later(error, request)
            except ServiceError as error:
                return failure_of(error, request.accept)
            return _reply(answer)
        knows = asked.is_pinned or (kind.is_told and self._forwarder.is_owner(asked.table))
        if kind.first is not None and not knows:
            # Without it the answer may be older than an earlier one of another server.
            first = replace(request, method=kind.first[0], path=kind.first[1], body=b"")
            synced = await here(asked.rest(first))
            if synced.status != HTTPStatus.OK:
                return synced
        reply = await here(asked.rest())
        is_news = kind.is_refresh and reply.status == HTTPStatus.OK
        if is_news and not (sender is not None and sender.notifies):
            await self._tell(asked)
        return reply

    async def _in_doubt(
        self, safe_mode: SafeMode, asked: _Asked, sender: _Sender | None, until_s: float
    ) -> PeerAnswer | None:
        """Return another server's answer to a creation in doubt; ``None``: answer it here.

        It is held until ``until_s`` at most, by the loop's clock.
        """
        unsure = "" if sender is None else sender.unsure
        creation = asked.forwarded()
        if not unsure and not safe_mode.is_sure:
            return await safe_mode.elsewhere(asked.table, creation)
        if not unsure:
            # A second hop: two servers that create markers may call the same one new.
            is_newer = sender is not None and self._forwarder.is_newer(sender.epoch)
            urls = self._before(asked) if is_newer else ()
            return await safe_mode.passed_on(urls, creation)
        if not safe_mode.is_sure:
            raise StateUnavailableError("this server can't reach the fleet's state store either")
        if unsure == SETTLED:
            return None
        urls = await safe_mode.settled(asked.table, unsure, until_s)
        return await safe_mode.passed_on(urls, creation)

    async def _created(
        self, here: Application, asked: _Asked, safe_mode: SafeMode, began: _Began
    ) -> Reply:
        """Return the answer to a creation: this server's, or its new owner's if the table moved.

        Raises:
            NoServerError: This server may not create the markers, and the table's don't answer.
            StateUnavailableError: This server may have lost the table meanwhile.
            ServiceError: A new server may have got it, and didn't answer.
        """
        table, current = asked.table, safe_mode.current
        with current.creations.of(table):
            # Within the block: a server that notices a move after this waits for its end.
            known = current.known
            has_moved = known.former(table, current.group, began.known)
            urls = preceding(known.creators(table), current.url)
            may_create = known.may_create(table, current.url, current.group)
            # One outside the roots is refused as any request is.
            if not has_moved and (may_create or not self._serves(asked.base_path)):
                current.creations.counts["served_here"] += bool(urls) and may_create
                reply = await here(asked.request)
                if current.membership() != began.membership:
                    raise perhaps_lost(asked.base_path, current.url)
                return reply
        # Otherwise they have been asked already.
        urls = urls if has_moved else ()
        answer = await safe_mode.passed_on(urls, asked.forwarded())
        if answer is None:
            raise no_creator(asked.base_path, known.group(table), known.creators(table))
        return _reply(answer)

    def _other_group(self, table: str) -> Group | None:
        """Return the group that has a table; ``None`` if that is this server's own, or unknown."""
        if self._current is None:
            return None
        known = self._current.known
        name = known.group(table)
        if name == self._current.group or not known.fleet.members:
            return None
        return known.fleet.group(name) or Group(name)

    def _further(self, table: str, tried: tuple[str, ...]) -> tuple[str, ...]:
        """Return servers of a table's group that don't have it, and can load it."""
        found = () if self._current is None else self._current.known.further(table)
        return tuple(url for url in found if url not in tried)

    async def _tell(self, asked: _Asked) -> None:
        """Have the table's copies sync to this server's newest snapshot."""
        timeline_hash = self._newest(asked.request.parameters().get(BASE_PATH, ""))
        if timeline_hash is None:
            return
        wait_s = wait_of(asked.request)
        within_s = None if wait_s is None else wait_s - asked.spent_s
        await self._copies.tell(asked.table, timeline_hash, within_s=within_s)

    async def _ask(
        self, urls: tuple[str, ...], asked: _Asked, *, at_last: tuple[str, ...] = ()
    ) -> PeerAnswer | None:
        """Return the answer of another server; ``None``: none of them answers."""
        if not (urls or at_last):
            return None
        sent = asked.forwarded()
        is_repeated = sent.within_s is not None
        loop = asyncio.get_running_loop()
        until_s = loop.time() + LONGEST_S
        while True:
            answer = await self._forwarder.ask(urls, sent, at_last=at_last)
            if answer is None or not (is_repeated and _retry_after(answer)):
                return answer
            if loop.time() >= until_s:
                return None
            await asyncio.sleep(_retry_after(answer))


def _is_pinned(pairs: Sequence[tuple[bytes, bytes, bytes]]) -> bool:
    """Whether a request names a client's timeline, and its snapshot determines the answer."""
    names = {name for name, _, _ in pairs}
    if REFRESH_OFF.encode() in names or any(b"%" in name or b"+" in name for name in names):
        return False  # an escaped name may be ``REFRESH_OFF``
    return any(name == TIMELINE_HASH.encode() and value for name, _, value in pairs)


def _partition_of(pairs: Sequence[tuple[bytes, bytes, bytes]]) -> str | None:
    for name, _, value in pairs:
        if name == PARTITION.name.encode() and len(value) <= _PARTITION_BYTES:
            return unquoted(value).strip("/")
    return None


@lru_cache(maxsize=256)
def _table_text(base_path: str) -> str | None:
    """Return the text of a table's id; ``None``: a relative path depends on the server."""
    if not base_path or is_relative(base_path):
        return None
    return str(TableId.of(base_path).normal())


def _retry_after(answer: PeerAnswer) -> int:
    """Return the seconds after which a busy server wants the request repeated; else 0."""
    after = answer.headers.get("retry-after", "")
    if answer.status != HTTPStatus.SERVICE_UNAVAILABLE or not after.isdecimal():
        return 0
    return min(max(int(after[:6]), 1), _LONGEST_RETRY_S)


def _reply(answer: PeerAnswer) -> Reply:
    headers = dict(answer.headers)
    content_type = headers.pop("content-type", TEXT)
    # This server's answer has it, too.
    headers.pop(REQUEST_ID.decode(), None)
    why = (ServiceBusyError.code, "") if _retry_after(answer) else ("", "")
    return Reply(answer.status, answer.body, content_type, headers, why=why, held=answer.held)
