"""``LogRows``: the blocks of one bucket's rows for logs, and a log's statistics.

Rows that delete their keys go to the block of deletes, all others to data blocks. Nothing is
compared with stored rows. A row that removes its record, which moves to another partition, is a
delete without an ordering value: it wins over all older rows.

Source: Hudi 1.2.0 ``HoodieAppendHandle``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from strandline.records.file.log_file_writer import (
    LogBlock,
    LogBlockWriter,
    LogFileSettings,
    deleted_rows,
)
from strandline.records.merge import REMOVES, MergeCounts, Merger, MergeRules
from strandline.records.merge_rule import delete_flags
from strandline.records.meta_fields import RECORD_KEY
from strandline.records.schema.columns import column_of, conform
from strandline.write.tasks.placement import Bucket
from timeline.encoding.delete_block import DeletedRecord
from timeline.metadata.instant_metadata import WriteStat


class LogRows:
    """Makes the blocks of a bucket's rows; used by one thread.

    Args:
        bucket: The bucket.
        rules: Rules of rows that aren't merged into stored ones (``append``).
        avro_schema: The table's schema.
        settings: Settings of logs.
        task_partition: Number of the writing task, part of sequence numbers.
        seqno: First sequence number.

    Attributes:
        seqno: The next sequence number.
    """

    def __init__(
        self,
        bucket: Bucket,
        rules: MergeRules,
        avro_schema: str,
        settings: LogFileSettings,
        task_partition: int,
        seqno: int,
    ) -> None:
        self._bucket = bucket
        self._rules = rules
        self._writer = LogBlockWriter(rules.instant, avro_schema, settings)
        self._task_partition = task_partition
        self.seqno = seqno

    def blocks(self, pieces: Iterable[pa.Table]) -> Iterator[LogBlock]:
        """Yield the blocks of the bucket's rows, each when it is full.

        Args:
            pieces: The rows, as for ``Merger``.
        """
        rules, partition = self._rules, self._bucket.partition
        deletes: list[DeletedRecord] = []
        for piece in pieces:
            deletes += _deletes_in(piece, rules)
            if rules.delete:
                continue
            # In logs the name of a row's file is that of the group.
            merger = Merger(piece, rules, self._bucket.file_id, self._task_partition, self.seqno)
            yield from self._writer.add(merger.created(partition))
            self.seqno = merger.next_seqno
        yield from self._writer.end(deletes, partition)


def _deletes_in(rows: pa.Table, rules: MergeRules) -> list[DeletedRecord]:
    """Return the rows that delete their keys."""
    if rules.delete:
        return deleted_rows(rows.column(RECORD_KEY))
    removes = delete_flags(rows, REMOVES)
    flags = rules.properties.deletes(rows) & ~removes
    found = rows.filter(pa.array(removes)) if removes.any() else rows.slice(0, 0)
    moved = deleted_rows(found.column(RECORD_KEY))
    if not flags.any():
        return moved
    found = rows.filter(pa.array(flags))
    if not rules.event_time:
        return moved + deleted_rows(found.column(RECORD_KEY))
    own = conform(found, rules.schema)
    values = [column_of(own, name) for name in rules.ordering_fields]
    return moved + deleted_rows(found.column(RECORD_KEY), values)


def log_stat(
    bucket: Bucket,
    path: str,
    version: int,
    size: int,
    counts: MergeCounts,
    instant: str,
    taken_ms: int,
) -> WriteStat:
    """Return the commit's statistics of one log."""
    found, name = bucket.slice, path.rpartition("/")[2]
    return WriteStat(
        file_id=bucket.file_id,
        path=path,
        prev_commit=instant if found is None else found.instant,
        num_writes=counts.updates + counts.inserts,
        num_deletes=counts.deletes,
        num_update_writes=counts.updates,
        num_inserts=counts.inserts,
        total_write_bytes=size,
        partition_path=bucket.partition,
        file_size_in_bytes=size,
        log_version=version,
        log_offset=0,
        base_file="" if found is None else found.base_file,
        log_files=(name,) if found is None else (*found.logs, name),
        total_upsert_time=taken_ms,
    )
