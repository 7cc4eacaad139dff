"""The servers of a fleet that a client asks about a table, read from the state store."""

from __future__ import annotations

from contextlib import closing

from executor_proxy.seat_ring import DEFAULT, Addresses, addresses
from strandline.fleet.records import read_fleet
from strandline.fleet.state.url import open_state
from timeline.errors import ConfigError
from timeline.storage.table_id import TableId


def servers_of(url: str, base_path: str) -> Addresses:
    """Return the addresses for ``executor_proxy.connect``, the table's owner first.

    Reads the state store once, writes nothing, and asks no server. Seats may move afterwards: any
    server answers about any table, so an old address costs a hop.

    Args:
        url: Of the state store, as ``strandline serve --fleet`` has it.
        base_path: The table's base path in any spelling.

    Raises:
        ConfigError: The URL or the path isn't one, there is no fleet, or none of the seats of the
            table's group has a server.
        FleetError: The store can't be reached, or a record can't be read.
    """
    with closing(open_state(url, make=False)) as state:
        fleet = read_fleet(state).fleet
    table = str(TableId.of(base_path).normal())
    group = fleet.mounts.group(table)
    seats = fleet.rings.get(group, ())
    if fleet.seats and not any(seat.url for seat in seats):
        raise ConfigError(
            f"the group {group}, which has {base_path!r}, has no server; allowed: one or more"
        )
    return addresses(seats, base_path, fleet.mounts.layout(table, fleet.layout or DEFAULT))
