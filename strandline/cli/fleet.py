"""``strandline fleet``: shows or simulates a fleet; changes what its servers share."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import click

from executor_proxy.connection import KeptConnections
from executor_proxy.exchange import Outgoing, Timeouts
from executor_proxy.seat_ring import DEFAULT, MAX_COPIES, MAX_DEPTH, MAX_TOKENS, Layout
from fsview.store.sql.database_ring import DatabaseRing
from fsview.store.sql.upkeep import forget as forget_table
from fsview.store.sql.url import open_database, split_urls
from strandline.cli.output import native_output_to_stderr
from strandline.fleet.changes import (
    add_mount,
    await_move,
    drain,
    plan_move,
    remove_mount,
    undo_move,
)
from strandline.fleet.joining import of_token
from strandline.fleet.mounts import Mount, MountTable, Move, MoveState
from strandline.fleet.overview import (
    as_text,
    mount_lines,
    mounts_overview,
    move_line,
    move_overview,
    overview,
)
from strandline.fleet.planning.load import as_text as load_as_text
from strandline.fleet.planning.load import by_group, capacities_of, checked_status, loads_of
from strandline.fleet.planning.milp import open_solver
from strandline.fleet.planning.placement import GroupCapacity, TableLoad
from strandline.fleet.planning.plan import Proposal, plan
from strandline.fleet.planning.plan import as_text as plan_as_text
from strandline.fleet.planning.simulation import (
    MAX_GROUPS,
    MAX_RACKS,
    MAX_SERVERS,
    MAX_TABLES,
    racks_as_text,
    simulate,
    simulate_racks,
)
from strandline.fleet.planning.simulation import as_text as simulation_as_text
from strandline.fleet.records import MOVES, FleetRead, read_fleet, token_mark
from strandline.fleet.seats import Fleet
from strandline.fleet.state.base import StateStore
from strandline.fleet.state.url import StateUrl, open_state
from strandline.server.api.dispatcher import STATUS
from strandline.server.http.authorization import read_token_file
from strandline.server.log_format import escaped
from strandline.settings.fleet import DEFAULT_GROUP
from timeline.clock import SystemClock
from timeline.errors import (
    BadAnswerError,
    ConfigError,
    FleetError,
    RemoteFailureError,
    ServiceError,
    StoreError,
)
from timeline.storage.table_id import TableId

MOST_POINTS: Final = 50_000
"""Most points of a simulated ring; a ring is built once for each server."""
Command = TypeVar("Command", bound=Callable[..., Any])
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


class Chance(click.FloatRange):
    """A number in a range; ``nan`` is refused."""

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """See ``click.ParamType``."""
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value!r} is no number from {self.min} to {self.max}", param, ctx)
        return float(found)


def _figure(
    flag: str, allowed: click.IntRange | Chance, default: float, about: str
) -> Callable[[Command], Command]:
    """Return the decorator that adds an option of a number to a command."""
    return click.option(flag, type=allowed, default=default, show_default=True, help=about)


@click.group()
def fleet() -> None:
    """Show or simulate a fleet of servers; change what its servers share."""


@fleet.command()
@click.argument("url")
@click.option(
    "--table", "tables", multiple=True, metavar="PATH", help="Also show the servers of a table."
)
@AS_JSON
def status(url: str, tables: tuple[str, ...], as_json: bool) -> None:
    """Show members, seats and leader of the fleet at URL.

    URL is that of serve's --fleet. Only the state store is read: no server is asked.
    """
    with _refusals():
        read = StateUrl.of(url)
        for table in tables:
            _check_table(table)
        with closing(_opened(url)) as state:
            found = read_fleet(state)
        is_there = found.epoch or found.fleet.members or found.joining
        if not is_there and read.scheme != "sqlite":  # its file exists
            raise ConfigError(f"there is no fleet at {read}: no server has joined it")
        told = overview(found, tables)
    click.echo(json.dumps(told) if as_json else as_text(_printable(told), escaped(str(read))))


@fleet.command("drain")
@click.argument("url")
@click.argument("server")
@AS_JSON
def drain_command(url: str, server: str, as_json: bool) -> None:
    """Have SERVER give its seat in the fleet at URL to another server of its group.

    SERVER is its address, as status shows it. A server without a seat takes the seat; if there is
    none, the seat is removed, and its tables move. SERVER forwards requests from then on, and gets
    a seat again, in any group, once it is restarted.
    """
    with _refusals(), closing(_opened(url)) as state:
        seat = drain(state, server)
    if as_json:
        click.echo(json.dumps({"server": seat.url, "seat": seat.number, "group": seat.group}))
    else:
        click.echo(f"{seat.url} gives away seat {seat.number} of the group {seat.group}")


@fleet.group()
def mount() -> None:
    """Give tables to groups of servers, or show which group has which."""


@mount.command("add")
@click.argument("url")
@click.argument("prefix")
@click.argument("group")
@click.option(
    "--copies", type=int, help="Servers that have each of the tables; else as in the fleet."
)
@click.option(
    "--depth",
    type=int,
    help="2 spreads each of the tables over the group by its partitions; else as in the fleet.",
)
@AS_JSON
def mount_add(
    url: str, prefix: str, group: str, copies: int | None, depth: int | None, as_json: bool
) -> None:
    """Give the tables at and below PREFIX to the servers of GROUP in the fleet at URL.

    PREFIX is a table's base path, or a directory above some, in any spelling; of several mounts
    above a table the one with the longest path counts. The servers notice it at once. The servers
    of GROUP take the records of tables that others have open.
    """
    with _refusals(), closing(_opened(url)) as state:
        mounts = add_mount(state, Mount.of(prefix, group, copies, depth))
    _show_mounts(mounts, as_json)


@mount.command("remove")
@click.argument("url")
@click.argument("prefix")
@AS_JSON
def mount_remove(url: str, prefix: str, as_json: bool) -> None:
    """Give the tables at and below PREFIX back to the group of the next mount above.

    PREFIX is a mounted path in any spelling. Without a mount above it is the group default.
    """
    with _refusals(), closing(_opened(url)) as state:
        mounts = remove_mount(state, prefix)
    _show_mounts(mounts, as_json)


@mount.command("list")
@click.argument("url")
@AS_JSON
def mount_list(url: str, as_json: bool) -> None:
    """Show which group of the fleet at URL has which tables."""
    with _refusals(), closing(_opened(url)) as state:
        mounts = read_fleet(state).fleet.mounts
    _show_mounts(mounts, as_json)


def _show_mounts(mounts: MountTable, as_json: bool) -> None:
    told = mounts_overview(mounts)
    if as_json:
        click.echo(json.dumps({"mounts": told}))
        return
    for line in mount_lines(_printable(told)):
        click.echo(line)
    click.echo(f"all other tables: group {DEFAULT_GROUP}")


@fleet.command("move")
@click.argument("url")
@click.argument("prefix")
@click.argument("group")
@click.option("--copies", type=int, help="As of mount add; else as they are mounted now.")
@click.option("--depth", type=int, help="As of mount add; else as they are mounted now.")
@click.option("--no-wait", is_flag=True, help="Return once it is ordered.")
@AS_JSON
def move_command(
    url: str,
    prefix: str,
    group: str,
    copies: int | None,
    depth: int | None,
    no_wait: bool,
    as_json: bool,
) -> None:
    """Move the tables at and below PREFIX to the servers of GROUP in the fleet at URL.

    PREFIX is a table's base path, or a directory above some, in any spelling. The fleet's leader
    carries it out, also if this command ends: the servers of GROUP take the records of the tables,
    then the path is mounted on GROUP, then its former servers close the tables. Fails if the move
    was undone; moves says why.
    """
    with _refusals(), closing(_opened(url)) as state:
        move = plan_move(state, prefix, group, copies, depth, now_ms=SystemClock().now_ms())
        shown = (lambda _: None) if as_json else _show_move
        shown(move)
        if not no_wait:
            move = await_move(state, move, shown)
        if as_json:
            click.echo(json.dumps(move_overview(Fleet(), move)))
        _check_ended(move)


@fleet.command("moves")
@click.argument("url")
@click.option(
    "--undo",
    type=int,
    metavar="NUMBER",
    help="Undo a move that is PLANNED or WARMING; forget one whose record can't be read.",
)
@AS_JSON
def moves_command(url: str, undo: int | None, as_json: bool) -> None:
    """Show the moves of tables in the fleet at URL: those under way, then the last that ended.

    Of each the state, and the servers that it waits for.
    """
    with _refusals(), closing(_opened(url)) as state:
        if undo is not None:
            undo_move(state, undo, now_ms=SystemClock().now_ms())
        found = read_fleet(state)
    rows = [move_overview(found.fleet, each) for each in (*found.fleet.moves, *found.ended[::-1])]
    unreadable = _unreadable_moves(found)
    if as_json:
        click.echo(json.dumps({"moves": rows, "unreadable": unreadable}))
        return
    for line in (*map(move_line, _printable(rows)), *map(escaped, unreadable)):
        click.echo(line)
    if not (rows or unreadable):
        click.echo("no table has moved yet")


def _show_move(move: Move) -> None:
    click.echo(move_line(_printable(move_overview(Fleet(), move))))


def _check_ended(move: Move) -> None:
    """Refuse a move that was undone."""
    if move.state is MoveState.UNDONE:
        raise FleetError(f"{move} is UNDONE, as {move.why}")


def _apply(
    state: StateStore, proposal: Proposal, shown: Callable[[Move], object]
) -> Iterator[Move]:
    """Carry out the moves of a plan, one after the other; yield each that has ended.

    Raises:
        ConfigError: One can't be ordered, as the fleet has changed since.
        FleetError: One was undone, which is yielded before, or the store can't be reached.
    """
    for planned in proposal.moves:
        now_ms = SystemClock().now_ms()
        move = plan_move(state, planned.prefix, planned.destination, now_ms=now_ms)
        shown(move)
        move = await_move(state, move, shown)
        yield move
        _check_ended(move)


@fleet.command()
@click.argument("url")
@click.option("--token-file", type=click.Path(), help="As serve's.")
@click.option("--ca", help="As serve's --fleet-ca.")
@AS_JSON
def load(url: str, token_file: str | None, ca: str | None, as_json: bool) -> None:
    """Show what each table of the fleet at URL takes: CPU and memory.

    URL is that of serve's --fleet. All members are asked: a member that doesn't answer is an error,
    as its tables would seem idle. CPU is in seconds a second, the peak of five minutes since a
    server has the table open, summed over servers; MB are those of one copy.
    """
    with _refusals():
        statuses, found = _asked(url, token_file, ca)
        tables = loads_of(statuses, found.fleet.mounts, found.fleet.layout or DEFAULT)
    if as_json:
        groups = {
            name: {"peak_cpu": round(cpu, 6), "packed_bytes": size}
            for name, (cpu, size) in by_group(tables).items()
        }
        told = {"groups": groups, "tables": [asdict(one) for one in tables]}
        click.echo(json.dumps(told))
    else:
        click.echo("\n".join(map(escaped, load_as_text(tables).splitlines())))


@fleet.command("plan")
@click.argument("url")
@click.option("--token-file", type=click.Path(), help="As serve's.")
@click.option("--ca", help="As serve's --fleet-ca.")
@click.option("--greedy", is_flag=True, help="Don't ask the solver.")
@click.option("--apply", is_flag=True, help="Carry out the better proposal, as by move.")
@AS_JSON
def plan_command(
    url: str, token_file: str | None, ca: str | None, greedy: bool, apply: bool, as_json: bool
) -> None:
    """Propose which tables of the fleet at URL should move to another group, and say why.

    URL is that of serve's --fleet; all members are asked, as by load. Nothing moves as long as each
    group is below 60 % of a core for each of its servers, and 80 % of their memory. The solver
    needs the extra strandline[plan]; --greedy does without. Nothing is changed without --apply.
    While tables move there is no plan.
    """
    with _refusals(), ExitStack() as opened:
        solver = None if greedy else open_solver()
        statuses, found = _asked(url, token_file, ca)
        seats = {seat.url: seat.group for seat in found.fleet.seats if seat.url in statuses}
        _check_at_rest(found)
        tables = loads_of(statuses, found.fleet.mounts, found.fleet.layout or DEFAULT)
        capacities = capacities_of(statuses, seats)
        _check_served(tables, capacities)
        with native_output_to_stderr():
            made = plan(tables, capacities, solver=solver)
        if not as_json:
            click.echo("\n".join(map(escaped, plan_as_text(made).splitlines())))
        told = {**asdict(made), "better": made.better.algorithm}
        try:
            if apply:
                moves = told["moves"] = []
                state = opened.enter_context(closing(_opened(url)))
                for move in _apply(state, made.better, (lambda _: None) if as_json else _show_move):
                    moves.append(move_overview(Fleet(), move))
        finally:
            # Also of an error's: the moves before it have been carried out.
            if as_json:
                click.echo(json.dumps(told))


@fleet.command()
@click.argument("store_url")
@click.argument("table")
@AS_JSON
def forget(store_url: str, table: str, as_json: bool) -> None:
    """Delete the record of TABLE from the database at STORE_URL, so that it is loaded again.

    STORE_URL is that of serve's --store-url, several separated by commas; the one that has the
    table is used. TABLE is the table's base path. The table itself isn't touched. Servers that
    have it open load it again at the next sync that finds a new instant, or when they need a
    deleted chunk; such a request fails.
    """
    with _refusals():
        _check_table(table)
        table_id = TableId.of(table)
        ring = DatabaseRing(split_urls(store_url))
        url = ring.url_of(table_id)
        with closing(open_database(url, make=False, ring=ring.text)) as database:
            gone = forget_table(database, table_id)
            name = database.name
    if as_json:
        told = {"rows": 0, "blobs": 0} if gone is None else asdict(gone)
        click.echo(json.dumps({"table": str(table_id), **told}))
    elif gone is None:
        click.echo(f"{name} has nothing of {table_id}")
    else:
        click.echo(f"{table_id} is forgotten: {gone.rows} rows and {gone.blobs} blobs are deleted")


@fleet.command()
@click.argument("store_url")
@AS_JSON
def spread(store_url: str, as_json: bool) -> None:
    """Have tables spread over the databases at STORE_URL from now on.

    STORE_URL is that of serve's --store-url, several separated by commas. Servers that are started
    with other databases are refused; those that run aren't disturbed: restart them with these.
    """
    with _refusals():
        ring = DatabaseRing(split_urls(store_url))
        with ExitStack() as opened:
            # All databases are checked before any is changed.
            databases = [
                opened.enter_context(closing(open_database(url))) for url in ring.urls.values()
            ]
            for database in databases:
                database.spread(ring.text)
    if as_json:
        click.echo(json.dumps({"databases": list(ring.urls)}))
    else:
        click.echo(f"tables are spread over {', '.join(ring.urls)}")


@fleet.command("simulate")
@_figure("--servers", click.IntRange(1, MAX_SERVERS), 10, "Servers with a seat.")
@_figure("--tables", click.IntRange(1, MAX_TABLES), 10_000, "Tables, or at depth 2 partitions.")
@_figure("--copies", click.IntRange(1, MAX_COPIES), DEFAULT.copies, "As strandline.fleet.copies.")
@_figure("--depth", click.IntRange(1, MAX_DEPTH), DEFAULT.depth, "As strandline.fleet.depth.")
@_figure("--tokens", click.IntRange(1, MAX_TOKENS), DEFAULT.tokens, "As strandline.fleet.tokens.")
@_figure("--down", Chance(0, 1), 0.01, "Chance that a server is down.")
@click.option(
    "--racks",
    type=click.IntRange(1, MAX_RACKS),
    help="Show instead how --group auto assigns this many racks to groups.",
)
@_figure("--groups", click.IntRange(1, MAX_GROUPS), 4, "Groups, with --racks.")
@AS_JSON
def simulate_command(
    servers: int,
    tables: int,
    copies: int,
    depth: int,
    tokens: int,
    down: float,
    racks: int | None,
    groups: int,
    as_json: bool,
) -> None:
    """Show how even a fleet would be, what moves when a server comes or goes, what fails.

    Tables are placed by the fleet's own ring; nothing is connected to.
    """
    if racks is not None:
        spread_racks = simulate_racks(racks, groups)
        told = json.dumps(asdict(spread_racks)) if as_json else racks_as_text(spread_racks)
        click.echo(told)
        return
    if servers * tokens > MOST_POINTS:
        raise click.UsageError(
            f"--servers {servers} and --tokens {tokens} make {servers * tokens} points of the ring;"
            f" allowed: {MOST_POINTS}"
        )
    found = simulate(servers, tables, Layout(copies, depth, tokens), down)
    click.echo(json.dumps(asdict(found)) if as_json else simulation_as_text(found))


def _asked(
    url: str, token_file: str | None, ca: str | None
) -> tuple[dict[str, dict[str, Any]], FleetRead]:
    """Return address → status of all members, and the fleet.

    Members with another token's mark get no request, as it would show them the token.
    """
    tokens = read_token_file(token_file) if token_file else (None,)
    with closing(_opened(url)) as state:
        found, strangers = of_token(read_fleet(state), [token_mark(each) for each in tokens])
    if strangers and not found.fleet.members:
        given = "has another token than" if token_file else "is missing for"
        raise ConfigError(f"--token-file {given} all members of the fleet; allowed: serve's")
    if strangers:
        told = escaped(", ".join(sorted(strangers)))
        click.echo(f"members of the fleet with another token are ignored: {told}", err=True)
    urls = sorted(member.url for member in found.fleet.members if not member.is_router)
    return {each: _status_of(each, tokens[0], ca) for each in urls}, found


def _check_at_rest(found: FleetRead) -> None:
    """Refuse to plan while tables move, or may move: where they will be is decided already."""
    if found.fleet.moves:
        move = found.fleet.moves[0]
        raise FleetError(
            f"{move} is {move.state.name}; a plan needs a fleet in which no table moves",
            hint="strandline fleet moves shows when it has ended",
        )
    unreadable = _unreadable_moves(found)
    if unreadable:
        raise FleetError(
            f"{unreadable[0]}; a plan needs to know that no table moves",
            hint="strandline fleet moves --undo NUMBER forgets it",
        )


def _unreadable_moves(found: FleetRead) -> list[str]:
    """Return why records of moves can't be read."""
    return [why for key, why in found.unreadable.items() if key.startswith(f"{MOVES}/")]


def _check_served(tables: Iterable[TableLoad], groups: Iterable[GroupCapacity]) -> None:
    """Refuse to plan while tables belong to a group without a server.

    Raises:
        FleetError: There are such tables, or no server has a seat.
    """
    names = {group.name for group in groups}
    if not names:
        raise FleetError("no server of the fleet has a seat; a plan needs at least one")
    for table in tables:
        if table.group not in names:
            raise FleetError(
                f"the group {table.group}, which has {table.table}, has no server; a plan needs at"
                " least one of each",
                hint="start one, or mount its tables on another group",
            )


def _status_of(url: str, token: str | None, ca: str | None) -> dict[str, Any]:
    """Return a server's status with all its tables.

    Raises:
        ServiceError: It can't be reached, refuses, or answers with something else.
    """
    server = KeptConnections(url, ca)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    status: Mapping[str, Any] = {}
    tables: dict[str, Any] = {}
    start: str | None = ""
    while start is not None:
        target = f"{STATUS}?{urlencode({'table': start})}"
        answer = server.exchange(Outgoing("GET", STATUS, target, headers, is_safe=True), Timeouts())
        if answer.status != HTTPStatus.OK:
            raise RemoteFailureError(f"{url} answered {STATUS} with {answer.status}")
        status = checked_status(url, answer.body)
        tables |= status["tables"]
        start, before = status["next_table"], start
        if start is not None and start <= before:
            raise BadAnswerError(f"{url} shows the tables from {before!r} on again and again")
    return {**status, "tables": tables}


def _check_table(table: str) -> None:
    if not table:
        raise ConfigError("the table is empty; allowed: the base path of a table")


def _printable(value: Any) -> Any:
    """Return a value for JSON with all texts escaped: members choose theirs freely."""
    if isinstance(value, str):
        return escaped(value)
    if isinstance(value, list):
        return [_printable(each) for each in value]
    if isinstance(value, dict):
        return {_printable(key): _printable(each) for key, each in value.items()}
    return value


def _opened(url: str) -> StateStore:
    """Open the state store of a fleet that there is."""
    # Its errors are reported once, at the end.
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    return open_state(url, make=False)


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise click.UsageError(escaped(str(error))) from error
    except (FleetError, ServiceError, StoreError) as error:
        raise click.ClickException(escaped(str(error))) from error
