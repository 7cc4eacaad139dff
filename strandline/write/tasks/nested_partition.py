"""Refuses nested partitions, because readers don't search for partitions below a partition.

Partition paths have different depths only if a value has a slash that isn't encoded. Of the
partitions ``a`` and ``a/b`` Hudi's listing, and ours, finds only ``a``, so that the rows of ``a/b``
would be committed but neither read nor replaced.

The driver compares the paths of one write before anything is written. A task that opens a partition
compares it with stored partitions. This doesn't detect two writers that open ``a`` and ``a/b`` at
the same time.

Source: Hudi 1.2.0 ``FSUtils.getAllPartitionFoldersThreeLevelsDown``; Hudi doesn't check this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from fsview.load.listing import discover_partitions
from strandline.settings.setting import shortened
from timeline.errors import InputError
from timeline.storage.base import Storage
from timeline.table.partition_metadata import FILE_NAME

_HINT: Final = (
    "hoodie.datasource.write.partitionpath.urlencode=true encodes slashes in the values of a new"
    " table's partition columns"
)
_SHOWN: Final = 400
"""Maximum length of a partition path in a message."""


def refuse_nested(partitions: Collection[str]) -> None:
    """Check that no partition of a write lies below another partition of it.

    Raises:
        InputError: One lies below another; the message names both.

    Cost: linear in the segments of the paths; no request.
    """
    for partition in partitions:
        for above in _above(partition):
            if above in partitions:
                raise _refusal(partition, above, "nothing was written")


def refuse_nested_in_table(storage: Storage, partition: str) -> None:
    """Check that a new partition lies neither below nor above a stored one.

    Args:
        storage: The table's storage.
        partition: A path that had no partition metadata file just before.

    Raises:
        InputError: It lies below or above one; the message names both.

    Cost: a list call, and a stat for each slash of the path.
    """
    failed = "the write has failed"
    for above in _above(partition):
        if storage.stat(f"{above}/{FILE_NAME}") is not None:
            raise _refusal(partition, above, failed)
    for found, _ in discover_partitions(storage, partition):
        # Another task may have opened the same partition, after the same checks.
        if found != partition:
            raise _refusal(found, partition, failed)


def _above(partition: str) -> Iterator[str]:
    """Yield the paths above a partition, without the base path."""
    end = partition.find("/")
    while end != -1:
        yield partition[:end]
        end = partition.find("/", end + 1)


def _refusal(below: str, above: str, outcome: str) -> InputError:
    inner, outer = (shortened(repr(each), _SHOWN) for each in (below, above))
    return InputError(
        f"partition {inner} lies below partition {outer}, where readers don't find it; {outcome}",
        hint=_HINT,
    )
