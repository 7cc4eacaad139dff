"""Names of markers: ``[<partition>/]<data file>.marker.<kind>``, and which a write may create.

======  ==========================================================  ==================
kind    what it announces                                           instant in the name
======  ==========================================================  ==================
CREATE  a group's first base file; from table version 8 on any log  the write's own
MERGE   a group's next base file                                    the write's own
APPEND  a log, before table version 8                               its base file's
======  ==========================================================  ==================

Hudi deletes what a CREATE or MERGE marker names, and asks nothing else: at the commit, if the
commit doesn't report the file, and in a rollback. So a marker of these kinds that names another
write's file would destroy it, and is refused by its name alone. What APPEND names is not deleted
unless its instant is the one that is rolled back.

One write names other instants: while a clustering resizes the buckets of consistent hashing, rows
of their groups are written twice, and from version 8 on a CREATE marker announces the log that
bears the clustering's instant. Whether there is such a clustering, only the timeline says
(``strandline.service.marker.clustering``).

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
"""Control characters, and halves of surrogate pairs, which UTF-8 can't write."""

_CREATE: Final = "CREATE"
_APPEND: Final = "APPEND"
_KINDS: Final = frozenset({_CREATE, "MERGE", _APPEND})
_SUFFIX: Final = ".marker"
_NO_FOLDERS: Final = frozenset({"", ".", ".."})
_LOG: Final = re.compile(r"(\.[^/]+_([0-9]{1,32}))\.log\.[0-9]+(?:_[^/]+)?")
_BASE: Final = re.compile(r"([^./][^/]*_([0-9]{1,32}))\.[^/_]+")
"""What ends with the instant, and the instant; a file id may have dots and underscores."""

FileGroup = tuple[str, str]
"""Partition and file id."""


def file_group_of(marker: str) -> FileGroup:
    """Return the file group of the data file that a marker announces.

    The file id is what the file's name has before its first ``_``, without a log's leading dot, so
    that a log and a base file of one group are one; Hudi cuts partition and name together.
    """
    partition, _, name = marker.rpartition("/")
    return partition, name.removeprefix(".").partition("_")[0]


def check_name(name: str, instant: str) -> str | None:
    """Refuse what no write of ``instant`` announces; looks at nothing but the name.

    Returns:
        The instant of a log that may be created only if that is a clustering beside this write;
        ``None``: in any case.

    Raises:
        InputError: It isn't a marker's name, would lead out of the table or into its metadata, or
            announces another write's file.
    """
    path, _, kind = name.rpartition(f"{_SUFFIX}.")
    file = path.rpartition("/")[2]
    match = _BASE.fullmatch(file) or _LOG.fullmatch(file)
    if (
        match is None
        or kind not in _KINDS
        # Hudi takes the file's name to end at the first one.
        or _SUFFIX in path
        or not _NO_FOLDERS.isdisjoint(path.split("/"))
        or path.startswith(f"{META_FOLDER}/")
        or not (name.isprintable() or UNFIT.search(name) is None)  # the former is sooner
        or len(name.encode()) > NAME_BYTES
    ):
        raise InputError(
            f"markername is {name[:200]!r}; allowed: [<partition>/]<data file>.marker."
            f"<CREATE|MERGE|APPEND>, under the table's base path, of at most {NAME_BYTES} bytes"
        )
    if kind == _APPEND or match[1].endswith(f"_{instant}"):
        return None
    if kind == _CREATE and file.startswith("."):
        return match[2]
    raise foreign_file(name, instant)


def foreign_file(name: str, instant: str) -> InputError:
    """Return the refusal of a marker that announces another write's file."""
    return InputError(
        f"markername is {name[:200]!r}; allowed under instant {instant}: CREATE and MERGE of files"
        f" that end with _{instant} before their extension, APPEND of any log"
    )
