"""``Forwarder``: has the server of a table answer a request that came to another one.

A request goes to the table's owner, else to the next copy, each over kept connections
(``strandline.fleet.peer``). If none answers, the server that received it answers it itself: a
server that is down, slow or faulty delays an answer but never prevents it, except a creation of
markers (``strandline.server.api.forwarding``). A non-idempotent request
that may have been received isn't sent to another server; its client gets an error.

A request is forwarded once: it carries ``FORWARDED``, and the server that receives it answers,
whichever server it believes to be the owner. So servers with different views of the seats can't
forward a request in circles. It goes on only from a server that knows a newer epoch than the sender
(``strandline.server.api.forwarding``).

The timeout of a client is divided: each server gets half of the time left, so that a server that
hangs leaves time for the next one to answer.

Source: Dev and Patgiri, *Dr. Hadoop* (DCMS), section 3.4: writes at the primary, reads at any copy.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Final

from executor_proxy.exchange import note_status, request_span, tls_context
from executor_proxy.seat_ring import Seat
from fsview.wire.param import V2, WAIT_HEADER
from strandline.fleet.peer import Peer
from strandline.fleet.peer_connection import PeerAnswer, PeerLimits, Received
from timeline import tracing
from timeline.encoding.json_text import bounded_loads
from timeline.errors import ConfigError, InputError, ServiceError, ServiceUnreachableError

logger = logging.getLogger(__name__)

FORWARDED: Final = "strandline-forwarded"
"""Header of a request that another server of the fleet has forwarded."""
EPOCH: Final = "strandline-epoch"
"""Header of such a request and of its answer: the epoch that the sender knows."""

SHARE: Final = 0.5
"""Each server's share of the time that the client still waits, as a fraction."""
BUSY_SHARE: Final = 0.8
"""Fraction of its share after which a server that is still working answers that it is busy."""
SHORTEST_S: Final = 0.25
"""Shortest share: with less, a server that only paused would count as dead."""

MAX_PEERS: Final = 256
"""Most servers with kept connections; those of a fleet are replaced over the months."""

_FORWARDED: Final = FORWARDED.encode("ascii")
_V2: Final = f"{V2}/".encode("ascii")
_WAIT: Final = WAIT_HEADER.lower().encode("ascii")
_ABOUT_THE_PEER: Final = frozenset(
    {
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.REQUEST_URI_TOO_LONG,
        HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    }
)
"""Refusals of a request that this server has admitted: the peer's token, roots or limits differ."""

_TARGET: Final = re.compile(rb"[!-~]+")
_PLAIN: Final = re.compile(rb"[\t -~]+")

Owners = Callable[[str, str | None], Sequence[Seat]]
"""(Text of a table's ``TableId``, partition or ``None``) → the seats that have the table now, the
owner first; vacant ones have no address. Never waits."""


@dataclass(frozen=True, slots=True)
class Forwarded:
    """A request that is forwarded.

    Attributes:
        method: ``GET`` or ``POST``.
        target: Path and query, escaped: visible characters of ASCII.
        headers: Those that the answer depends on, by name; each ``is_plain``.
        body: The body.
        is_safe: Whether it may arrive at several servers.
        within_s: Seconds after which an answer is too late; ``None``: ``PeerLimits.answer_s``.
        table: Text of the table's ``TableId``; each table has a share of the connections.
        waits: Whether it waits for a change: it has connections of its own, and takes none from
            requests that are answered at once.
        may_be_late: Whether a late answer is no sign that the server is down.
        wait_s: How long the client waits for an answer of any server; ``None``: each server has
            ``within_s``. Takes the place of ``within_s``, and of ``WAIT_HEADER``.
    """

    method: str
    target: bytes
    headers: Mapping[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""
    is_safe: bool = True
    within_s: float | None = None
    wait_s: float | None = None
    table: str = ""
    waits: bool = False
    may_be_late: bool = False


def preceding(urls: Sequence[str], url: str) -> tuple[str, ...]:
    """Return the servers of an order that come before one; all if that isn't among them."""
    return tuple(urls[: urls.index(url)] if url in urls else urls)


class Forwarder:
    """Forwards requests; used on one loop, except ``status``.

    Args:
        url: This server's address among those of the seats.
        owners: Knows the owners.
        token: Bearer token that all servers of the fleet accept.
        other_token: A second one, which other servers may send.
        ca_file: PEM file of trusted authorities, for https; ``None``: the system's.
        limits: What one peer may take and hold.
        is_spread: Whether each partition of a table, by the text of its ``TableId``, has owners of
            its own among the servers of this one's group. Never waits.
        epoch: Returns the epoch of the fleet that this server knows; 0: it hasn't joined.
        hear: Called with the epoch that another server knows. Never waits.
        followers: Returns further servers that are notified of a table's changes. Never waits.

    Raises:
        ConfigError: ``ca_file`` isn't valid.
    """

    def __init__(
        self,
        url: str,
        owners: Owners,
        token: str | None,
        *,
        other_token: str | None = None,
        ca_file: str | None = None,
        limits: PeerLimits | None = None,
        is_spread: Callable[[str], bool] = lambda _: False,
        epoch: Callable[[], int] = lambda: 0,
        hear: Callable[[int], object] = lambda _: None,
        followers: Callable[[str], Sequence[str]] = lambda _: (),
    ) -> None:
        self._url = url
        self._is_spread = is_spread
        self._epoch, self._hear = epoch, hear
        self._owners = owners
        self._followers = followers
        self._tokens = tuple(t.encode("ascii") for t in (token, other_token) if t is not None)
        if ca_file is not None:
            tls_context(ca_file)
        self._ca_file = ca_file
        self._limits = limits or PeerLimits()
        self._received = Received()
        self._waits = replace(self._limits, connections=self._limits.waits)
        self._peers: dict[tuple[str, bool], Peer | None] = {}
        self._counts: Counter[str] = Counter()

    def before(
        self, table: str, partition: str | None = None, *, is_shared: bool = False
    ) -> tuple[str, ...]:
        """Return the servers to ask before this one about a table, best first.

        Args:
            table: Text of the table's ``TableId``.
            partition: The request's partition, if it names one.
            is_shared: Whether any copy may answer, as for a look-up at a client's instant; else
                only the owner.
        """
        urls = [seat.url for seat in self._owners(table, partition) if seat.url]
        return () if is_shared and self._url in urls else preceding(urls, self._url)

    def is_passed_on(self, fields: Mapping[bytes, bytes]) -> bool:
        """Whether another server of the fleet has forwarded a request with these header fields.

        Where there is a token, the header counts only in a request that presents it.
        """
        if _FORWARDED not in fields:
            return False
        tokens = self._tokens
        borne = fields.get(b"authorization", b"")[7:].strip()
        return not tokens or any(hmac.compare_digest(borne, token) for token in tokens)

    def use_tokens(self, tokens: Sequence[str]) -> None:
        """Send the first token from now on, and know other servers by any of them."""
        self._tokens = tuple(token.encode("ascii") for token in tokens)

    def hear(self, told: str) -> int | None:
        """Notice the epoch that another server knows.

        Args:
            told: Text of its header; empty: earlier releases don't send it.

        Returns:
            The epoch, ``None`` if there is none.
        """
        # Shorter than any number that could take long to parse.
        if not (told.isascii() and told.isdecimal() and len(told) < 16):
            return None
        epoch = int(told)
        self._hear(epoch)
        return epoch

    def is_newer(self, epoch: int | None) -> bool:
        """Whether this server knows a newer epoch than a sender; false if that didn't say its."""
        return epoch is not None and epoch < self._epoch()

    def told_epoch(self) -> dict[str, str]:
        """Return the header with the epoch that this server knows; none before it has joined."""
        epoch = self._epoch()
        return {EPOCH: str(epoch)} if epoch else {}

    def others(self, table: str) -> tuple[str, ...]:
        """Return the other servers that have a table, or are about to get it.

        None if this one isn't among its servers.
        """
        urls = [seat.url for seat in self._owners(table, None) if seat.url]
        if self._url not in urls:
            return ()
        others = dict.fromkeys((*urls, *self._followers(table)))
        return tuple(url for url in others if url != self._url)

    def is_owner(self, table: str) -> bool:
        """Whether this server has a table's first seat, and so is notified of the table's changes.

        A server that hasn't joined its fleet yet counts as an owner. A server behind vacant seats
        isn't one: it has been notified only since those became vacant.
        """
        seats = self._owners(table, None)
        return not seats or seats[0].url == self._url

    def has(self, table: str) -> bool:
        """Whether this server answers about a table as its owner or a copy, now or at any time.

        Always true before it has joined its fleet, where each partition has its own servers of this
        one's group, and while none of the table's seats has a server: then any server answers.
        """
        urls = [seat.url for seat in self._owners(table, None) if seat.url]
        return not urls or self._url in urls or self._is_spread(table)

    async def ask(
        self, urls: Sequence[str], request: Forwarded, *, at_last: Sequence[str] = ()
    ) -> PeerAnswer | None:
        """Return the answer of the first server that gives one.

        Args:
            urls: The servers.
            request: The request.
            at_last: Servers that are asked if none of these answers, even if another request is
                trying one after a failure; for a request that this server can't answer.

        Returns:
            ``None`` if none does: this server must answer.

        Raises:
            ServiceError: A request that isn't safe got no valid answer, and may have arrived.
        """
        counts, loop = self._counts, asyncio.get_running_loop()
        began_s = loop.time()
        tries = (*((url, False) for url in urls), *((url, True) for url in at_last))
        for url, beside_trial in tries:
            peer = self._peer(url, waits=request.waits)
            if peer is None:
                counts["no_address"] += 1
                continue
            if not peer.may_be_asked(beside_trial=beside_trial):
                counts["spared"] += not beside_trial
                continue
            try:
                answer = await self._sent(peer, _part(request, loop.time() - began_s))
            except ServiceError as error:
                counts[error.code] += 1
                may_have_arrived = (
                    not isinstance(error, ServiceUnreachableError) or error.may_have_arrived
                )
                if may_have_arrived and not request.is_safe:
                    raise
            else:
                if not _is_of_another(answer, request):
                    counts["answered"] += 1
                    return answer
                counts["refused"] += 1
        if urls:
            counts["served_here"] += 1
        return None

    async def tell(self, url: str, request: Forwarded) -> PeerAnswer | None:
        """Return one server's answer to a request that this server makes itself; not counted.

        Returns:
            ``None`` if there is none, or if the server isn't asked because it has just failed.
        """
        peer = self._peer(url, waits=request.waits)
        if peer is None or not peer.may_be_asked():
            return None
        try:
            return await self._sent(peer, request)
        except ServiceError:
            return None  # the peer has logged failures that show it to be down

    def close(self) -> None:
        """End all connections; on the loop."""
        for peer in filter(None, self._peers.values()):
            peer.close()

    def status(self) -> dict[str, int]:
        """Return how many requests were forwarded, and their outcomes; from any thread."""
        counted = dict(self._counts)  # one step, as the loop may change it meanwhile
        return dict(sorted(counted.items()))

    async def _sent(self, peer: Peer, request: Forwarded) -> PeerAnswer:
        within_s = self._limits.answer_s if request.within_s is None else request.within_s
        path = request.target.partition(b"?")[0].decode("latin-1")
        with request_span(request.method, path, peer.url) as span:
            sent = self._bytes(peer, request)
            answer = await peer.ask(
                sent,
                is_safe=request.is_safe,
                within_s=within_s,
                table=request.table,
                may_be_late=request.may_be_late,
            )
            note_status(span, answer.status)
        if EPOCH not in answer.headers:
            return answer
        self.hear(answer.headers[EPOCH])
        # The client gets the answer as from one server.
        headers = {name: text for name, text in answer.headers.items() if name != EPOCH}
        return replace(answer, headers=headers)

    def _peer(self, url: str, *, waits: bool) -> Peer | None:
        """Return the peer at an address; ``None`` if a member announced an invalid one.

        Args:
            url: The address.
            waits: See ``Forwarded``.
        """
        if (url, waits) in self._peers:
            # Removed and inserted again at the end: the order is that of use (LRU).
            peer = self._peers.pop((url, waits))
        else:
            self._make_room()
            limits = self._waits if waits else self._limits
            try:
                peer = Peer(url, limits, self._received, self._ca_file)
            except ConfigError as error:
                logger.warning("a member of the fleet can't be asked: %s", error)
                peer = None
        self._peers[url, waits] = peer
        return peer

    def _make_room(self) -> None:
        """Drop the least recently used peers beyond the limit, unless they are in use."""
        for key in list(self._peers)[: max(len(self._peers) - MAX_PEERS + 1, 0)]:
            peer = self._peers[key]
            if peer is None or peer.is_idle:
                del self._peers[key]
                if peer is not None:
                    peer.close()

    def _bytes(self, peer: Peer, request: Forwarded) -> bytes:
        """Return the bytes of a request.

        Raises:
            InputError: Its target or a line isn't of the characters that it may have: it could be
                read as several requests, of which the last one has the token.
        """
        lines = [
            b"%b %b HTTP/1.1" % (request.method.encode("ascii"), request.target),
            b"host: " + peer.host,
            b"%b: 1" % _FORWARDED,
            *(f"{name}: {text}".encode("ascii") for name, text in self.told_epoch().items()),
        ]
        if self._tokens:
            lines.append(b"authorization: Bearer " + self._tokens[0])
        # In place of the client's, which a server that records nothing passes on.
        trace = {
            name.encode("ascii"): text.encode("ascii", "replace")
            for name, text in tracing.headers().items()
        }
        lines += [b"%b: %b" % field for field in {**request.headers, **trace}.items()]
        if request.method == "POST" or request.body:
            lines.append(b"content-length: %d" % len(request.body))
        if not (_TARGET.fullmatch(request.target) and all(map(is_plain, lines))):
            raise InputError(
                f"the request {request.target[:200]!r} isn't forwarded: its target or a header has"
                " characters that aren't visible ones of ASCII"
            )
        return b"\r\n".join(lines) + b"\r\n\r\n" + request.body


def is_plain(text: bytes) -> bool:
    """Whether a line of a head may have a text: visible characters of ASCII, spaces and tabs."""
    return _PLAIN.fullmatch(text) is not None


def _part(request: Forwarded, spent_s: float) -> Forwarded:
    """Return a request with its share of the time that the client still waits."""
    if request.wait_s is None:
        return request
    within_s = max((request.wait_s - spent_s) * SHARE, SHORTEST_S)
    headers = {**request.headers, _WAIT: b"%.3f" % (within_s * BUSY_SHARE)}
    return replace(request, headers=headers, within_s=within_s)


def _is_of_another(answer: PeerAnswer, request: Forwarded) -> bool:
    """Whether another server may have a better answer."""
    if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
        # A busy server says when to ask again; one that is shutting down doesn't.
        return "retry-after" not in answer.headers and request.is_safe
    if answer.status == HTTPStatus.NOT_FOUND and request.target.startswith(_V2):
        return not _has_code(answer)
    return answer.status in _ABOUT_THE_PEER


def _has_code(answer: PeerAnswer) -> bool:
    """Whether a refusal below ``/v2`` is a route's: servers of former releases don't have these."""
    if "content-encoding" in answer.headers:
        return True  # theirs are short
    try:
        found = bounded_loads(answer.body)
    except ValueError:
        return False
    return isinstance(found, dict) and "code" in found
