"""``forget``: has servers load a table anew that a database has a record of.

The record goes in one step: a new generation without rows. Its rows and blobs are deleted after it,
in several transactions. Whoever forgets the table again goes on where another died.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from secrets import token_bytes

from fsview.store.sql.batches import delete_all, delete_old_blobs, delete_old_rows
from fsview.store.sql.database import CommittedStep, Database, Head
from fsview.store.sql.shared_table import STAMP_BYTES
from timeline.storage.table_id import TableId


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was deleted.

    Attributes:
        rows: Number of rows.
        blobs: Number of blobs.
    """

    rows: int
    blobs: int


def forget(database: Database, table_id: TableId) -> Forgotten | None:
    """Delete what a database has of a table; ``None`` if that is nothing.

    Servers that have the table open find that out at the next sync that sees a new instant, and
    load it anew. Until then they answer from memory. Where they need a blob that is gone, they load
    the table anew at once, and the request fails.

    Raises:
        StoreError: Some of it is left. Servers use none of it if it was begun.
    """
    with database.reading(table_id) as session:
        if not (session.has_contents() or (session.head() and session.has_leftovers())):
            return None
    # Also without rows: blobs may be of this generation, and their servers must not commit more.
    with database.writing(table_id) as session:
        found = session.head() or session.make_head(token_bytes(STAMP_BYTES))
        to = Head(found.head.step + 1, token_bytes(STAMP_BYTES))
        session.begin_generation()
        session.add_to_journal(CommittedStep(to, (), None))
        session.move_head(to)
        session.trim_journal(to.step)
    writing = partial(database.batch, table_id)
    return Forgotten(delete_all(writing, delete_old_rows), delete_all(writing, delete_old_blobs))
