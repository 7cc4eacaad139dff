"""The records of a fleet in its state store, and their form: small JSON objects.

| key | value |
| --- | --- |
| ``epoch`` | ``schema`` of all records; ``epoch``, which grows with every change of the seats |
| ``members/NAME`` | a lease: ``url``, ``standby``, ``ready``, ``joined``, a ``Load``, shared ones |
| ``seats/NUMBER`` | ``holders``, ``url`` |

A member or a seat whose record can't be read is ignored: it does no more harm than a dead server. A
server rewrites its own record, and the leader that of a seat.

``joined`` is the version at which the lease was created, and 0 until that is known: such a member
doesn't count yet. The shared fields, equal at all members, are ``copies``, ``depth``, ``tokens``,
``token`` (the ``token_mark`` of the servers' token) and ``roots`` (their ``roots_mark``, which
earlier releases don't write).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import pbkdf2_hmac, sha256
from typing import Any, Final

from executor_proxy.seat_ring import Layout
from strandline.fleet.seats import Fleet, HeldSeat, Member
from strandline.fleet.state.base import ABSENT, StateStore, Versioned
from timeline.errors import (
    ConfigError,
    FleetError,
    InputError,
    StateConflictError,
    StateUnavailableError,
)
from timeline.storage.table_id import TableId

SCHEMA: Final = 1
EPOCH: Final = "epoch"
MEMBERS: Final = "members"
SEATS: Final = "seats"
_SALT: Final = b"strandline fleet"
_ROUNDS: Final = 100_000
_MARK_DIGITS: Final = 8
_MOST_URL: Final = 2048
_READS: Final = 20
"""Most attempts to read a fleet without a change of its seats meanwhile."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a member holds, for display only; no decision depends on it.

    Attributes:
        tables: Tables that are open.
        held_bytes: Memory of its views and answers.
    """

    tables: int = 0
    held_bytes: int = 0

    def differs(self, other: Load) -> bool:
        """Whether it differs enough from the published one to be published."""
        change = abs(self.held_bytes - other.held_bytes)
        return self.tables != other.tables or 4 * change > max(other.held_bytes, 1 << 20)


@dataclass(frozen=True, slots=True)
class FleetRead:
    """A fleet as it was read.

    Attributes:
        fleet: The fleet; its seats are those of one epoch.
        epoch: Number of changes of the seats.
        versions: Key → version of the epoch and of each seat, absent ones left out.
        joining: Members that don't count yet.
        loads: Name of a member → what it holds.
        unreadable: Key of a record that can't be read → why.
    """

    fleet: Fleet
    epoch: int
    versions: Mapping[str, int]
    joining: tuple[Member, ...] = ()
    loads: Mapping[str, Load] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)

    def version(self, key: str) -> int:
        """Return the version at which a key was read."""
        return self.versions.get(key, ABSENT)


def member_name(url: str) -> str:
    """Return the name of the member at an address; the same after each restart."""
    return sha256(url.encode()).hexdigest()[:16]


@lru_cache(maxsize=4)
def token_mark(token: str | None) -> str:
    """Return a digest by which servers compare their tokens; ``""`` if there is none.

    It can't be reversed, and guessing is slow: anybody who reaches ZooKeeper can read it.

    Cost: a twentieth of a second.
    """
    if token is None:
        return ""
    return pbkdf2_hmac("sha256", token.encode(), _SALT, _ROUNDS).hex()[:_MARK_DIGITS]


def roots_mark(roots: Iterable[str]) -> str:
    """Return a digest that is equal for servers with the same tables at the same paths.

    The spelling of a root, the order, and roots below other roots make no difference. Links aren't
    followed: clients name tables by paths, and a table's owner follows from its path.

    Args:
        roots: Base paths, or directories above base paths.
    """
    places = sorted({str(TableId.of(root).normal()) for root in roots})
    outer = [
        p for p in places if not any(p.startswith(q.rstrip("/") + "/") for q in places if q != p)
    ]
    return sha256("\n".join(outer).encode("utf-8", "surrogatepass")).hexdigest()[:_MARK_DIGITS]


def member_key(name: str) -> str:
    """Return the key of a member."""
    return f"{MEMBERS}/{name}"


def seat_key(number: int) -> str:
    """Return the key of a seat."""
    return f"{SEATS}/{number}"


def member_bytes(member: Member, load: Load | None = None) -> bytes:
    """Return the value of a member's key."""
    load = load or Load()
    return _bytes(
        {
            "url": member.url,
            "standby": member.is_standby,
            "joined": member.joined,
            "ready": member.is_ready,
            "copies": member.layout.copies,
            "depth": member.layout.depth,
            "tokens": member.layout.tokens,
            "token": member.token,
            "roots": member.roots,
            "tables": load.tables,
            "bytes": load.held_bytes,
        }
    )


def seat_bytes(seat: HeldSeat) -> bytes:
    """Return the value of a seat's key."""
    return _bytes({"holders": seat.holders, "url": seat.url})


def epoch_bytes(epoch: int) -> bytes:
    """Return the value of ``EPOCH``."""
    return _bytes({"schema": SCHEMA, "epoch": epoch})


def read_fleet(state: StateStore, between: Callable[[], object] = lambda: None) -> FleetRead:
    """Read members and seats.

    Args:
        state: The fleet's state store.
        between: Called before each record is read, as reading all of them may take long.

    Raises:
        ConfigError: The records have another schema.
        FleetError: The epoch's record can't be read.
        StateConflictError: The seats changed during each of many attempts.
        StateUnavailableError: The store can't be reached.
    """
    for _ in range(_READS):
        begun = state.get(EPOCH)
        found = _read(state, begun, between)
        # Every change of a seat changes the epoch, so these seats form a consistent snapshot.
        if state.get(EPOCH) == begun:
            return found
    raise StateConflictError(f"the fleet's seats changed during each of {_READS} reads")


def _read(state: StateStore, epoch: Versioned | None, between: Callable[[], object]) -> FleetRead:
    versions = {} if epoch is None else {EPOCH: epoch.version}
    number = 0 if epoch is None else _epoch_of(epoch.value)
    seats: list[HeldSeat] = []
    unreadable: dict[str, str] = {}
    for name in state.children(SEATS):
        between()
        key = f"{SEATS}/{name}"
        with _noted(unreadable, key):
            record = state.get(key)
            if record is not None:
                versions[key] = record.version
                seats.append(_seat_of(key, name, record.value))
    members: list[Member] = []
    loads: dict[str, Load] = {}
    for name in state.children(MEMBERS):
        between()
        key = member_key(name)
        with _noted(unreadable, key):
            if (found := state.get(key)) is not None:
                loads[name] = _load_of(key, found.value)
                members.append(_member_of(key, name, found.value))
    fleet = Fleet(
        tuple(member for member in members if member.joined),
        tuple(sorted(seats, key=lambda seat: seat.number)),
    )
    joining = tuple(member for member in members if not member.joined)
    return FleetRead(fleet, number, versions, joining, loads, unreadable)


@contextmanager
def _noted(unreadable: dict[str, str], key: str) -> Iterator[None]:
    """Record why reading a key fails within the block."""
    try:
        yield
    except StateUnavailableError:
        raise
    except (ConfigError, FleetError, InputError) as error:
        unreadable[key] = str(error)


def _epoch_of(value: bytes) -> int:
    record = _object(EPOCH, value)
    schema = record.get("schema")
    if schema != SCHEMA:
        raise ConfigError(
            f"the fleet's records have schema {schema!r}; allowed: {SCHEMA}",
            hint="another release of Strandline made them; all servers of a fleet need the same",
        )
    epoch: int = _field(EPOCH, record, "epoch", int)
    return epoch


def _member_of(key: str, name: str, value: bytes) -> Member:
    record = _object(key, value)
    try:
        layout = Layout(*(_field(key, record, name, int) for name in ("copies", "depth", "tokens")))
    except ConfigError as error:
        raise FleetError(f"the record {key!r} has no layout: {error}") from error
    url = _field(key, record, "url", str)
    if len(url) > _MOST_URL:
        raise FleetError(f"the record {key!r} has a url of {len(url)} characters")
    return Member(
        name,
        url,
        _field(key, record, "standby", bool),
        _field(key, record, "joined", int),
        layout,
        _field(key, record, "token", str),
        _field(key, record, "ready", bool),
        _field(key, record, "roots", str) if "roots" in record else "",
    )


def _load_of(key: str, value: bytes) -> Load:
    record = _object(key, value)
    return Load(_field(key, record, "tables", int), _field(key, record, "bytes", int))


def _seat_of(key: str, number: str, value: bytes) -> HeldSeat:
    record = _object(key, value)
    holders = _field(key, record, "holders", list)
    if not holders or not all(type(name) is str for name in holders):
        raise FleetError(f"the record {key!r} has the holders {holders!r}; allowed: names")
    if not number.isdecimal() or str(int(number)) != number:
        raise FleetError(f"the record {key!r} is of no seat; allowed: {SEATS}/NUMBER")
    return HeldSeat(int(number), tuple(holders), _field(key, record, "url", str))


def _field(key: str, record: Mapping[str, Any], name: str, kind: type) -> Any:
    value = record.get(name)
    if type(value) is not kind:
        raise FleetError(f"the record {key!r} has the {name} {value!r}; allowed: {kind.__name__}")
    return value


def _object(key: str, value: bytes) -> Mapping[str, Any]:
    try:
        record = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise FleetError(f"the record {key!r} is no JSON: {error}") from error
    if not isinstance(record, dict):
        raise FleetError(f"the record {key!r} is {type(record).__name__}; allowed: a JSON object")
    return record


def _bytes(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record).encode()
