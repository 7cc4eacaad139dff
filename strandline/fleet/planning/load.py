"""The load of a fleet's tables, from what its servers' statuses say; pure.

Each server knows what it took itself (``strandline.server.table_threads``). A table's load is the
sum over all servers, of peaks that needn't have been at one time, so at least its peak. A server
that answers in another group's place counts for the table's own group, where the load belongs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from executor_proxy.seat_ring import Layout
from strandline.fleet.mounts import MountTable
from strandline.fleet.planning.placement import GroupCapacity, TableLoad
from timeline.encoding.json_text import bounded_loads
from timeline.errors import BadAnswerError, FleetError
from timeline.storage.table_id import TableId

_HEAD: Final = ("group", "table", "CPU peak", "MB")


def checked_status(url: str, body: bytes) -> Mapping[str, Any]:
    """Return a server's status, which has what plans need of it.

    Args:
        url: Names the server in errors.
        body: The answer to ``GET /v1/strandline/status``, with some of its tables.

    Raises:
        BadAnswerError: It is no such status: something else answers there.
        FleetError: It lacks a table's load, as one of a server without a fleet.
    """
    try:
        status: Mapping[str, Any] = bounded_loads(body)
        named = status["next_table"] is None or isinstance(status["next_table"], str)
        fits = named and _is_number(status["store"]["budget"]["limit_bytes"])
        for name, told in status["tables"].items():
            if "load" not in told:
                raise FleetError(f"{url} doesn't tell the load of its tables: it has no fleet")
            numbers = told["load"]["peak_cpu"], told["packed_bytes"]
            fits = fits and bool(name) and all(map(_is_number, numbers))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadAnswerError(f"{url} returned no status of a server: {error!r}") from error
    if not fits:
        raise BadAnswerError(f"{url} returned a status with other values than numbers and names")
    return status


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf  # type: ignore[operator]


def loads_of(
    statuses: Mapping[str, Mapping[str, Any]], mounts: MountTable, layout: Layout
) -> tuple[TableLoad, ...]:
    """Return what each table takes, in the order of their names.

    Args:
        statuses: Address → the status of the server, see ``checked_status``.
        mounts: The fleet's mounts. Tables that one spreads by their partitions are fixed.
        layout: How tables without a mount are placed.
    """
    loads: defaultdict[str, float] = defaultdict(float)
    packed: dict[str, int] = {}
    for status in statuses.values():
        for name, told in status["tables"].items():
            table = str(TableId.of(name).normal())
            loads[table] += told["load"]["peak_cpu"]
            packed[table] = max(packed.get(table, 0), told["packed_bytes"])
    found = []
    for table in sorted(loads):
        mount, placed = mounts.mount(table), mounts.layout(table, layout)
        found.append(
            TableLoad(
                table,
                mounts.group(table),
                round(loads[table], 6),
                packed[table],
                placed.copies,
                mounted=mount is not None and mount.prefix == table,
                fixed=placed.depth > 1,
            )
        )
    return tuple(found)


def capacities_of(
    statuses: Mapping[str, Mapping[str, Any]], group_of: Mapping[str, str]
) -> tuple[GroupCapacity, ...]:
    """Return the memory of the groups' servers.

    Args:
        statuses: As of ``loads_of``.
        group_of: Address → group, of the servers with a seat; others get no tables.
    """
    memory: defaultdict[str, list[int]] = defaultdict(list)
    for url, group in sorted(group_of.items()):
        memory[group].append(statuses[url]["store"]["budget"]["limit_bytes"])
    return tuple(GroupCapacity(name, tuple(sizes)) for name, sizes in sorted(memory.items()))


def by_group(tables: Iterable[TableLoad]) -> dict[str, tuple[float, int]]:
    """Return group → CPU seconds a second, and bytes of one copy, of all its tables."""
    found: dict[str, tuple[float, int]] = {}
    for one in tables:
        load, size = found.get(one.group, (0.0, 0))
        found[one.group] = load + one.load, size + one.packed_bytes
    return dict(sorted(found.items()))


def as_text(tables: Iterable[TableLoad]) -> str:
    """Return lines of text: the groups, then the tables from the busiest on."""
    rows = sorted(tables, key=lambda one: (-one.load, one.table))
    groups = by_group(rows)
    lines = [_HEAD]
    lines += [(name, "(all)", *_figures(*took)) for name, took in groups.items()]
    lines += [(one.group, one.table, *_figures(one.load, one.packed_bytes)) for one in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(2)]
    return "\n".join(
        f"{group:<{widths[0]}}  {table:<{widths[1]}}  {cpu:>8}  {mb:>8}"
        for group, table, cpu, mb in lines
    )


def _figures(load: float, size: int) -> tuple[str, str]:
    return f"{load:.4f}", f"{size / 1e6:.1f}"
