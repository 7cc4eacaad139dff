"""``StreamBatch``: one micro-batch of a streaming query, and whether a table has it already.

Spark numbers a query's batches from 0, and repeats the last one if the query ended before its
checkpoint recorded that batch. So a commit records the batch that it holds, in its extra metadata:

============================== ======================= ========================================
key                             value                   written by
============================== ======================= ========================================
`_hudi_streaming_sink_checkpoint` `{"<identifier>": "<number>"}` Hudi's sink, and this one
`_strandline_streaming_query`   `{"<identifier>": "<query>"}`  this one
============================== ======================= ========================================

A batch is compared with the newest commit that records one of its identifier:

=========================== =========================== ======================================
the commit's query          its number                  the batch
=========================== =========================== ======================================
no such commit                                          is to be written
the same, or Hudi's         smaller                     is to be written
the same, or Hudi's         equal                       is done
the same, or Hudi's         larger                      is refused: the checkpoint is older than
                                                        the table, or another query's
another one                 any                         is refused: its numbers count other rows
=========================== =========================== ======================================

Hudi skips all batches whose number isn't larger. A query with a new checkpoint, whose batches
begin at 0 again, would lose as many of them as the table has. Hudi also doesn't compare batches of
deletes, and knows only commits on the active timeline.

A commit whose completion is in doubt may be the batch, too. Before a batch is compared, it waits
until no such commit of its stream is left (``settled``); one that comes up later conflicts with it.

Source: Hudi 1.2.0 ``HoodieStreamingSink.canSkipBatch``,
``CommitUtils.getValidCheckpointForCurrentWriter``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from strandline.commit.concurrent_operations import batch_in_doubt, was_rolled_back
from strandline.commit.lock.base import Wait
from strandline.commit.others_heartbeats import HeartbeatSettings, is_expired
from strandline.read.state.changed_table import of_one_state
from strandline.records.commit_history import (
    COMMIT_ACTIONS,
    STREAM_BATCH,
    STREAM_QUERY,
    CommitHistory,
)
from strandline.settings.setting import shortened
from timeline.clock import Clock
from timeline.errors import ConfigError, CorruptMetadataError, InstantNotFoundError
from timeline.instant import SAVEPOINT, Instant, State, completed_action
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CommitMetadata, InstantMetadata
from timeline.timeline import Timeline

logger = logging.getLogger(__name__)

_POLL_S: Final = 1.0
"""Time between two listings of the timeline while a commit is in doubt."""
_MOST_DIGITS: Final = 19
"""Most digits of a batch's number, which is a long of Java."""
_SETTING: Final = "hoodie.datasource.write.streaming.checkpoint.identifier"
_OWN_IDENTIFIER: Final = (
    f"give a query with a new checkpoint an identifier of its own by {_SETTING}; its rows are then"
    " written from its first batch on"
)


@dataclass(frozen=True, slots=True)
class RecordedBatch:
    """A micro-batch that a commit records.

    Attributes:
        instant: Requested time of the commit.
        number: Number of the batch.
        query: Id of its query; empty if Hudi wrote it.
    """

    instant: str
    number: int
    query: str = ""


class BatchDoneError(Exception):
    """The table has the batch; nothing was written.

    Args:
        recorded: The commit's record of it.
    """

    def __init__(self, recorded: RecordedBatch) -> None:
        super().__init__(recorded)
        self.recorded = recorded


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """A micro-batch that is to be written.

    Attributes:
        identifier: Identifies the stream in the table's commits.
        number: Number of the batch, from 0.
        query: Id of the query, which its checkpoint keeps.
    """

    identifier: str
    number: int
    query: str

    @property
    def extra_metadata(self) -> dict[str, str]:
        """What the commit of the batch records."""
        return {
            STREAM_BATCH: json.dumps({self.identifier: str(self.number)}),
            STREAM_QUERY: json.dumps({self.identifier: self.query}),
        }

    def is_done(self, recorded: RecordedBatch | None, base_path: str) -> bool:
        """Return whether the table has the batch; otherwise it is to be written.

        Args:
            recorded: The newest record of the identifier.
            base_path: The table's base path, for messages.

        Raises:
            ConfigError: The batch isn't the one that follows, or not of the same query.
        """
        if recorded is None:
            return False
        is_other = recorded.query not in ("", self.query)
        if is_other or self.number < recorded.number:
            of = f" of query {recorded.query}" if recorded.query else ""
            raise ConfigError(
                f"{_SETTING} is {self.identifier!r}, of which commit {recorded.instant} of"
                f" {base_path} has batch {recorded.number}{of}, but this is batch {self.number} of"
                f" query {self.query}; allowed: the identifier of one query, which continues with"
                " its checkpoint",
                hint=_OWN_IDENTIFIER
                if is_other or self.number == 0
                else "the checkpoint is older"
                " than the table; continue with the one that the query used last",
            )
        return self.number == recorded.number

    def leaves_out(self, recorded: RecordedBatch | None) -> str:
        """Return a warning if batches before this one aren't in the table, else ``""``."""
        if recorded is None or self.number <= recorded.number + 1:
            return ""
        return (
            f"batch {self.number} of stream {self.identifier!r} follows batch {recorded.number} in"
            " the table: those in between aren't committed, or were rolled back"
        )


def recorded_batch(
    instant: str, batch: str, query: str, identifier: str, path: str
) -> RecordedBatch | None:
    """Return what a commit records of a stream, if anything.

    Args:
        instant: The commit's requested time.
        batch: Text of the commit's key for batches; empty if it hasn't got it.
        query: That of the key for queries.
        identifier: Identifies the stream.
        path: The commit's file, for messages.

    Raises:
        CorruptMetadataError: A text isn't a JSON object of text, or the number isn't one.
    """
    found = _objects(batch, STREAM_BATCH, path).get(identifier)
    if found is None:
        return None
    # Of other digits, such as Arabic ones, ``int`` makes numbers, too.
    if not (found.isascii() and found.isdigit() and len(found) <= _MOST_DIGITS):
        raise CorruptMetadataError(
            f"{path}: {STREAM_BATCH} gives {identifier!r} batch {shortened(repr(found), 80)};"
            f" allowed: a number of at most {_MOST_DIGITS} digits"
        )
    return RecordedBatch(
        instant, int(found), _objects(query, STREAM_QUERY, path).get(identifier, "")
    )


def _objects(text: str, key: str, path: str) -> Mapping[str, str]:
    if not text:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # the latter for JSON that is nested too deeply
        found = None
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise CorruptMetadataError(
            f"{path}: {key} is {text[:80]!r}; allowed: a JSON object of text"
        )
    return found


def settled(
    meta: TableMetaClient,
    timeline: Timeline,
    identifier: str,
    settings: HeartbeatSettings,
    clock: Clock,
    wait: Wait,
) -> Timeline:
    """Wait until no commit of a stream is in doubt; return the active timeline then.

    Each has completed, was rolled back, or its heartbeat has expired, so that the next write rolls
    it back. If a beat doesn't expire in the time in which beats do, such as one with a time in the
    future, the wait ends nevertheless: the commit then conflicts with the batch.

    Args:
        meta: The table.
        timeline: The active timeline, just read.
        identifier: Identifies the stream.
        settings: When a beat has expired.
        clock: Measures the age of beats.
        wait: Sleeps for a number of seconds.

    Cost: none without pending commits; else, at each poll, a list and three calls for each that is
        inflight.
    """
    deadline = clock.monotonic() + settings.timeout_ms / 1000 + _POLL_S
    is_first = True
    while True:
        in_doubt = batch_in_doubt(
            meta, timeline, identifier, lambda beat: is_expired(beat, clock.now_ms(), settings)
        )
        if in_doubt is None or clock.monotonic() >= deadline:
            return timeline
        if is_first:
            logger.info("stream %r waits until %s is settled", identifier, in_doubt)
            is_first = False
        wait(_POLL_S)
        timeline = meta.active_timeline()


def newest_batch(
    meta: TableMetaClient,
    history: CommitHistory,
    timeline: Timeline,
    identifier: str,
    seen: Timeline | None = None,
) -> RecordedBatch | None:
    """Return the newest record of a stream in a table's completed commits, archived ones included.

    Args:
        meta: The table.
        history: Facts of its commits.
        timeline: The active timeline.
        identifier: Identifies the stream.
        seen: An earlier active timeline: only commits that completed since are looked at.

    Raises:
        CorruptMetadataError: A commit, or the archive, can't be read.
        InstantNotFoundError: A commit's file vanished again and again.

    Cost: a read for each commit that is newer than the record and not in ``history``; the archive
        if the active timeline has no record, or later ones may be archived. With ``seen`` a read
        for each commit since; for each that was pending in it and is gone, those of
        ``was_rolled_back``, and unless it was, of its archived content.
    """
    listed = [timeline]

    def search() -> RecordedBatch | None:
        # Others may have archived or rolled back a commit since the timeline was listed.
        current = listed.pop() if listed else meta.active_timeline()
        if seen is not None:
            return _batch_since(meta, history, seen, current, identifier)
        return _newest_batch(meta, history, current, identifier)

    return of_one_state(search)


def _newest_batch(
    meta: TableMetaClient, history: CommitHistory, timeline: Timeline, identifier: str
) -> RecordedBatch | None:
    found = _active_batch(meta, history, timeline, identifier)
    if found is not None and not _may_hide_later(timeline, found.instant):
        return found
    archive = meta.archived_timeline()
    instants = reversed(archive.timeline.completed().instants)
    commits = (each for each in instants if each.action in COMMIT_ACTIONS)
    archived = _archived_batch(meta, ((i, archive.read(i)) for i in commits), identifier)
    return max(filter(None, (found, archived)), key=_instant, default=None)


def _batch_since(
    meta: TableMetaClient, history: CommitHistory, seen: Timeline, now: Timeline, identifier: str
) -> RecordedBatch | None:
    """Return the newest record of the commits that have completed since ``seen``."""
    known = frozenset(seen.completed())
    new = now.completed().filter(lambda each: each not in known)
    found = _active_batch(meta, history, new, identifier)
    # One that was pending may have completed, and been archived since.
    gone = [
        replace(each, action=completed_action(each.action), state=State.COMPLETED)
        for each in reversed(seen.pending().instants)
        if each.action in COMMIT_ACTIONS
        and now.find(each.requested_time, each.action) is None
        and not was_rolled_back(meta, each, now)
    ]
    if not gone:
        return found
    archived = _archived_batch(meta, _archived(meta, gone), identifier)
    return max(filter(None, (found, archived)), key=_instant, default=None)


def _active_batch(
    meta: TableMetaClient, history: CommitHistory, timeline: Timeline, identifier: str
) -> RecordedBatch | None:
    """Return the newest record of a stream on a timeline; later commits are read."""
    for instant, facts in history.newest_commits(meta, timeline):
        path = f"{meta.storage.base_path}/{meta.path_of(instant)}"
        found = recorded_batch(
            instant.requested_time, facts.stream_batch, facts.stream_query, identifier, path
        )
        if found is not None:
            return found
    return None


def _may_hide_later(timeline: Timeline, time: str) -> bool:
    """Return whether later commits than the one of a time may be archived.

    A savepoint keeps a commit active while later ones are archived. It may be deleted since; then
    its commit is the first one. The newest commit is never archived.
    """
    if timeline.find(time, SAVEPOINT) is not None:
        return True
    writes = timeline.completed().write_timeline()
    first = writes.first
    return first is not None and first.requested_time == time != writes.last_time


def _instant(recorded: RecordedBatch) -> str:
    return recorded.instant


def _archived(
    meta: TableMetaClient, commits: Iterable[Instant]
) -> Iterator[tuple[Instant, InstantMetadata]]:
    """Yield the commits that are archived, with their content."""
    archive = meta.archived_timeline()
    for instant in commits:
        with suppress(InstantNotFoundError):
            yield instant, archive.read(instant)


def _archived_batch(
    meta: TableMetaClient, commits: Iterable[tuple[Instant, InstantMetadata]], identifier: str
) -> RecordedBatch | None:
    """Return the first record of a stream in archived commits, given newest first."""
    where, unknown = f"the archive of {meta.storage.base_path}", 0
    found: RecordedBatch | None = None
    for instant, metadata in commits:
        assert isinstance(metadata, CommitMetadata)
        unknown += metadata == CommitMetadata()
        extra = metadata.extra_metadata
        found = recorded_batch(
            instant.requested_time,
            extra.get(STREAM_BATCH, ""),
            extra.get(STREAM_QUERY, ""),
            identifier,
            f"{where}, instant {instant.requested_time}",
        )
        if found is not None:
            break
    if unknown:
        logger.warning(
            "%d commits in %s are without content; batches of stream %r that they record are"
            " written again",
            *(unknown, where, identifier),
        )
    return found
