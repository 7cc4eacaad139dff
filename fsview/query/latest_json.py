"""Answers about a partition's newest files, as JSON straight from packed rows.

What writers ask in their inner loops is each group's newest base file or slice. Nearly all groups
of most tables are *plain*: named by a UUID, base files only, no compaction pending. There one row
has all that the answer says, so neither the files nor the slices behind it are made, and a first
answer costs a fraction. Any other group is asked the query itself, by itself. Either way the bytes
are those of the query and of ``fsview.wire.json_form``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from fsview.files.chunk_layout import Groups
from fsview.files.group import base_tail, is_plain, read_head
from fsview.files.packed_id import unpack_id
from fsview.files.partition import PartitionVersion
from fsview.files.row import BASE_BYTES, HEAD_BYTES
from fsview.model.file_group import BaseFile, FileSlice
from fsview.query import queries as query
from fsview.snapshot.snapshot import Snapshot
from fsview.wire.json_form import PathForms, base_file_dto, encoded, file_slice_dto
from timeline.encoding.json_text import dumps


@dataclass(frozen=True, slots=True)
class Newest:
    """A query that gives at most one item of each group: the newest that a reader may see.

    Attributes:
        asked: The query of a partition; its argument ``max_instant``, if it has one, bounds the
            items' instants.
        of_slices: Whether its items are slices; else they are base files.
    """

    asked: Callable[..., tuple[Any, ...]]
    of_slices: bool

    def encode(self, items: tuple[Any, ...], paths: PathForms) -> bytes:
        """Return the JSON list of some items."""
        to_dto: Callable[..., Any] = file_slice_dto if self.of_slices else base_file_dto
        return dumps([to_dto(item, paths) for item in items])


NEWEST: Final[Mapping[str, Newest]] = {
    "latest_base_files": Newest(query.latest_base_files, of_slices=False),
    "latest_base_files_before_or_on": Newest(query.latest_base_files_before_or_on, of_slices=False),
    "latest_file_slices": Newest(query.latest_file_slices, of_slices=True),
    "latest_file_slices_stateless": Newest(query.latest_file_slices, of_slices=True),
    "latest_file_slices_before_or_on": Newest(
        query.latest_file_slices_before_or_on, of_slices=True
    ),
    "latest_merged_file_slices_before_or_on": Newest(
        query.latest_merged_file_slices_before_or_on, of_slices=True
    ),
}
"""The view's method → what it asks of each group."""


def newest_as_json(
    s: Snapshot,
    v: PartitionVersion,
    newest: Newest,
    arguments: Mapping[str, Any],
    paths: PathForms,
    plain_only: bool,
) -> bytes | None:
    """Return the JSON list that a query of ``NEWEST`` answers, where that can be made so.

    Args:
        s: The snapshot.
        v: The partition's files.
        newest: The query.
        arguments: The query's own, by name.
        paths: How the caller spells the base path.
        plain_only: Whether to give up at the first group that isn't plain.

    Returns:
        ``None`` where it is given up, where files may be ghosts, and where the base path has in it
        what stands for a field here.

    Raises:
        StoreError: The files can't be read back.
    """
    form = None if v.has_ghosts else _form(newest, _PARTITION if v.partition else "", paths)
    if form is None:
        return None
    here = form.of_partition(v.partition)
    reader = _Reader(s, v.partition, newest, arguments, paths, here, plain_only)
    for groups in v.read():
        if not reader.read(groups):
            return None
    return reader.said()


_NAME, _SIZE, _MTIME, _INSTANT, _ID = "@name@", 2**53 - 3, 2**53 - 5, "@instant@", "@id@"
_PARTITION: Final = "@partition@"
_MARK: Final = re.compile(f"({_NAME}|{_SIZE}|{_MTIME}|{_INSTANT}|{_ID})")
_OF_BASE: Final = [_NAME, str(_SIZE), str(_MTIME), _NAME, str(_SIZE), _INSTANT, _ID]
_OF_SLICE: Final = [*_OF_BASE, _ID, _INSTANT]
"""What an item says of a row, in this order; what is said around it, ``fsview.wire.json_form`` has
told."""


@dataclass(frozen=True, slots=True)
class _Form:
    """The JSON of an item in one partition, without what it says of a row.

    Attributes:
        pieces: The texts before, between and behind what ``_OF_BASE`` or ``_OF_SLICE`` names.
        timeless: What is between the size and the second name when no modification time is known.
    """

    pieces: tuple[str, ...]
    timeless: str

    def of_partition(self, partition: str) -> _Form:
        """Return the form of items of another partition than ``_PARTITION``."""
        plain = dumps(partition)[1:-1].decode()
        uri, *rest = self.pieces
        return _Form(
            (
                uri.replace(_PARTITION, dumps(encoded(partition))[1:-1].decode()),
                *(piece.replace(_PARTITION, plain) for piece in rest),
            ),
            self.timeless.replace(_PARTITION, plain),
        )


@lru_cache(maxsize=64)
def _form(newest: Newest, partition: str, paths: PathForms) -> _Form | None:
    """Return an item's form; ``None`` where a path looks like what stands for a field."""
    said = _OF_SLICE if newest.of_slices else _OF_BASE
    timed, timeless = (
        _MARK.split(_sample(newest, partition, paths, mtime)) for mtime in (_MTIME, 0)
    )
    if timed[1::2] != said or timeless[1::2] != [mark for mark in said if mark != str(_MTIME)]:
        return None
    if f"{paths.text}{paths.uri}".count(_PARTITION):
        return None
    return _Form(tuple(timed[::2]), timeless[4])


def _sample(newest: Newest, partition: str, paths: PathForms, mtime_ms: int) -> str:
    """Return the text of an item in which the fields can be found."""
    base = BaseFile(partition, _NAME, _SIZE, mtime_ms, _ID, _INSTANT)
    item = FileSlice(partition, _ID, _INSTANT, base) if newest.of_slices else base
    return newest.encode((item,), paths)[1:-1].decode()


@dataclass(frozen=True, slots=True)
class _Head:
    """What rows of one instant and extension have in common.

    Attributes:
        shown: Whether readers see their files; ``None`` where only the query can say.
        name_end: The end of their names: instant and extension.
        instant: The instant as an item says it, with the pieces around it.
        end: How the item of a slice ends, behind its file id.
    """

    shown: bool | None
    name_end: str
    instant: str
    end: str


class _Reader:
    """One run of a query over packed groups."""

    def __init__(
        self,
        s: Snapshot,
        partition: str,
        newest: Newest,
        arguments: Mapping[str, Any],
        paths: PathForms,
        form: _Form,
        plain_only: bool,
    ) -> None:
        self._snapshot = s
        self._partition = partition
        self._newest = newest
        self._arguments = arguments
        self._paths = paths
        self._form = form
        self._plain_only = plain_only
        self._as_of: str | None = arguments.get("max_instant")
        self._heads: dict[bytes, _Head] = {}
        self._said: list[str] = []

    def said(self) -> bytes:
        """Return the list of the items of all groups that were read."""
        return f"[{''.join(self._said)[1:]}]".encode()

    def read(self, groups: Groups) -> bool:
        """Read some groups, in order; return whether it was not given up."""
        data, bounds = groups
        p0, p1, p2, p3, p4, _, _, p7, *_ = self._form.pieces
        timeless, of_slices = self._form.timeless, self._newest.of_slices
        heads, say = self._heads, self._said.append
        partition, pending = self._partition, self._snapshot.pending_compaction
        replaced = self._snapshot.replaced.get(partition)
        for start, end in bounds:
            file_id, rows = unpack_id(data, start)
            if (
                (replaced and file_id in replaced)
                or (pending and (partition, file_id) in pending)
                or not is_plain(data, start, rows, end)
            ):
                if not self._ask(file_id, data[start:end]):
                    return False
                continue
            at = end
            head = _NONE
            while head.shown is False and at > rows:
                at -= BASE_BYTES
                key = data[at : at + HEAD_BYTES]
                head = heads.get(key) or self._head(key)
            if head.shown is None:
                if not self._ask(file_id, data[start:end]):
                    return False
            elif head.shown:
                size, mtime, token = base_tail(data, at)
                name = f"{file_id}_{token}_{head.name_end}"
                time = f"{p2}{mtime}{p3}" if mtime else timeless
                first = f",{p0}{name}{p1}{size}{time}{name}{p4}{size}{head.instant}{file_id}{p7}"
                say(f"{first}{file_id}{head.end}" if of_slices else first)
        return True

    def _ask(self, file_id: str, body: bytes) -> bool:
        """Ask the query itself about one group; return false where only plain ones are wanted."""
        if self._plain_only:
            return False
        group = PartitionVersion.of_group(self._partition, body)
        items = self._newest.asked(self._snapshot, group, **self._arguments)
        if items:
            self._said += (",", self._newest.encode(items, self._paths)[1:-1].decode())
        return True

    def _head(self, key: bytes) -> _Head:
        """Read what some rows begin with."""
        s = self._snapshot
        instant, extension = read_head(key)
        shown: bool | None = s.is_visible(instant)
        if self._as_of is not None and instant > self._as_of:
            shown = False
        elif shown and (
            instant in s.pending_clustering_times
            or (s.logs_by_completion and not s.completion.is_completed(instant))
        ):
            shown = None
        p5, p6, _, *more = self._form.pieces[5:]
        end = f"{more[0]}{instant}{more[1]}" if more else ""
        head = _Head(shown, f"{instant}{extension}", f"{p5}{instant}{p6}", end)
        self._heads[key] = head
        return head


_NONE: Final = _Head(False, "", "", "")
