"""Files of failed task attempts, and of late attempts that no commit names."""

from __future__ import annotations

from tests.kit.tables.model.table import ModelTable, Write
from tests.kit.tables.model.truth import DataFile
from timeline.table.partition_metadata import write_partition_metadata


def write_again(table: ModelTable, write: Write, partition: str | None = None) -> None:
    """Write the file that a failed attempt at the last file's task left.

    In a partition other than the task's own it is a new group, as rows may be distributed
    differently when they are recomputed. Logs of version 6 are skipped: nothing tells those of a
    failed attempt from others.
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
    """Delete the leftovers of a write, as Hudi does before it completes."""
    for path in write.leftovers:
        table.storage.delete(path)
    write.leftovers.clear()


def write_late(table: ModelTable, file: DataFile, token: str) -> None:
    """Write a base file a second time, as a late attempt would.

    Args:
        table: The table.
        file: The file that the commit names.
        token: The prefix of the late attempt's write token, in place of ``0-1-``.
    """
    path = file.path.replace("_0-1-", f"_{token}")
    table.storage.create(path, b"late")
    table.doubles[file.path] = path
