"""``FleetPart``: the additional parts of a server that belongs to a fleet.

One of them is ``LeaderUpkeep``: garbage collection in the databases of views, by the first of each
group. ``fsview.store.sql.upkeep`` defines what is deleted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from executor_proxy.exchange import Endpoint, tls_context
from executor_proxy.seat_ring import Layout
from fsview.store.sql.upkeep import Upkeep
from fsview.view_manager import ViewManager
from strandline.fleet.current import CurrentFleet
from strandline.fleet.forward import Forwarder
from strandline.fleet.groups import AUTO, check_group
from strandline.fleet.membership import Membership
from strandline.fleet.moving.handover import Forget, Handover
from strandline.fleet.moving.neighbours import Neighbours
from strandline.fleet.moving.warming import BOUND_S, Warming
from strandline.fleet.overview import move_overview
from strandline.fleet.records import Load, token_mark
from strandline.fleet.roster import Roster
from strandline.fleet.seats import Fleet
from strandline.fleet.state.url import StateUrl, open_state
from strandline.settings.fleet import (
    ADVERTISE,
    CA,
    COPIES,
    DEAD,
    DEFAULT_GROUP,
    DEPTH,
    FLEET,
    GROUP,
    HEARTBEAT,
    RACK,
    ROUTER,
    STANDBY,
    TOKENS,
)
from strandline.settings.setting import Setting, refusal
from strandline.settings.sources import ServeSettings
from timeline.errors import ConfigError

logger = logging.getLogger(__name__)

_ANY_HOST: Final = ("0.0.0.0", "::")  # noqa: S104 - not bound to, but refused

LEAST_SESSION_S: Final = 4.0
"""Shortest session timeout that ZooKeeper allows by default."""
PAUSE_S: Final = 10.0
"""Between two passes of the upkeep over all tables, of some milliseconds each."""


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """A server's part in a fleet.

    Attributes:
        url: State store and name of the fleet.
        address: Where clients and other servers reach it.
        layout: How tables are placed.
        is_standby: Whether it waits for a seat.
        heartbeat_s: Longest time between two heartbeats.
        dead_s: When it counts as dead.
        ca_file: PEM file of authorities, for servers with https; ``None``: the system's.
        group: Its group, or ``AUTO``; ``""``: it is a router.
        rack: Its rack, for ``AUTO``.
    """

    url: str
    address: str
    layout: Layout
    is_standby: bool = STANDBY.field()
    heartbeat_s: float = HEARTBEAT.field()
    dead_s: float = DEAD.field()
    ca_file: str | None = CA.field(lambda path: path or None)
    group: str = DEFAULT_GROUP
    rack: str = RACK.field()

    @classmethod
    def of(cls, settings: ServeSettings) -> FleetOptions | None:
        """Return what the settings say; ``None``: the server is on its own.

        Raises:
            ConfigError: A URL is invalid or missing, or is given without a fleet.
        """
        get = settings.get
        if not get(FLEET):
            _refuse_without_fleet(settings)
            return None
        StateUrl.of(get(FLEET))
        if get(CA):
            try:
                tls_context(get(CA))
            except ConfigError as error:
                raise ConfigError(f"{settings.key(CA)}: {error}") from error
        return settings.values.read(
            cls,
            url=get(FLEET),
            address=_address(settings),
            layout=Layout(get(COPIES), get(DEPTH), get(TOKENS)),
            group=_group(settings),
        )


class LeaderUpkeep:
    """A thread; ``status`` is for any other.

    Args:
        current: The fleet.
        upkeep: Deletes.
        pause_s: Seconds between two passes.
    """

    def __init__(self, current: CurrentFleet, upkeep: Upkeep, pause_s: float = PAUSE_S) -> None:
        self._current, self._upkeep = current, upkeep
        self._pause_s = pause_s
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin; to be called once."""
        # Not joined: the database may hang.
        threading.Thread(target=self._run, name="strandline-upkeep", daemon=True).start()

    def stop(self) -> None:
        """End after the transaction that is under way; may be repeated."""
        self._stopped.set()
        self._upkeep.stop()

    def status(self) -> dict[str, Any]:
        """Return whether this server leads, and what it has deleted, in a form for JSON."""
        return {"leads": self._current.leads, "deleted": self._upkeep.deleted}

    def _run(self) -> None:
        while not self._stopped.wait(self._pause_s):
            if not self._current.leads:
                continue
            try:
                self._upkeep.run(lambda: self._current.leads)
            except Exception:
                # Garbage only takes room; the next pass may succeed.
                logger.exception("garbage collection in the databases of views failed")


class FleetPart:
    """A server's membership in a fleet, and its way to the other servers.

    Args:
        options: Its part.
        tokens: Bearer token of all servers of the fleet, and a second one that is admitted; none:
            they have no token.
        roots: The roots that all servers of its group serve.

    Attributes:
        forwarder: Passes requests on.
        current: The fleet as this server knows it.

    Raises:
        ConfigError: The state store isn't one, or its driver isn't installed.
        FleetError: The state store can't be reached.
    """

    def __init__(
        self, options: FleetOptions, tokens: Sequence[str], roots: Collection[str]
    ) -> None:
        token, other = (*tokens, None, None)[:2]
        self._url = StateUrl.of(options.url)
        self._dead_s = options.dead_s
        self._load: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self._state = open_state(options.url, options.dead_s)
        try:
            roster = Roster(
                self._state,
                options.address,
                is_standby=options.is_standby,
                dead_s=options.dead_s,
                layout=options.layout,
                token=token_mark(token),
                other_token=None if other is None else token_mark(other),
                roots=roots,
                group=options.group,
                rack=options.rack,
                load=lambda: Load(*self._load()),
                is_ready=False,
            )
            self._membership = Membership(roster, warm_s=BOUND_S, heartbeat_s=options.heartbeat_s)
        except BaseException:
            self._state.close()
            raise
        self._upkeep: LeaderUpkeep | None = None
        current = self.current = self._membership.current
        self.forwarder = Forwarder(
            current.url,
            current.owners,
            token,
            other_token=other,
            ca_file=options.ca_file,
            is_spread=current.is_spread_here,
            epoch=lambda: current.known.epoch,
            hear=current.hear,
            followers=lambda table: current.known.followers(table),
        )
        self._neighbours = Neighbours(token, options.ca_file)
        self._warming = Warming(
            current,
            self._membership.name,
            self._neighbours,
            self._membership.ready,
            self._membership.acknowledge,
        )
        self._handover = Handover(current, self._membership.acknowledge)

    def start(
        self, load: Callable[[], tuple[int, int]], views: ViewManager, forget: Forget
    ) -> None:
        """Join the fleet; if a killed member has this address, wait until its lease has expired.

        Args:
            load: Returns how many tables are open, and the bytes that are held; for any thread.
            views: Opens the tables whose records are fetched from then on.
            forget: Drops what is kept of the markers of tables that move to another group.

        Raises:
            ConfigError: The fleet has another schema, layout or token, or the group other roots.
            FleetError: A member has this address, a record can't be read, or the store can't be
                reached.
        """
        self._load = load
        current = self._membership.current
        views.stores.leads = lambda: current.leads
        # A little more: the lease of a process that was killed may just have been renewed.
        self._membership.start(within_s=1.5 * max(self._dead_s, LEAST_SESSION_S))
        self._warming.start(views)
        self._handover.start(views, forget)
        upkeep = views.stores.upkeep()
        if upkeep is not None:
            self._upkeep = LeaderUpkeep(current, upkeep)
            self._upkeep.start()

    def use_tokens(self, tokens: Sequence[str]) -> None:
        """Send the first token from now on, and know other servers by any of them."""
        self.forwarder.use_tokens(tokens)
        self._neighbours.token = tokens[0]
        self._membership.use_tokens(tokens)

    def interrupt(self) -> None:
        """Let ``start`` return soon; for a signal handler."""
        self._membership.interrupt()

    def close(self) -> None:
        """Leave the fleet, and end the connections to its state store; may be repeated."""
        if self._upkeep is not None:
            self._upkeep.stop()
        self._warming.stop()
        self._handover.stop()
        self._membership.stop()
        self._state.close()

    def status(self) -> dict[str, Any]:
        """Return the fleet as this server knows it, in a form for JSON."""
        current = self._membership.current
        known = current.known
        fleet = known.fleet
        seats = {seat.holder: seat.number for seat in fleet.seats}
        members = {member.name: member for member in fleet.members}
        return {
            "state": str(self._url),
            "url": current.url,
            "group": current.group,
            "epoch": known.epoch,
            "renewed": current.is_sure(),
            "trouble": self._membership.trouble,
            "outages": self._membership.outages,
            "leader": None if fleet.leader is None else fleet.leader.url,
            "members": [
                {
                    "url": each.url,
                    "seat": seats.get(name),
                    "group": each.group,
                    "router": each.is_router,
                    "standby": each.is_standby,
                    "ready": each.is_ready,
                }
                for name, each in sorted(members.items(), key=lambda item: item[1].url)
            ],
            "groups": _groups(fleet),
            "vacant": list(fleet.vacant),
            "drained": [each.url for each in fleet.members if each.name in fleet.drained],
            "moves": [move_overview(fleet, move) for move in fleet.moves],
            "moved": self._membership.move_counts(),
            "creations": current.creations.status(),
            "records": self._warming.status(),
            "upkeep": None if self._upkeep is None else self._upkeep.status(),
        }


def _groups(fleet: Fleet) -> dict[str, dict[str, int]]:
    """Return group → its seats, those that are vacant, and its mounts, for JSON."""
    vacant, mounts = frozenset(fleet.vacant), fleet.mounts.mounts
    names = {seat.group for seat in fleet.seats} | {mount.group for mount in mounts}
    return {
        name: {
            "seats": sum(seat.group == name for seat in fleet.seats),
            "vacant": sum(seat.group == name and seat.number in vacant for seat in fleet.seats),
            "mounts": sum(mount.group == name for mount in mounts),
        }
        for name in sorted(names)
    }


def _refuse_without_fleet(settings: ServeSettings) -> None:
    switches: tuple[Setting[Any], ...] = (ADVERTISE, STANDBY, CA, RACK, ROUTER)
    figures: tuple[Setting[Any], ...] = (GROUP, COPIES, DEPTH, TOKENS, HEARTBEAT, DEAD)
    switched = [each for each in switches if settings.get(each)]
    given = [each for each in figures if settings.source(each) != "default"]
    for each in (*switched, *given):
        key = settings.key(each)
        raise ConfigError(f"{key} is given without --fleet; allowed: with --fleet URL")


def _group(settings: ServeSettings) -> str:
    """Return the name of the group, ``AUTO``, or ``""`` for a router."""
    group, rack = settings.get(GROUP), settings.get(RACK)
    if settings.get(ROUTER):
        if settings.get(STANDBY):
            raise ConfigError(f"{settings.key(STANDBY)} is true; allowed: without --router")
        for each in (GROUP, RACK):
            if settings.source(each) != "default":
                shown = repr(settings.get(each))
                raise ConfigError(f"{settings.key(each)} is {shown}; allowed: without --router")
        return ""
    if group == AUTO and not rack:
        raise ConfigError(f"{settings.key(GROUP)} is {AUTO!r}; allowed: with --rack NAME")
    if rack and group != AUTO:
        raise ConfigError(f"{settings.key(RACK)} is {rack!r}; allowed: with --group {AUTO}")
    return group if group == AUTO else check_group(group, settings.key(GROUP))


def _address(settings: ServeSettings) -> str:
    """Return the address in the canonical form that all servers use."""
    given, key = settings.get(ADVERTISE), settings.key(ADVERTISE)
    if not given:
        raise ConfigError("--fleet needs --advertise URL, where the other servers reach this one")
    try:
        place = Endpoint.of(given, None)
    except ConfigError:
        place = None
    if place is None or not place.port:
        shown = "***" if "@" in given else repr(given)  # it may have a password
        raise refusal(key, shown, "; allowed: http://HOST:PORT, https://HOST:PORT")
    if place.host in _ANY_HOST:
        raise refusal(key, repr(given), "; allowed: a host that others can connect to")
    if not place.host.isascii():  # nor would it be one in a header, or at a client
        raise refusal(key, repr(given), "; allowed: a host in ASCII, such as one with xn--")
    host = f"[{place.host}]" if ":" in place.host else place.host
    return f"{'https' if place.encrypted else 'http'}://{host}:{place.port}"
