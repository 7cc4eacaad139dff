"""The files that a pending write may have created, by its markers or by listing the table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fsview.model.file_group import BaseFile
from fsview.model.file_name import data_files
from fsview.snapshot.plans import base_extensions
from strandline.commit.markers import marked_files
from timeline.instant import Instant, State
from timeline.meta_client import TableMetaClient
from timeline.storage.base import FileInfo
from timeline.table.config import META_FOLDER


def files_of_pending(meta: TableMetaClient, instant: Instant) -> Iterable[str]:
    """Return the paths of the files that a pending write may have created.

    Cost: a tree list of its marker folder; one of the table if there is no such folder.
    """
    # A requested instant has no data files yet.
    if instant.state is not State.INFLIGHT:
        return ()
    marked = marked_files(meta.storage, instant.requested_time)
    # Without a marker folder the instant comes from an older writer, or its temporary folder
    # was wiped; only a listing tells then.
    return _listed_files(meta, instant.requested_time) if marked is None else marked


def _listed_files(meta: TableMetaClient, instant: str) -> list[str]:
    """Return the paths of an instant's base files, found by listing the table."""
    folders: dict[str, list[FileInfo]] = {}
    for info in meta.storage.list_tree(""):
        folder, _, name = info.name.rpartition("/")
        folders.setdefault(folder, []).append(replace(info, name=name))
    extensions = base_extensions(meta.config)
    return [
        file.path
        for folder, listing in folders.items()
        if folder.partition("/")[0] != META_FOLDER
        for file in data_files(folder, listing, extensions)
        if isinstance(file, BaseFile) and file.instant == instant
    ]
