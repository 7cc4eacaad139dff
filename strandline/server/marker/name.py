"""Names of markers: ``[<partition>/]<data file>.marker.<kind>``, and which a write may create.

======  ==========================================================  ==================
kind    what it announces                                           instant in the name
======  ==========================================================  ==================
CREATE  a group's first base file; from table version 8 on any log  the write's own
MERGE   a group's next base file                                    the write's own
APPEND  a log, before table version 8                               its base file's
======  ==========================================================  ==================

Hudi deletes the file that a CREATE or MERGE marker names without further checks: in a rollback,
and at the commit if the commit doesn't report the file. So a marker of these kinds that names
another write's file would destroy it, and is refused by its name alone.

A write may name another instant in one case: while a clustering resizes the buckets of consistent
hashing, rows are written twice, and from version 8 on a CREATE marker announces the log that has
the clustering's instant in its name. Only the timeline shows whether there is such a clustering
(``strandline.server.marker.registry``).

Source: Hudi 1.2.0 and 0.15.0 ``WriteMarkers``, ``HoodieWriteHandle``, ``HoodieAppendHandle``,
``MarkerBasedRollbackStrategy``, ``HoodieTable.reconcileAgainstMarkers``.
"""

from __future__ import annotations

import re
from typing import Final

from timeline.errors import InputError
from timeline.table.config import META_FOLDER

NAME_BYTES: Final = 4096
UNFIT: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
"""Control characters, and lone surrogates, which UTF-8 can't encode."""

_CREATE: Final = "CREATE"
_APPEND: Final = "APPEND"
_KINDS: Final = frozenset({_CREATE, "MERGE", _APPEND})
_SUFFIX: Final = ".marker"
_NO_PATH: Final = re.compile(r"[\x00\ud800-\udfff]")
"""Characters that no file created by a writer can have in its path."""
_NO_FOLDERS: Final = frozenset({"", ".", ".."})
_LOG: Final = re.compile(r"(\.[^/]+_([0-9]{1,32}))\.log\.[0-9]+(?:_[^/]+)?")
_BASE: Final = re.compile(r"([^./][^/]*_([0-9]{1,32}))\.[^/_]+")
"""Groups: the name up to and including the instant; the instant. File ids may have dots and
underscores."""

FileGroupId = tuple[str, str]
"""Partition and file id."""


def file_group_of(marker: str) -> FileGroupId:
    """Return the file group of the data file that a marker announces.

    The file id is the file's name up to its first ``_``, without a log's leading dot, so that logs
    and base files of a group compare equal.
    """
    partition, _, name = marker.rpartition("/")
    return partition, name.removeprefix(".").partition("_")[0]


def is_own_file(path: str, instant: str) -> bool:
    """Return whether a marked path is a data file of an instant, which may be deleted with it.

    Readers of markers must check this, as a marker folder may hold any names, from any writer.
    Unlike ``check_name`` it accepts every partition that a writer can create, such as ones with
    line feeds or ``.marker`` in their names. It refuses logs of another instant, which may hold
    blocks of other writes. (Hudi's rollback keeps them, too, except those of a concurrent
    clustering, on tables that Strandline doesn't write.)

    Args:
        path: What the marker names, relative to the base path.
        instant: Requested time of the write, the name of the folder of markers.
    """
    name = _file_name(path)
    match = _BASE.fullmatch(name) or _LOG.fullmatch(name)
    return match is not None and match[1].endswith(f"_{instant}")


def is_slice_log(path: str, instant: str) -> bool:
    """Return whether a path is that of a log that has another instant than ``instant`` in its name.

    In table version 6 that is the base instant of its slice, and ``instant`` one of its writers.
    """
    match = _LOG.fullmatch(_file_name(path))
    return match is not None and not match[1].endswith(f"_{instant}")


def _file_name(path: str) -> str:
    """Return the file name of a path; ``""`` if no writer creates a data file there."""
    if len(path) > NAME_BYTES or _NO_PATH.search(path) or len(path.encode()) > NAME_BYTES:
        return ""
    folders = path.split("/")
    is_data = _NO_FOLDERS.isdisjoint(folders) and folders[0] != META_FOLDER
    return folders[-1] if is_data else ""


def check_name(name: str, instant: str) -> str | None:
    """Check a marker's name against the instant of its write; reads no storage.

    Returns:
        The other instant that a CREATE marker of a log names, which must be that of a concurrent
        clustering; ``None`` if there is nothing left to check.

    Raises:
        InputError: It isn't a marker's name, leads out of the table or into its metadata, or
            announces another write's file.
    """
    path, _, kind = name.rpartition(f"{_SUFFIX}.")
    file = path.rpartition("/")[2]
    match = _BASE.fullmatch(file) or _LOG.fullmatch(file)
    if (
        match is None
        or kind not in _KINDS
        # Hudi ends the file's name at the first suffix.
        or _SUFFIX in path
        or not _NO_FOLDERS.isdisjoint(path.split("/"))
        or path.startswith(f"{META_FOLDER}/")
        or not (name.isprintable() or UNFIT.search(name) is None)  # the former is faster
        or len(name.encode()) > NAME_BYTES
    ):
        raise InputError(
            f"markername is {name[:200]!r}; allowed: [<partition>/]<data file>.marker."
            f"<CREATE|MERGE|APPEND>, under the table's base path, of at most {NAME_BYTES} bytes"
        )
    # Hudi deletes the log of an APPEND marker only in the rollback of the log's own instant.
    if kind == _APPEND or match[1].endswith(f"_{instant}"):
        return None
    if kind == _CREATE and file.startswith("."):
        return match[2]
    raise foreign_file(name, instant)


def foreign_file(name: str, instant: str) -> InputError:
    """Return the error for a marker that announces another write's file."""
    return InputError(
        f"markername is {name[:200]!r}; allowed under instant {instant}: CREATE and MERGE of files"
        f" that end with _{instant} before their extension, APPEND of any log"
    )
