"""``SharedStore``: a table's blobs and rows in an SQL database that several servers may share.

``fsview.store.sql.database`` has the tables and what a database must do. The *head* of a table
counts its steps: a step is a commit that changed rows, and has a random stamp. A commit must
continue the head that its server has seen; otherwise it is refused with ``StoreBehindError``. So
rows are always one server's whole view. Step and stamp together reveal a database that fell back to
an earlier step and continued from there.

Several chunks may be made of one handle, as versions of a partition share blobs and a server makes
chunks of rows whenever it adopts them. The store counts them: the blob is forgotten with the last.

A handle has 128 bits: 64 random ones for each opened store, then a counter. None comes twice, even
from a database that fell back.

``fsview.store.sql.upkeep`` deletes unreferenced blobs. The journal reaches back as far as these
are kept.

A step of many rows writes them in several transactions, where no reader sees them
(``Building``), and takes effect in a short one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from secrets import randbits, token_bytes
from typing import Any, ClassVar, Final

from fsview.store.base import Blob, Handle, MakeRows, RecordRows, Store, StoredChunk
from fsview.store.sql.database import Database
from fsview.store.sql.session import (
    LEASE_S,
    CommittedStep,
    CommittedSteps,
    Head,
    NewBlobs,
    Session,
    TableHead,
)
from fsview.store.sql.shared_table import AT_ONCE, STAMP_BYTES, Building, SharedTable
from fsview.store.sql.stored_form import blob_bytes
from fsview.store.sql.upkeep import Deletions
from timeline.errors import BlobLostError, ConfigError, StoreBehindError, StoreError
from timeline.storage.table_id import TableId

logger = logging.getLogger(__name__)

MOVED_AT_ONCE: Final = 1000
"""Most chunks, of some 8 KB, that are moved in one transaction."""
_COUNTER_BITS: Final = 64
_NEVER_SEEN: Final = Head(-1, b"")
_MOST_BATCHES: Final = 5
"""Of rows, in a step that others follow by the journal."""


class SharedStore(Store):
    """See ``Store``; ``Database`` is what kinds of database differ in.

    The lock guards which head was seen and the number of chunks of each handle. A process forked
    from the one that opened it can't use it.

    Attributes:
        table: What the database has of the table.
    """

    kind: ClassVar[str] = "SQL"
    lasts: ClassVar[bool] = True
    waits: ClassVar[bool] = True

    def __init__(
        self,
        database: Database,
        table_id: TableId,
        kept_steps: int = 0,
        *,
        at_once: int = AT_ONCE,
        moved_at_once: int = MOVED_AT_ONCE,
        lease_s: float = LEASE_S,
        wait: Callable[[float], object] = time.sleep,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        """Open the store of a table, or a new one; a database that is away is read later.

        Args:
            database: Its database; must be closed after the store.
            table_id: The table.
            kept_steps: Steps that others may be behind and still find all; 0 if there are none.
            at_once: Rows, or blobs, in one transaction. A step that changes more than five times
                as many, or writes more of them anew, is built before it takes effect.
            moved_at_once: Most new chunks that a step writes in its own transaction; of more, so
                many are moved in each of several before it.
            lease_s: Time that one of these transactions may take before another builds.
            wait: Waits for a number of seconds.
            leads: Returns whether it deletes what isn't needed; otherwise another server does.

        Raises:
            ConfigError: ``kept_steps`` is negative.
        """
        super().__init__()
        if kept_steps < 0:
            raise ConfigError(f"a store that keeps {kept_steps} steps: must be at least 0")
        self.table = SharedTable(database, table_id)
        self._kept_steps = kept_steps
        self.moved_at_once: Final = moved_at_once
        self._lock = threading.Lock()
        self._opener = randbits(_COUNTER_BITS)
        self._counter = count(1)
        self._chunks = ChunkCounts(self.forgotten)
        self._at_once = self._collected_at = at_once
        self._building = Building(
            self.table,
            self._opener.to_bytes(_COUNTER_BITS // 8, "big"),
            at_once=at_once,
            lease_s=lease_s,
            wait=wait,
        )
        self._deletions = Deletions(
            self.table, self._building, kept_steps=kept_steps, at_once=at_once, leads=leads
        )
        try:
            self._seen = self.table.found_or_made().head
        except StoreError as exc:
            # The table is followed without it; nothing is committed before the rows were read.
            logger.warning("%s can't be used yet: %s", self, exc)
            self._seen = _NEVER_SEEN

    def head(self) -> Head:
        """Return the newest step, of whichever server.

        Raises:
            StoreBehindError: The database doesn't have the table any more.
            StoreError: It can't be read.
        """
        return self.table.head().head

    def check(self) -> None:
        """Check that the rows can be read now; a table that the database doesn't have is added.

        Raises:
            StoreError: They can't be read, or the table can't be added.
        """
        self.table.found_or_made()

    def since(self, seen: Head) -> list[CommittedStep]:
        """Return the steps after one that was seen, oldest first.

        Raises:
            StoreBehindError: The database doesn't have it; only ``rows`` has what is recorded.
            StoreError: The journal can't be read.
        """
        with self.table.reading() as session:
            return self.table.since(session, seen)

    def changes(self) -> CommittedSteps | None:
        """Return what others committed since the head that was seen; ``None`` if nothing.

        The head counts as seen only once it is adopted.

        Raises:
            StoreBehindError: The journal doesn't lead there; only all rows have what is recorded.
            StoreError: They can't be read.

        Cost: one transaction, of one statement if there is nothing.
        """
        with self._lock, self.table.reading() as session:
            head, seen = self.table.head_in(session).head, self._seen
            if head == seen:
                return None
            steps = self.table.since(session, seen)
            names = {name for step in steps for name in step.rows}
            found = session.rows(names)
        return CommittedSteps(seen, head, tuple(steps), {name: found.get(name) for name in names})

    def adopt(self, head: Head) -> None:
        """Have the next commit continue a head: what was committed up to there was adopted.

        Chunks of the blobs that its rows name must exist before, or these may be deleted.
        """
        with self._lock:
            self._seen = head

    @property
    def seen(self) -> Head:
        """The head that the next commit continues."""
        return self._seen

    def chunk(self, handle: Handle, size: int) -> StoredChunk:
        """Return a chunk of a handle found in a row; there may be several."""
        with self._lock:
            self._chunks.add([handle])
        return StoredChunk(self, handle, size)

    def held(self, handles: Collection[Handle]) -> set[Handle]:
        """Return those of some handles that have chunks here, as of the last commit."""
        with self._lock:
            return self._chunks.held(handles)

    def rows(self) -> Mapping[str, bytes]:
        """See ``Store``; the next commit continues the head of these rows."""
        # In one step, or a commit of another thread in between would count as another server's.
        with self._lock:
            self._seen, rows = self.table.state()
        return rows

    def get(self, handle: Handle) -> bytes:
        """See ``Store``."""
        return self.table.blob(handle)

    def turn(self) -> AbstractContextManager[bool]:
        """Wait for the turn to read the table's storage; see ``Database.turn``.

        Raises:
            StoreError: The database can't be asked for it.
        """
        return self.table.turn()

    def commit(
        self,
        blobs: Sequence[Blob],
        rows: MakeRows | None = None,
        news: bytes | None = None,
        *,
        anew: bool = False,
        named: Collection[Handle] = (),
    ) -> list[StoredChunk]:
        """See ``Store``; a commit that changes rows is a step.

        Args:
            blobs: The new blobs.
            rows: Makes the changed rows.
            news: What other servers need beside the rows, for the journal. Only with rows.
            anew: Whether these are all rows, and the others go. No journal leads across this.
            named: Blobs committed before without rows, which these rows name. Another server that
                was opened meanwhile has made them garbage.

        Raises:
            StoreBehindError: Another server committed since, or writes as many rows at this moment
                and has done so for half a second; nothing was kept.
            BlobLostError: Some of ``named`` are gone; nothing was kept.
            StoreError: Nothing was kept, or that isn't known: then a next commit with rows is
                refused with the error above.
        """
        self.table.check_open()
        with self._lock:
            handles = [self._new_handle() for _ in blobs]
            # Before the transaction, so that others needn't wait for it.
            changed = {} if rows is None else rows(handles)
            stored = [Blob(blob_bytes(blob.content), blob.near) for blob in blobs]
            added = list(zip(handles, stored, strict=True))
            if changed:
                self._step(added, changed, news, anew=anew, named=named)
            else:
                self._add(added)
            self._chunks.add(handles)
        made = zip(handles, blobs, strict=True)
        return [StoredChunk(self, handle, len(blob.content)) for handle, blob in made]

    def collect(self) -> None:
        """See ``Store``; a server that is behind frees nothing."""
        if not self.forgotten:
            return
        if self.table.is_closed:
            self.forgotten.clear()
            return
        try:
            self.commit([])
        except StoreError as exc:
            logger.warning("forgotten blobs can't be deleted: %s", exc)

    def collect_many(self) -> None:
        """``collect`` if the forgotten blobs fill a transaction.

        For servers that only adopt: what they forget waits for a commit otherwise.
        """
        if len(self.forgotten) >= self._collected_at:
            self.collect()
            # Where that failed, as many again are awaited: it may have waited for long.
            self._collected_at = max(self._at_once, 2 * len(self.forgotten))

    def clear(self) -> None:
        """See ``Store``; this is a step that no server can follow by the journal."""
        with self._lock:
            self._step([], {}, None, anew=True)

    def tidy(self) -> None:
        """Do what another server would have done if it hadn't died; errors are logged."""
        with self._lock:
            self._deletions.tidy()

    def sweep(self, live: Collection[Handle]) -> None:
        """See ``Store``; nothing is deleted before ``kept_steps`` more steps.

        Raises:
            StoreBehindError: Another server committed since, so ``live`` may lack handles.
            StoreError: Some are left.
        """
        with self.table.reading() as session:
            found = session.handles(garbage=False)
        live = frozenset(live)
        orphans = [h for h in found if h not in live and h >> _COUNTER_BITS != self._opener]
        for start in range(0, len(orphans), AT_ONCE):
            with self._lock, self.table.writing() as session:
                self._check_seen(session)
                self._deletions.discard(session, orphans[start : start + AT_ONCE])
            self._deletions.delete_more()
        if orphans:
            logger.info("%d blobs of other processes left %s", len(orphans), self)

    def close(self) -> None:
        """See ``Store``; the database stays open."""
        self.interrupt()
        # What is under way ends with its transaction.
        with self._lock:
            pass

    def interrupt(self) -> None:
        """See ``Store``; deletions end after the transaction that is under way."""
        self.table.close()

    def status(self) -> dict[str, Any]:
        """See ``Store``; without its database, a store has no blobs."""
        try:
            head = self.table.head()
        except StoreError as exc:
            logger.debug("a store has no figures: %s", exc)
            head = TableHead(self._seen, 0, 0)
        figures = {"blobs": head.blobs, "bytes": head.size_bytes, "resident_bytes": 0}
        return {"kind": self.kind, **figures}

    def __str__(self) -> str:
        return str(self.table)

    # Transactions; those that write, with the lock held.

    def _step(
        self,
        blobs: NewBlobs,
        rows: RecordRows,
        news: bytes | None,
        *,
        anew: bool,
        named: Collection[Handle] = (),
    ) -> None:
        """Continue the head that was seen; see ``commit``."""
        to = Head(self._seen.step + 1, token_bytes(STAMP_BYTES))
        if anew:
            rows = {name: row for name, row in rows.items() if row is not None}
        is_built = len(rows) > self._at_once * (1 if anew else _MOST_BATCHES)
        is_untidy = False
        if is_built:
            self._building.write(rows, self._check_seen)
        try:
            with self._chunks.taken(self._at_once) as forgotten, self.table.writing() as session:
                is_untidy = self._check_seen(session).is_untidy
                if is_built:
                    self._building.show(session, anew=anew)
                else:
                    if anew:
                        session.begin_generation()
                    session.change_rows(rows)
                session.add_blobs(blobs)
                self._spare(session, frozenset(named))
                # If all rows have changed, their names don't show the change.
                names = () if anew else tuple(rows)
                session.add_to_journal(CommittedStep(to, names, news))
                session.move_head(to)
                self._deletions.discard(session, forgotten)
                session.trim_journal(to.step if anew else to.step - self._kept_steps)
        except (BlobLostError, StoreBehindError):
            raise
        except StoreError:
            # The answer to a commit can get lost: the stamp shows whether it took effect.
            if not self.table.is_at(to):
                self._building.give_up()
                raise
        self._seen = to
        if is_built or not is_untidy:
            self._building.give_up()
        self._deletions.after_step(to.step, is_built=is_built, anew=anew, is_untidy=is_untidy)
        self._discard_rest()

    def _spare(self, session: Session, named: frozenset[Handle]) -> None:
        there = session.spare(named)
        if there < len(named):
            raise BlobLostError(f"{self} has {there} of {len(named)} blobs that rows are to name")

    def _add(self, blobs: NewBlobs) -> None:
        """Add blobs that no row names, which isn't a step."""
        if not blobs and (self.is_ahead() or not self.forgotten):
            return
        with self._chunks.taken(self._at_once) as forgotten, self.table.writing() as session:
            head = self.table.head_in(session).head
            session.add_blobs(blobs)
            is_newest = not self.is_ahead() and head == self._seen
            if is_newest:
                self._deletions.discard(session, forgotten)
            else:
                # What is seen may be so old that newer rows name what was forgotten.
                self._chunks.give_back(forgotten)
        self._deletions.delete_more()
        if is_newest:
            self._discard_rest(self.is_ahead)

    def _discard_rest(self, is_ahead: Callable[[], bool] = lambda: False) -> None:
        """Make garbage of more forgotten blobs than one transaction does; errors are logged.

        Args:
            is_ahead: As the attribute. Another thread may have gone ahead since the first of them,
                and then have forgotten what rows name.
        """
        try:
            for _ in range(-(-len(self.forgotten) // self._at_once)):
                with (
                    self._chunks.taken(self._at_once) as forgotten,
                    self.table.batch() as session,
                ):
                    if is_ahead():  # after they were taken
                        self._chunks.give_back(forgotten)
                        return
                    self._check_seen(session)
                    self._deletions.discard(session, forgotten)
        except StoreError as exc:
            logger.debug("forgotten blobs of %s wait for the next commit: %s", self, exc)

    def _check_seen(self, session: Session) -> TableHead:
        found = self.table.head_in(session)
        head = found.head
        if head != self._seen:
            raise StoreBehindError(
                f"{self} is at step {head.step} of another server, not at {self._seen.step} as seen"
            )
        return found

    def _new_handle(self) -> Handle:
        return Handle(self._opener << _COUNTER_BITS | next(self._counter))


class ChunkCounts:
    """Counts chunks by handle; a blob is forgotten with its last chunk. Not thread-safe."""

    def __init__(self, forgotten: deque[Handle]) -> None:
        """Count none.

        Args:
            forgotten: Handles whose chunks have ended; other threads append to it at any time.
        """
        self._forgotten = forgotten
        self._counts: Counter[Handle] = Counter()

    def add(self, handles: Collection[Handle]) -> None:
        """Count another chunk of each handle."""
        self._counts.update(handles)

    def held(self, handles: Collection[Handle]) -> set[Handle]:
        """Return those that have a chunk, or had one at the last commit."""
        return {handle for handle in handles if handle in self._counts}

    @contextmanager
    def taken(self, most: int) -> Iterator[list[Handle]]:
        """Yield handles without chunks, which are forgotten still if the body raises.

        Args:
            most: Ends of chunks that are counted, the oldest first.
        """
        taken = []
        # Other threads append meanwhile: what they add waits for the next commit.
        for _ in range(min(len(self._forgotten), most)):
            handle = self._forgotten.popleft()
            self._counts[handle] -= 1
            if self._counts[handle] <= 0:
                del self._counts[handle]
                taken.append(handle)
        try:
            yield taken
        except BaseException:
            self.give_back(taken)
            raise

    def give_back(self, handles: Collection[Handle]) -> None:
        """Count a chunk of each handle that is forgotten: another may be made of it."""
        self._counts.update(handles)
        self._forgotten.extend(handles)
