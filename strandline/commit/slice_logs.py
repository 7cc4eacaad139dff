"""Logs that are named by their slice, as in table version 6, when their write fails or repeats.

From version 8 on the name of a log has the instant that wrote it, so views leave it out until that
instant completes, and it is deleted like a base file. In version 6 it has the base instant of its
slice: views show it from its first listing on, and know nothing of its deletion. So a log that a
write doesn't report isn't deleted but emptied, which readers of old and new listings accept, unless
another write has appended to it, as Hudi does on HDFS.

Source: Hudi 0.15.0 ``HoodieAppendHandle``, ``HoodieLogFormatWriter``. Hudi leaves such logs, so
readers see the blocks of repeated attempts, too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from zlib import crc32

from fsview.model.file_group import FileSlice
from strandline.read.logs.log_blocks import read_log
from strandline.server.marker.name import is_slice_log
from timeline.encoding.log_block import INSTANT_TIME, TornBlock, scan_blocks
from timeline.errors import PathNotFoundError, StorageError
from timeline.storage.base import Storage

logger = logging.getLogger(__name__)


def slice_log_token(write_token: str, instant: str) -> str:
    """Return the write token of a log that is named by its slice: no other write has its name.

    Dead writers leave logs that a view doesn't know, so the next writer may choose their version;
    and tasks of another process may have the same numbers.

    Args:
        write_token: Token of a task attempt, ``<partition>-<stage>-<attempt>``.
        instant: Requested time of the write.
    """
    partition, stage, attempt = write_token.split("-")
    # Java reads an ``int``.
    return f"{partition}-{crc32(f'{instant} {stage}'.encode()) % 10**9}-{attempt}"


def instants_in(storage: Storage, path: str) -> frozenset[str]:
    """Return the instants that wrote the whole blocks of a log, ``""`` for a block without one.

    Raises:
        PathNotFoundError: There is no such file.
        StorageError: It can't be read.
    """
    found = scan_blocks(read_log(storage, path))
    blocks = (block for block in found if not isinstance(block, TornBlock))
    return frozenset(block.header.get(INSTANT_TIME, "") for block in blocks)


def is_emptied(found: FileSlice) -> bool:
    """Return whether a slice has only logs that writes have emptied.

    The clean that deleted its base file didn't know them.
    """
    return found.base_file is None and {log.size for log in found.log_files} == {0}


def take_back(storage: Storage, instant: str, paths: Iterable[str]) -> None:
    """Delete files that a write has created and doesn't report; empty logs named by their slice.

    Args:
        storage: The table's storage.
        instant: Requested time of the write.
        paths: The files, under the base path; missing ones are fine.

    Raises:
        StorageError: A file stays; those after it were tried nevertheless, as each makes room.

    Cost: a delete, and for each such log a read and a replacement.
    """
    own, of_slices = list[str](), list[str]()
    for path in paths:
        (of_slices if is_slice_log(path, instant) else own).append(path)
    if own:
        storage.delete_all(own)
    failure: StorageError | None = None
    for path in of_slices:
        try:
            _empty(storage, instant, path)
        except StorageError as error:
            failure = failure or error
    if failure is not None:
        raise failure


def _empty(storage: Storage, instant: str, path: str) -> None:
    """Empty a log of a write, unless another write has appended to it."""
    try:
        writers = instants_in(storage, path)
    except PathNotFoundError:
        return
    if writers <= {instant}:
        storage.replace(path, b"")
    else:
        others = sorted(writers - {instant})
        logger.warning("%s stays, as instant %s has appended to it", path, others[0])
