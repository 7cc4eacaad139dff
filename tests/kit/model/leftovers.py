"""What failed attempts at tasks leave, and attempts that nobody waited for write."""

from __future__ import annotations

from tests.kit.model.table import ModelTable, Write
from tests.kit.model.truth import DataFile
from timeline.table.partition_metadata import write_partition_metadata


def write_again(table: ModelTable, write: Write, partition: str | None = None) -> None:
    """Leave what an earlier attempt at the task of a write's last file wrote.

    In another partition than the task's own it was a new group: rows may be dealt out otherwise
    when they are computed anew. Logs of version 6 that a failed attempt wrote stay: nothing tells
    them from others.
    """
    file = write.files[-1]
    logs = table.truth.logs_by_completion
    if partition is not None and partition != file.partition:
        name = f"{table.new_file_id()}_0-0-{table.count()}_{write.time}.parquet"
        if logs and file.order is not None:
            name = f".{table.new_file_id()}_{write.time}.log.1_0-0-{table.count()}"
        path = f"{partition}/{name}"
        write_partition_metadata(table.storage, partition, write.time)
    elif file.order is None or logs:
        path = file.path.replace("_0-1-", "_0-0-")
    else:
        return
    table.storage.create(path, b"again")
    write.leftovers.append(path)


def clear(table: ModelTable, write: Write) -> None:
    """Delete what failed attempts left, as is done before a write completes."""
    for path in write.leftovers:
        table.storage.delete(path)
    write.leftovers.clear()


def write_late(table: ModelTable, file: DataFile, token: str) -> None:
    """Let an attempt that nobody waited for write a base file once more.

    Args:
        table: The table.
        file: The one that the commit names.
        token: How the other's write token begins, for ``0-1-`` in its own.
    """
    path = file.path.replace("_0-1-", f"_{token}")
    table.storage.create(path, b"late")
    table.doubles[file.path] = path
