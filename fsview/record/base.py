"""``Record``: what is kept of a table for the next process and for other servers.

``TableState`` has one, and calls it under its lock. There are three:

* ``NoRecord``, for a view that ends with its caller (a scan, a clean): nothing is kept;
* ``OwnRecord`` (``fsview.record.own``), in a store of this server's, in memory or on disk;
* ``SharedRecord`` (``fsview.record.shared``), in a database from which other servers adopt it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fsview.files.partition import PartitionVersion
from fsview.record.status import JournalEntry, RecordStatus
from fsview.snapshot.history import History
from fsview.snapshot.snapshot import Snapshot
from fsview.snapshot.timeline_change import TimelineChange
from timeline.completion import CompletionTimes
from timeline.errors import StoreError
from timeline.timeline import Timeline

if TYPE_CHECKING:  # a table without a record loads nothing of this
    from fsview.record.journal import Adopted, Told

Unfinished = Mapping[str, Collection[str]]
"""Requested time of an instant in flight → partitions that were listed with files of it."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What an earlier process recorded.

    Attributes:
        snapshot: Without completion times, which the table's timeline has.
        unfinished, must_list, outdated: As of ``Record``.
    """

    snapshot: Snapshot
    unfinished: Unfinished
    must_list: bool
    outdated: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Saving:
    """What is to be recorded.

    Attributes:
        snapshot: The newest.
        touched: The partitions that differ from the snapshot recorded before; ``None``: all.
        unfinished: As of ``Record`` from now on.
        also: Versions of other snapshots whose chunks are kept, too.
        news: What other servers need beside the rows that change; ``None``: all rows.
    """

    snapshot: Snapshot
    touched: Collection[str] | None
    unfinished: Unfinished
    also: Iterable[PartitionVersion] = ()
    news: Sequence[JournalEntry] | None = ()


class Record(ABC):
    """The record of one table; not thread-safe.

    What isn't abstract is as of a table of which nothing is kept, and which no other server has.

    Attributes:
        lasts: Whether what is kept outlives the process.
        waits: Whether reading a chunk may wait for another machine or process.
        unfinished: Requested time of an instant in flight → partitions that were listed with files
            of it.
        must_list: Whether partitions are to be listed even where reading metadata would pay, since
            storage was found not to be what metadata says; saved with the next snapshot.
        outdated: (Requested time, action) of what had completed when the table was upgraded last,
            as far as that was seen; saved with the next snapshot.
        status: How the table's state compares with the record and with the timeline.
        failure: Why the table is followed in memory; ``None``: it isn't.
        is_closed: Whether the store is closed, or will be at once.
    """

    lasts: bool = False
    waits: bool = False

    def __init__(self) -> None:
        self.unfinished: Unfinished = {}
        self.must_list = False
        self.outdated: frozenset[tuple[str, str]] = frozenset()
        self.status = RecordStatus()
        self.failure: str | None = None
        self.is_closed = False

    # Keeping.

    @abstractmethod
    def keep(self, *versions: PartitionVersion) -> None:
        """Keep the chunks of versions that no restart needs.

        What a store that lasts doesn't take stays in memory.

        Raises:
            StoreError: Nothing was kept, and memory has no room either.
        """

    @abstractmethod
    def save(self, saving: Saving, *, alone: bool = False) -> None:
        """Record a snapshot, and keep its new chunks.

        If a store that lasts fails, only memory has it until the next save.

        Args:
            saving: The snapshot, and what is new in it.
            alone: Whether to record nothing for now, if others are there.

        Raises:
            StoreBehindError: Others have recorded something since; nothing has changed.
            StoreError: The record is as before, nothing was kept, and memory has no room either.
        """

    def save_rest(self, newest: Snapshot) -> None:  # noqa: B027 - nothing is kept
        """Record what was kept in memory, if there is anything and the store accepts it again.

        Args:
            newest: The newest snapshot.

        Raises:
            StoreBehindError: As ``save``.
        """

    def read(self) -> Recorded | None:
        """Return what is recorded; ``None`` when that is nothing.

        Until something is saved, it is the same each time. What can't be read is cleared before
        something else is saved.

        Raises:
            RecordLostError: The rows can't be read, or are of another table or format.
            StoreError: The store is unavailable. All rows are rewritten once it is there.
        """
        return None

    def received(self, pieces: Iterable[bytes], most_bytes: int) -> Recorded:
        """Return what another server has sent, whose chunks are kept from now on.

        It may be called without the lock, and before the table is read first.

        Args:
            pieces: The stream (``fsview.record.stream``).
            most_bytes: Most bytes that its frames may take.

        Raises:
            BadAnswerError: It is too long, torn, damaged, or of another table or release. Nothing
                has changed, then as with the other errors.
            StoreError: The store can't keep it, or there is none.
            ServiceError: As ``pieces``.
        """
        raise StoreError("the table has no store that could keep a record")

    def take(self, recorded: Recorded) -> None:
        """Record what ``received`` returned.

        Raises:
            StoreError: As ``save``; nothing has changed.
        """
        raise StoreError("the table has no store that could keep a record")

    def sweep(self) -> None:  # noqa: B027 - as above
        """Delete, once, blobs that crashes left in the store and that the record doesn't name."""

    def is_damaged(self, why: StoreError) -> bool:
        """Whether chunks that the record names are lost; else a read failed, or it is behind.

        Args:
            why: What reading a chunk raised.
        """
        return True

    # Other servers that share the store.

    def turn(self) -> AbstractContextManager[object]:
        """Wait, at most a short time, while another server reads new instants.

        Raises:
            StoreError: The store can't be asked; not at the end of the block.
        """
        return nullcontext()

    def news_of(
        self, change: TimelineChange, unclear: Collection[str], before: Timeline
    ) -> tuple[JournalEntry, ...]:
        """Return what others need of a change; arguments as of ``journal_entry_of``."""
        return ()

    def told(self, newest: Snapshot) -> Told | None:
        """Return what others have committed since, and the newest snapshot's rows.

        ``None`` if nothing.

        Raises:
            StoreBehindError: It must be read whole.
            StoreError: It can't be read.
        """
        return None

    def adopted(
        self,
        history: History,
        told: Told,
        completion: Callable[[Timeline], CompletionTimes],
        *,
        kept: int,
    ) -> Adopted | None:
        """Return the history after what others committed; see ``fsview.record.journal.adopted``.

        ``None`` if this server has saved or adopted something since it was read.

        Raises:
            StoreBehindError: It doesn't follow from this history: the record must be read whole.
        """
        return None

    def adopt(  # noqa: B027 - as above
        self, told: Told, snapshot: Snapshot, unshown: Mapping[str, PartitionVersion]
    ) -> None:
        """Continue what others committed.

        Args:
            told: The changes that they committed.
            snapshot: Holds the chunks that their rows name.
            unshown: Partitions whose chunks it doesn't hold.
        """

    def collect_many(self) -> None:  # noqa: B027 - as above
        """Free forgotten chunks if there are many; waits for the database."""

    # What it takes.

    def warn(self, why: StoreError) -> None:  # noqa: B027 - as above
        """Log that the table is followed in memory, once until something is recorded or adopted."""

    @property
    def spare_bytes(self) -> int:
        """Size of the chunks that are kept in memory as the store can't take them."""
        return 0

    def figures(self) -> dict[str, Any]:
        """Return figures about the store, fit for JSON."""
        return {}

    def collect(self) -> None:  # noqa: B027 - as above
        """Free the memory of chunks that aren't needed any more; waits for no other server."""

    def end(self) -> None:
        """Have work under way end soon, as the store is closed next; doesn't wait."""
        self.is_closed = True

    def release(self) -> None:  # noqa: B027 - as above
        """Free the memory of all chunks that wait there for a store."""

    def close(self) -> None:  # noqa: B027 - as above
        """Close the store; called without the lock, after ``release``."""


class NoRecord(Record):
    """For a table of which nothing is kept: its chunks stay in memory."""

    def keep(self, *versions: PartitionVersion) -> None:
        """See ``Record``."""

    def save(self, saving: Saving, *, alone: bool = False) -> None:
        """See ``Record``."""
        self.unfinished = saving.unfinished
