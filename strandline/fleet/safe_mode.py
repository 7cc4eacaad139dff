"""``SafeMode``: which server creates markers while a table's owner is in doubt.

Creating markers is the only request that two owners of a table answer wrongly: each may call the
same marker new. A server that hasn't renewed its membership for half of ``dead_s`` may be another
server's predecessor without knowing it. So it asks the table's other servers:

* one that has renewed its own membership since takes the creation (``settled``);
* if none of those that answer has, and none knows a newer epoch, the store counts as away for all,
  and seats as unchanged: the last owner continues. This is deliberate, as a server that is down
  would end all creations otherwise; but servers that are cut off together, from the store and from
  those that reach it, are wrong about it, see below;
* if one of these knows a newer epoch, the seat may have changed its holder before the store became
  unavailable: the creation is refused;
* if none answers, this server may be the only one that is cut off: the creation is refused;
* if it knows of no other server, it goes on: another one that has joined since may have its seat.

The other half of ``dead_s`` is left for creations that are under way. Look-ups need none of this:
the server that receives one answers it.

While servers are cut off together, their former owner and the one that has its seat now may both
call the same marker new. So may a living server that hasn't read yet that a new seat, a drain or a
mount has given its tables to another one. All such cases, and what they mean, are at
docs/markers.md#in-a-fleet: Hudi's writers ignore the answer for base files, and create log files
without overwriting.

While tables move to another group (``strandline.fleet.moving.moves``), their new owner holds
creations until no server of the former group may create markers any more (``handed_over``), and
those pass theirs on.

Source: Misra et al., *Scaling Distributed File Systems in Resource-Harvesting Datacenters*
(DH-HDFS), section 3.2: a router without heartbeats for T allows no accesses, after 2T its locks are
taken away. Here T is half of ``dead_s``, and only creations are concerned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final

from strandline.fleet.current import CurrentFleet
from strandline.fleet.forward import Forwarded, Forwarder, preceding
from strandline.fleet.peer_connection import PeerAnswer
from timeline.encoding.json_text import bounded_loads
from timeline.errors import StateUnavailableError

RENEWED: Final = "/v1/strandline/fleet/renewed"
"""Path of the route that says whether a server has renewed its membership lately."""
UNSURE: Final = "strandline-unsure"
"""Header of a creation: the address of the server that is in doubt, or ``SETTLED``."""
SETTLED: Final = "settled"
"""Value of ``UNSURE`` in a creation that was passed on to the owner; it goes no further."""

HOLD_S: Final = 5.0
"""How long a creation waits for the seat of the server in doubt to change or to be kept."""
ASK_S: Final = 1.0
ASKED: Final = 4
"""Most servers that are asked."""


@dataclass(frozen=True, slots=True)
class Renewed:
    """The answer of ``RENEWED``, a JSON object.

    Attributes:
        renewed: Whether the server has renewed its membership lately.
        epoch: The epoch of the fleet that it knows.
    """

    renewed: bool
    epoch: int

    @classmethod
    def read(cls, body: bytes) -> Renewed | None:
        """Read an answer; ``None``: it is none."""
        try:
            found = bounded_loads(body)
            renewed, epoch = found["renewed"], found["epoch"]
        except (ValueError, KeyError, TypeError):
            return None
        is_one = type(renewed) is bool and type(epoch) is int
        return cls(renewed, epoch) if is_one else None


class SafeMode:
    """Creations in doubt; used on the server's loop.

    Args:
        current: The fleet as this server knows it.
        forwarder: Has the connections.
        hold_s: See ``HOLD_S``.

    Attributes:
        current: The fleet.
    """

    def __init__(
        self, current: CurrentFleet, forwarder: Forwarder, *, hold_s: float = HOLD_S
    ) -> None:
        self.current, self._forwarder, self._hold_s = current, forwarder, hold_s
        self._counts = current.creations.counts

    @property
    def is_sure(self) -> bool:
        """Whether this server has renewed its membership lately."""
        return self.current.is_sure()

    async def elsewhere(self, table: str, creation: Forwarded) -> PeerAnswer | None:
        """Return the answer of a server that has renewed its membership to a creation.

        Args:
            table: Text of the table's ``TableId``.
            creation: The request.

        Returns:
            ``None``: this server continues, as no server that answers reaches the store, or as
            there is no other server.

        Raises:
            StateUnavailableError: No other server answers, or one that has not renewed its
                membership knows a newer epoch.
            ServiceError: One that has renewed may have got the creation, and didn't answer.
        """
        urls = self._others(table)
        if not urls:
            return None
        # Before they answer: what this server learns meanwhile must not hide a newer epoch.
        epoch = self.current.known.epoch
        found = await asyncio.gather(*(self._renewed(url) for url in urls))
        told = {url: has for url, has in zip(urls, found, strict=True) if has is not None}
        renewed = [url for url, has in told.items() if has.renewed]
        if told and not renewed:
            newer = [url for url, has in told.items() if has.epoch > epoch]
            if not newer:
                return None
            raise StateUnavailableError(
                f"{self.current.url} knows the fleet's epoch {epoch}, and {newer[0]} a newer one;"
                " neither has reached the fleet's state store lately: no markers are created here",
                hint="ask again, or repair the state store",
            )
        headers = {**creation.headers, UNSURE.encode(): self.current.url.encode("ascii")}
        answer = await self._forwarder.ask(renewed, replace(creation, headers=headers))
        if answer is None:
            raise StateUnavailableError(
                f"{self.current.url} can't reach the fleet's state store, and {len(urls)} other"
                " servers don't answer: it may not own the table any more, and creates no markers",
                hint="ask again, or repair the network",
            )
        self._counts["passed_on"] += 1
        return answer

    async def passed_on(self, urls: Sequence[str], creation: Forwarded) -> PeerAnswer | None:
        """Return the answer of a creation's newer owner, which passes it on to nobody.

        Args:
            urls: The owner, and those that stand in for it; none: this server is the owner.
            creation: The request.

        Returns:
            ``None``: this server creates the marker, if it may.

        Raises:
            ServiceError: One of them may have got it, and didn't answer.
        """
        headers = {**creation.headers, UNSURE.encode(): SETTLED.encode()}
        answer = await self._forwarder.ask(urls, replace(creation, headers=headers))
        self._counts["passed_on"] += answer is not None
        return answer

    def until_s(self, began_s: float, within_s: float | None) -> float:
        """Return when a creation is held no longer, by the clock of the loop.

        Args:
            began_s: When it came.
            within_s: A shorter wait than ``hold_s``, if its client asks for one.
        """
        return began_s + (self._hold_s if within_s is None else min(within_s, self._hold_s))

    async def settled(self, table: str, former: str, until_s: float) -> tuple[str, ...]:
        """Return the servers that take a creation which its former owner has passed on.

        Waits while that one holds the table's first seat: its membership ends soon, or it renews.

        Args:
            table: Text of the table's ``TableId``.
            former: Address of the server in doubt.
            until_s: As ``until_s`` returns it.

        Returns:
            The owner now, and those that stand in for it before this server; none: this one is it.

        Raises:
            StateUnavailableError: Nothing has changed.
        """

        def creators() -> tuple[str, ...]:
            return self.current.known.creators(table)

        if not await self._changed(lambda: creators()[:1] != (former,), until_s):
            raise StateUnavailableError(
                f"{former} still owns the table, and can't reach the fleet's state store:"
                f" no server creates markers until it does, or counts as dead",
                hint="ask again",
            )
        urls = preceding(creators(), self.current.url)
        return tuple(url for url in urls if url != former)

    async def handed_over(self, table: str, epoch: int | None, until_s: float) -> None:
        """Wait until no server of the group that had a table before may create its markers.

        Waits, too, until this server knows what the one knew that has passed the creation on, if
        the table is others' as far as this one knows.

        Args:
            table: Text of the table's ``TableId``.
            epoch: The epoch of the server that has passed it on, if it said so.
            until_s: As ``until_s`` returns it.

        Raises:
            StateUnavailableError: It may still.
        """
        current = self.current

        def unaware() -> tuple[str, ...]:
            return current.known.unaware(table, current.url, current.group, epoch)

        if not await self._changed(lambda: not unaware(), until_s):
            who = ", ".join(unaware())
            raise StateUnavailableError(
                f"the table has come to {current.url}, which {who} may not know yet:"
                " no server creates its markers until then",
                hint="ask again",
            )

    async def _changed(self, is_so: Callable[[], bool], until_s: float) -> bool:
        """Wait for changes of the fleet until something is so; return whether it is."""
        if is_so():
            return True  # as in nearly all cases
        loop, changed, counts = asyncio.get_running_loop(), asyncio.Event(), self._counts
        counts["held"] += 1
        # Before the first look, so that no change is missed.
        cancel = self.current.listen(lambda _: loop.call_soon_threadsafe(changed.set))
        try:
            while True:
                changed.clear()
                if is_so():
                    return True
                try:
                    await asyncio.wait_for(changed.wait(), max(until_s - loop.time(), 0.0))
                except asyncio.TimeoutError:
                    counts["refused"] += 1
                    return False
        finally:
            cancel()

    def _others(self, table: str) -> Sequence[str]:
        """Return the table's other servers, and others that may have its seat now.

        That are those of its group, then those of other groups, as it may have moved.
        """
        known, mine = self.current.known, self.current.url
        group = known.group(table)
        urls = [seat.url for seat in known.owners(table) if seat.url]
        members = sorted(known.fleet.members, key=lambda member: member.group != group)
        urls += [member.url for member in members if not member.is_router]
        return [url for url in dict.fromkeys(urls) if url != mine][:ASKED]

    async def _renewed(self, url: str) -> Renewed | None:
        """Return whether a server has renewed its membership lately; ``None``: no answer."""
        answer = await self._forwarder.tell(url, Forwarded("GET", RENEWED.encode(), within_s=ASK_S))
        if answer is None or answer.status != HTTPStatus.OK:
            return None
        return Renewed.read(answer.body)
