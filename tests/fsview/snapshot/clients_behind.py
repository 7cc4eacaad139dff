"""Tables and clients that know an earlier timeline."""

from __future__ import annotations

from fsview.table_view import TableView
from tests.kit.tables.model import writes
from tests.kit.tables.model.asking import Pin
from tests.kit.tables.model.table import ModelTable

Known = tuple[str, str]
"""Last instant and hash of a client's timeline."""


def known_now(table: ModelTable) -> Known:
    """Return the last instant and the hash of a client that reads the timeline now."""
    pin = Pin.of(table)
    return pin.last_instant, pin.timeline_hash


def upsert(table: ModelTable, group: tuple[str, str] = ("a", "g0-0")) -> None:
    writes.complete(table, writes.begin(table, [(group, "base")]))


def calls(view: TableView, cause: str) -> int:
    return sum(n for (_, booked), n in view.storage.calls.snapshot().items() if booked == cause)
