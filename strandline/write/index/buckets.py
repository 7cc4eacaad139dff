"""``stored_buckets``: the files of a partition of a bucket index, by bucket.

Source: Hudi 1.2.0 ``HoodieSimpleBucketIndex.loadBucketIdToFileIdMappingForPartition``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from strandline.write.index.bucket_number import bucket_of
from strandline.write.options.index_settings import BUCKET, BUCKETS, INDEX_TYPE
from strandline.write.tasks.placement import StoredFile
from timeline.errors import UnsupportedTableError

_LIKELY_BUCKETS: Final = 10_000
"""Above any sensible number of buckets: two in a million UUIDs begin with a number below it."""


def stored_buckets(
    partition: str, files: Iterable[StoredFile], buckets: int
) -> Mapping[int, StoredFile]:
    """Return bucket → the newest base file of its file group.

    Args:
        partition: The partition path.
        files: Its newest base files.
        buckets: Number of buckets of a partition.

    Raises:
        UnsupportedTableError: A file id names no bucket, one that is too great, or the bucket of
            another file.
    """
    found: dict[int, StoredFile] = {}
    for file in files:
        bucket = bucket_of(file.file_id)
        if bucket is None:
            raise UnsupportedTableError(
                f"file {file.name} of partition {partition!r} isn't one of a bucket index",
                hint=f"leave {INDEX_TYPE.name}={BUCKET} out, or write to another base path",
            )
        if bucket >= buckets:
            raise UnsupportedTableError(
                f"file {file.name} of partition {partition!r} has bucket {bucket}, but"
                f" {BUCKETS.name} is {buckets}",
                hint="set the number of buckets that the table was created with",
            )
        other = found.setdefault(bucket, file)
        if other is not file:
            raise UnsupportedTableError(
                f"files {other.name} and {file.name} of partition {partition!r} have the same"
                f" bucket, {bucket}",
                hint="roll back the commit that opened the second file group; bulk inserts of"
                " Hudi's do so",
            )
    return found


def refuse_bucket_files(partition: str, files: Iterable[StoredFile]) -> None:
    """Refuse a partition whose files are all a bucket index's, for a writer with another index.

    Hudi stores nowhere that a table has a bucket index, but its file ids begin with small numbers.

    Raises:
        UnsupportedTableError: They are.
    """
    numbers = [bucket_of(file.file_id) for file in files]
    if numbers and all(each is not None and each < _LIKELY_BUCKETS for each in numbers):
        raise UnsupportedTableError(
            f"the files of partition {partition!r} are those of a bucket index, which another index"
            " would break",
            hint=f"set {INDEX_TYPE.name}={BUCKET} and {BUCKETS.name} as when it was created",
        )
