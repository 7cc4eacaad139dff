"""``ArchivedFiles``: one instant to be archived, with the files of its states; their contents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from timeline.instant import Instant, State, completed_action
from timeline.meta_client import TableMetaClient
from timeline.threads import in_context

Key = tuple[str, str]
"""Requested time and completed action."""
AHEAD: Final = 8
"""Instants whose files each thread reads before they are needed."""


@dataclass(frozen=True, slots=True)
class ArchivedFiles:
    """The files of one completed instant on the active timeline.

    Attributes:
        completed: The completed files, the one that completed last first; more than one if two
            writers completed the instant.
        pending: The requested and inflight files, in this order.
    """

    completed: tuple[Instant, ...]
    pending: tuple[Instant, ...]

    @property
    def instant(self) -> Instant:
        """The completed instant."""
        return self.completed[0]

    def pending_in(self, state: State) -> Instant | None:
        """Return the pending file of a state."""
        return next((each for each in self.pending if each.state is state), None)


def key_of(instant: Instant) -> Key:
    """Return what identifies an instant in the archive."""
    return instant.requested_time, completed_action(instant.action)


def files_by_key(files: Iterable[Instant]) -> dict[Key, ArchivedFiles]:
    """Group the timeline's files by instant; instants without a completed file are left out."""
    grouped: dict[Key, list[Instant]] = {}
    for each in files:
        grouped.setdefault(key_of(each), []).append(each)
    found: dict[Key, ArchivedFiles] = {}
    for key, group in sorted(grouped.items()):
        done = [each for each in group if each.is_completed]
        if done:
            done.sort(key=lambda each: each.completion_time or "", reverse=True)
            left = sorted((i for i in group if not i.is_completed), key=lambda i: i.state.rank)
            found[key] = ArchivedFiles(tuple(done), tuple(left))
    return found


def contents(
    meta: TableMetaClient, files: Sequence[ArchivedFiles], threads: int
) -> Iterator[Mapping[Instant, bytes]]:
    """Yield the contents of each instant's files, in order; of a completed one that counts.

    Contents of at most ``AHEAD`` instants a thread are in memory.

    Raises:
        InstantNotFoundError: A file is gone: somebody without the table's lock archived it.
    """

    def read(each: ArchivedFiles) -> dict[Instant, bytes]:
        states = (*each.pending, each.instant)
        return {state: b"" if state.size_bytes == 0 else meta.read_bytes(state) for state in states}

    if threads <= 1 or len(files) <= 1:
        yield from map(read, files)
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="strandline-archive") as pool:
        for start in range(0, len(files), AHEAD * threads):
            yield from pool.map(in_context(read), files[start : start + AHEAD * threads])


def delete_files(meta: TableMetaClient, files: Sequence[ArchivedFiles], threads: int) -> None:
    """Delete the files of archived instants.

    Pending files go first: alone they would look like a pending instant. Then the completed ones,
    ascending and one by one, so that no reader sees a timeline with a hole.

    Cost: a delete for each file; on S3 one for 1,000 pending files, and one for each completed one.
    """
    pending = [instant for each in files for instant in each.pending]
    if not meta.storage.has_directories:
        meta.delete_instant_files(pending)
    elif threads <= 1 or len(pending) <= 1:
        for instant in pending:
            meta.delete_instant_file(instant)
    else:
        with ThreadPoolExecutor(threads, thread_name_prefix="strandline-archive") as pool:
            for _ in pool.map(in_context(meta.delete_instant_file), pending):
                pass
    for each in sorted(files, key=lambda each: each.instant.sort_key):
        for instant in each.completed:
            meta.delete_instant_file(instant)
