"""The newest base files of a table or of partitions, as the driver's view gives them."""

from __future__ import annotations

from fsview.model.file_system_view import FileSystemView
from fsview.model.lookup_query import LookupQuery
from strandline.write.tasks.placement import StoredFile


def all_stored_files(view: FileSystemView) -> tuple[StoredFile, ...]:
    """Return the newest base files of the table."""
    view.load_all_partitions()
    files = sorted(view.all_latest_base_files(), key=lambda file: file.path)
    return tuple(StoredFile(file.partition, file.file_id, file.name, file.size) for file in files)


def stored_files(view: FileSystemView, partitions: tuple[str, ...]) -> tuple[StoredFile, ...]:
    """Return the newest base files of partitions, from one look-up."""
    if not partitions:
        return ()
    (answers,) = view.look_up([LookupQuery("latest_base_files", partitions)])
    return tuple(
        StoredFile(partition, file.file_id, file.name, file.size)
        for partition, files in zip(partitions, answers, strict=True)
        for file in files
    )
