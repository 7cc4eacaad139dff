"""The records of a fleet in its state store, and their form: small JSON objects.

| key | value |
| --- | --- |
| ``epoch`` | ``schema`` of all records; ``epoch``, by 1 more with each change of seats, mounts or |
| | moves, or of who is drained |
| ``members/NAME`` | a lease: ``url``, ``standby``, ``ready``, ``joined``, ``group``, a ``Load`` |
| | the shared fields, ``acks`` (number of a move → what it has done for it) |
| ``seats/NUMBER`` | ``holders``, ``url``, ``group`` |
| ``groups/NAME`` | ``roots`` of all servers of the group |
| ``mounts`` | ``mounts``: of each ``prefix``, ``group``, ``copies``, ``depth`` |
| ``drained/NAME`` | of a member that gets no seat: ``url`` |
| ``moves/NUMBER`` | of tables that are moving: ``prefix``, ``group``, ``copies``, ``depth``, |
| | ``source``, ``state``, ``mover``, ``began``, ``why`` |
| ``moved`` | ``moves``: the last ``MOST_MOVED`` moves that ended, with their ``number`` |

A member, a seat, a group or a move whose record can't be read is ignored: it does no more harm than
a dead server. A server rewrites its own record and its group's, and the leader that of a seat.
``epoch`` and ``mounts`` must be readable.

``joined`` is the version at which the lease was created, and 0 until that is known: such a member
doesn't count yet. The shared fields, equal at all members, are ``copies``, ``depth``, ``tokens``
and ``token`` (the ``token_mark`` of the servers' token); ``roots`` (their ``roots_mark``, which
earlier releases don't write) is equal in a group.

Releases without groups write no ``group``, and know ``SCHEMA`` alone. With the first group beside
``default``, the first mount, router or drained server the schema becomes ``GROUPS_SCHEMA``: they
can't join any more, as they would drop the groups of seats.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import pbkdf2_hmac, sha256
from typing import Any, Final, TypeVar

from executor_proxy.seat_ring import Layout
from strandline.fleet.groups import Group, check_group, outer_roots
from strandline.fleet.mounts import OVER, Mount, MountTable, Move, MoveState
from strandline.fleet.seats import Fleet, HeldSeat, Member
from strandline.fleet.state.base import ABSENT, MAX_VALUE_BYTES, Op, Put, StateStore, Versioned
from strandline.settings.fleet import DEFAULT_GROUP
from timeline.errors import (
    ConfigError,
    FleetError,
    InputError,
)

logger = logging.getLogger(__name__)

SCHEMA: Final = 1
GROUPS_SCHEMA: Final = 2
EPOCH: Final = "epoch"
MEMBERS: Final = "members"
SEATS: Final = "seats"
GROUPS: Final = "groups"
MOUNTS: Final = "mounts"
DRAINED: Final = "drained"
MOVES: Final = "moves"
MOVED: Final = "moved"
MOST_MOVED: Final = 100
"""Most moves that are remembered after their end."""
MOST_ACKS: Final = 1000
T = TypeVar("T")
_SALT: Final = b"strandline fleet"
_ROUNDS: Final = 100_000
_MARK_DIGITS: Final = 8
_MOST_URL: Final = 2048


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
        fleet: The fleet; its seats and mounts are those of one epoch.
        epoch: Number of changes of seats, mounts and moves.
        versions: Key → version of each record.
        joining: Members that don't count yet.
        loads: Name of a member → what it holds.
        unreadable: Key of a record that can't be read → why.
        schema: Of the records.
        ended: The moves that ended, the last one last.
    """

    fleet: Fleet
    epoch: int
    versions: Mapping[str, int]
    joining: tuple[Member, ...] = ()
    loads: Mapping[str, Load] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    schema: int = SCHEMA
    ended: tuple[Move, ...] = ()

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
    text = "\n".join(outer_roots(roots))
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_MARK_DIGITS]


def member_key(name: str) -> str:
    """Return the key of a member."""
    return f"{MEMBERS}/{name}"


def seat_key(number: int) -> str:
    """Return the key of a seat."""
    return f"{SEATS}/{number}"


def group_key(name: str) -> str:
    """Return the key of a group."""
    return f"{GROUPS}/{name}"


def drained_key(name: str) -> str:
    """Return the key by which a member is drained."""
    return f"{DRAINED}/{name}"


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
            "group": member.group,
            **(
                {"acks": {str(number): what for number, what in member.acks}} if member.acks else {}
            ),
            "tables": load.tables,
            "bytes": load.held_bytes,
        }
    )


def seat_bytes(seat: HeldSeat) -> bytes:
    """Return the value of a seat's key."""
    return _bytes({"holders": seat.holders, "url": seat.url, "group": seat.group})


def group_bytes(group: Group) -> bytes:
    """Return the value of a group's key."""
    return _bytes({"roots": group.roots})


def mounts_bytes(mounts: MountTable) -> bytes:
    """Return the value of ``MOUNTS``."""
    rows = (
        {"prefix": each.prefix, "group": each.group, "copies": each.copies, "depth": each.depth}
        for each in mounts.mounts
    )
    return _bytes({"mounts": [{k: v for k, v in row.items() if v is not None} for row in rows]})


def mounting(found: FleetRead, mounts: MountTable) -> tuple[Op, ...]:
    """Return the operations that write the mounts, and begin an epoch.

    Raises:
        ConfigError: They take more than before, and too much.
    """
    value = mounts_bytes(mounts)
    most = MAX_VALUE_BYTES // 2
    if len(value) > most and len(value) > len(mounts_bytes(found.fleet.mounts)):
        raise ConfigError(
            f"the {len(mounts.mounts)} mounts take {len(value)} bytes; allowed:"
            f" {MAX_VALUE_BYTES // 2}"
        )
    put = Put(MOUNTS, value, found.version(MOUNTS))
    return put, next_epoch(found, has_groups=True)


def move_key(number: int) -> str:
    """Return the key of a move."""
    return f"{MOVES}/{number}"


def move_bytes(move: Move) -> bytes:
    """Return the value of a move's key."""
    return _bytes(_move_row(move))


def moved_bytes(moves: Iterable[Move]) -> bytes:
    """Return the value of ``MOVED``, of the last moves that fit.

    Args:
        moves: Moves that ended, the last one last.
    """
    rows = [{"number": move.number, **_move_row(move)} for move in moves][-MOST_MOVED:]
    while len(value := _bytes({"moves": rows})) > MAX_VALUE_BYTES // 4:
        rows = rows[1:]
    return value


def _move_row(move: Move) -> dict[str, Any]:
    mount = move.mount
    return {
        "prefix": mount.prefix,
        "group": mount.group,
        "copies": mount.copies,
        "depth": mount.depth,
        "source": move.source,
        "state": move.state.name,
        "mover": move.mover,
        "began": dict(move.began),
        "why": move.why,
    }


def drained_bytes(url: str) -> bytes:
    """Return the value of the key by which a member is drained."""
    return _bytes({"url": url})


def epoch_bytes(epoch: int, schema: int = SCHEMA) -> bytes:
    """Return the value of ``EPOCH``."""
    return _bytes({"schema": schema, "epoch": epoch})


def next_epoch(found: FleetRead, *, has_groups: bool = False) -> Put:
    """Return the operation that begins the epoch after the one that was read.

    Args:
        found: The fleet as it was read.
        has_groups: Whether releases without groups can't join from then on.
    """
    schema = max(found.schema, GROUPS_SCHEMA if has_groups else SCHEMA)
    return Put(EPOCH, epoch_bytes(found.epoch + 1, schema), found.version(EPOCH))


def read_fleet(state: StateStore) -> FleetRead:
    """Read all records.

    Raises:
        ConfigError: The records have another schema.
        FleetError: The record of the epoch or of the mounts can't be read.
        StateUnavailableError: The store can't be reached.
    """
    reader = _Reader(state.read())
    number, schema = reader.one(EPOCH, _epoch_of, (0, SCHEMA))
    seats = reader.below(SEATS, _seat_of)
    mounts = reader.one(MOUNTS, _mounts_of, MountTable())
    moves = reader.below(MOVES, _move_of)
    told = reader.below(MEMBERS, _told_of)
    members = [member for member, _ in told]
    fleet = Fleet(
        tuple(member for member in members if member.joined),
        tuple(sorted(seats, key=lambda seat: seat.number)),
        tuple(reader.below(GROUPS, _group_of)),
        mounts,
        frozenset(reader.below(DRAINED, lambda key, name, value: name)),
        tuple(sorted(moves, key=lambda move: move.number)),
    )
    return FleetRead(
        fleet,
        number,
        {key: record.version for key, record in reader.records.items()},
        tuple(member for member in members if not member.joined),
        {member.name: load for member, load in told},
        reader.unreadable,
        schema,
        reader.one(MOVED, _moved_of, ()),
    )


class _Reader:
    """Parses records.

    Attributes:
        records: All that were found.
        unreadable: Key → why it can't be read.
    """

    def __init__(self, records: Mapping[str, Versioned]) -> None:
        self.records = records
        self.unreadable: dict[str, str] = {}

    def one(self, key: str, parse: Callable[[bytes], T], absent: T) -> T:
        """Return the record of a key; ``absent`` if there is none."""
        found = self.records.get(key)
        return absent if found is None else parse(found.value)

    def below(self, folder: str, parse: Callable[[str, str, bytes], T]) -> list[T]:
        """Return the records below a key, in the order of their names, those that can be read."""
        parsed: list[T] = []
        for key in sorted(self.records):
            above, _, name = key.rpartition("/")
            if above != folder:
                continue
            try:
                parsed.append(parse(key, name, self.records[key].value))
            except (ConfigError, FleetError, InputError) as error:
                self.unreadable[key] = str(error)
        return parsed


def _epoch_of(value: bytes) -> tuple[int, int]:
    """Return the epoch and the schema."""
    record = _object(EPOCH, value)
    schema = record.get("schema")
    if schema not in (SCHEMA, GROUPS_SCHEMA) or type(schema) is not int:
        raise ConfigError(
            f"the fleet's records have schema {schema!r}; allowed: {SCHEMA}, {GROUPS_SCHEMA}",
            hint="another release of Strandline made them; all servers of a fleet need the same",
        )
    return _field(EPOCH, record, "epoch", int), schema


def _told_of(key: str, name: str, value: bytes) -> tuple[Member, Load]:
    return _member_of(key, name, value), _load_of(key, value)


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
        _group_in(key, record),
        "group" in record,
        _acks_in(key, record),
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
    group = _group_in(key, record)
    if not group:
        raise FleetError(f"the record {key!r} has no group; allowed: a group's name")
    return HeldSeat(int(number), tuple(holders), _field(key, record, "url", str), group)


def _group_in(key: str, record: Mapping[str, Any]) -> str:
    """Return the group in a record; those of earlier releases are ``default``'s."""
    name: str = _field(key, record, "group", str) if "group" in record else DEFAULT_GROUP
    if name:
        check_group(name, f"the group in the record {key!r}")
    return name


def _group_of(key: str, name: str, value: bytes) -> Group:
    roots = _field(key, _object(key, value), "roots", list)
    if not roots or not all(type(root) is str and root for root in roots):
        raise FleetError(f"the record {key!r} has the roots {roots!r}; allowed: base paths")
    group = Group.of(check_group(name), roots)
    if list(group.roots) != roots:
        # In another spelling it isn't the group's own, and a relative path means another one here.
        raise FleetError(
            f"the record {key!r} has the roots {roots!r}; allowed: sorted"
            " texts of table ids, none below another"
        )
    return group


def _move_of(key: str, number: str, value: bytes) -> Move:
    if not number.isdecimal() or str(int(number)) != number:
        raise FleetError(f"the record {key!r} is of no move; allowed: {MOVES}/NUMBER")
    move = _move_in(key, int(number), _object(key, value))
    if move.state in OVER:
        # The leader that ends a move deletes its record in the same write.
        raise FleetError(
            f"the record {key!r} has the state {move.state.name}; allowed: one of a move under way"
        )
    return move


@lru_cache(maxsize=2)
def _moved_of(value: bytes) -> tuple[Move, ...]:
    """Return the moves that ended; none, if they can't be read: nothing depends on them."""
    try:
        rows = _field(MOVED, _object(MOVED, value), "moves", list)
        return tuple(_move_in(MOVED, row.get("number"), row) for row in rows)
    except (AttributeError, ConfigError, FleetError) as error:
        logger.warning("the moves that ended are forgotten: %s", error)
        return ()


def _move_in(key: str, number: object, record: Mapping[str, Any]) -> Move:
    texts = ("prefix", "group", "source", "state", "mover", "why")
    prefix, group, source, state, mover, why = (_field(key, record, t, str) for t in texts)
    began = _field(key, record, "began", dict)
    is_known = state in MoveState.__members__ and type(number) is int
    if not is_known or not all(type(at) is int for at in began.values()):
        raise FleetError(f"the record {key!r} has the state {state!r}, number {number!r}")
    try:
        mount = Mount.of(prefix, group, record.get("copies"), record.get("depth"))
    except ConfigError as error:
        raise FleetError(f"the record {key!r} can't be read: {error}") from error
    check_group(source, f"the source in the record {key!r}")
    assert isinstance(number, int)
    return Move(number, mount, source, MoveState[state], mover, tuple(began.items()), why)


def _acks_in(key: str, record: Mapping[str, Any]) -> tuple[tuple[int, str], ...]:
    acks = _field(key, record, "acks", dict) if "acks" in record else {}
    if len(acks) > MOST_ACKS or not all(
        name.isdecimal() and len(name) < 16 and isinstance(what, str) for name, what in acks.items()
    ):
        raise FleetError(f"the record {key!r} has the acks {str(acks)[:100]}; allowed: of moves")
    return tuple(sorted((int(name), what) for name, what in acks.items()))


@lru_cache(maxsize=2)
def _mounts_of(value: bytes) -> MountTable:
    """Return the mounts; the same object for the same record, as each step of a member reads it."""
    rows = _field(MOUNTS, _object(MOUNTS, value), "mounts", list)
    try:
        return MountTable(tuple(map(_mount_of, rows)))
    except ConfigError as error:
        raise FleetError(f"the record {MOUNTS!r} can't be read: {error}") from error


def _mount_of(row: object) -> Mount:
    if not isinstance(row, dict):
        raise FleetError(f"the record {MOUNTS!r} has {row!r}; allowed: JSON objects")
    prefix, group = (_field(MOUNTS, row, name, str) for name in ("prefix", "group"))
    return Mount.of(prefix, group, row.get("copies"), row.get("depth"))


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
