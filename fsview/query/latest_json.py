"""Answers about a partition's newest files, as JSON made straight from packed rows.

In their inner loops writers ask for each group's newest base file or slice. Nearly all groups of
most tables are *plain*: named by a UUID, with base files only, and with no compaction pending. One
row of such a group holds everything that the answer contains, so the JSON is made without making
files and slices: in Hudi's form from a template, or in columns. Any other group is handed to the
query itself. Either way the bytes equal those of the query and ``fsview.wire.json_form`` or
``fsview.wire.column_form``.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from fsview.files.group import base_tail, is_plain, read_head
from fsview.files.partition import Groups, PartitionVersion
from fsview.files.row import BASE_BYTES, HEAD_BYTES, unpack_id
from fsview.model.file_group import BaseFile, FileSlice
from fsview.query import queries as query
from fsview.snapshot.snapshot import Snapshot
from fsview.wire.column_form import Columns
from fsview.wire.json_form import PathForms, base_file_dto, encoded, file_slice_dto
from timeline.encoding.json_text import dumps


@dataclass(frozen=True, slots=True)
class Newest:
    """A query that gives at most one item of each group: the newest that readers may see.

    Attributes:
        query: The query of a partition; its argument ``max_instant``, if it has one, bounds the
            items' instants.
        of_slices: Whether its items are slices; else they are base files.
    """

    query: Callable[..., tuple[Any, ...]]
    of_slices: bool

    def encode(self, items: tuple[Any, ...], paths: PathForms) -> bytes:
        """Return the JSON list of some items."""
        to_dto: Callable[..., Any] = file_slice_dto if self.of_slices else base_file_dto
        return dumps([to_dto(item, paths) for item in items])

    def shows(self, s: Snapshot, instant: str) -> bool | None:
        """Whether the query gives an item with only a base file, in a group with no compaction.

        ``None`` if it may give part of the item.
        """
        if not self.of_slices:
            return s.is_base_visible(instant)
        return s.is_visible(instant) and (s.are_files_visible(instant) or None)


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
"""The view's method → its query."""


def newest_as_json(
    s: Snapshot,
    v: PartitionVersion,
    newest: Newest,
    arguments: Mapping[str, Any],
    paths: PathForms,
    plain_only: bool,
) -> bytes | None:
    """Return the JSON list that a query of ``NEWEST`` answers to its arguments, made from rows.

    ``None`` if sizes of files may be unknown, if the base path contains a placeholder, or if
    ``plain_only`` is set and a group isn't plain.

    Raises:
        StoreError: The files can't be read back.
    """
    template = None if v.has_ghosts else _template(newest, _PARTITION if v.partition else "", paths)
    if template is None:
        return None
    here = template.of_partition(v.partition)
    writer = _HudisForm(s, v.partition, newest, arguments, plain_only, paths, here)
    return writer.text() if all(map(writer.add, v.read())) else None


def newest_in_columns(
    s: Snapshot,
    v: PartitionVersion,
    newest: Newest,
    arguments: Mapping[str, Any],
    plain_only: bool,
) -> bytes | None:
    """Return the same answer in columns (``fsview.wire.column_form``).

    ``None`` if sizes of files may be unknown, or if ``plain_only`` is set and a group isn't plain.

    Raises:
        StoreError: The files can't be read back.
    """
    columns = Columns(of_slices=newest.of_slices)
    writer = _InColumns(s, v.partition, newest, arguments, plain_only, columns)
    return columns.body() if not v.has_ghosts and all(map(writer.add, v.read())) else None


_NAME, _SIZE, _MTIME, _INSTANT, _ID = "@name@", 2**53 - 3, 2**53 - 5, "@instant@", "@id@"
_PARTITION: Final = "@partition@"
_PLACEHOLDER: Final = re.compile(f"({_NAME}|{_SIZE}|{_MTIME}|{_INSTANT}|{_ID})")
_IN_BASE_FILE: Final = [_NAME, str(_SIZE), str(_MTIME), _NAME, str(_SIZE), _INSTANT, _ID]
_IN_SLICE: Final = [*_IN_BASE_FILE, _ID, _INSTANT]
"""The placeholders of an item in the order of its JSON; the text between them is taken from
``fsview.wire.json_form``."""


@dataclass(frozen=True, slots=True)
class _Template:
    """The JSON of an item in one partition, without the values that differ by row.

    Attributes:
        pieces: The texts around the placeholders ``_IN_BASE_FILE`` or ``_IN_SLICE``.
        timeless: The text between the size and the second name if the modification time is unknown.
    """

    pieces: tuple[str, ...]
    timeless: str

    def of_partition(self, partition: str) -> _Template:
        """Return the template of items in another partition than ``_PARTITION``."""
        plain = dumps(partition)[1:-1].decode()
        uri, *rest = self.pieces
        return _Template(
            (
                uri.replace(_PARTITION, dumps(encoded(partition))[1:-1].decode()),
                *(piece.replace(_PARTITION, plain) for piece in rest),
            ),
            self.timeless.replace(_PARTITION, plain),
        )


@lru_cache(maxsize=64)
def _template(newest: Newest, partition: str, paths: PathForms) -> _Template | None:
    """Return an item's template; ``None`` if a path contains a placeholder."""
    expected = _IN_SLICE if newest.of_slices else _IN_BASE_FILE
    timed, timeless = (
        _PLACEHOLDER.split(_sample(newest, partition, paths, mtime)) for mtime in (_MTIME, 0)
    )
    if timed[1::2] != expected or timeless[1::2] != [p for p in expected if p != str(_MTIME)]:
        return None
    if _PARTITION in f"{paths.text}{paths.uri}":
        return None
    return _Template(tuple(timed[::2]), timeless[4])


def _sample(newest: Newest, partition: str, paths: PathForms, mtime_ms: int) -> str:
    """Return the JSON of an item whose values are the placeholders."""
    base = BaseFile(partition, _NAME, _SIZE, mtime_ms, _ID, _INSTANT)
    item = FileSlice(partition, _ID, _INSTANT, base) if newest.of_slices else base
    return newest.encode((item,), paths)[1:-1].decode()


@dataclass(frozen=True, slots=True)
class _Head:
    """What rows of one instant and extension have in common.

    Attributes:
        shown: Whether readers see their items; ``None`` if only the query shows it.
        name_end: End of the file names: instant and extension.
        instant: The instant; in Hudi's form with the pieces of the template around it.
        end: End of a slice's JSON in Hudi's form, behind its file id.
    """

    shown: bool | None
    name_end: str
    instant: str
    end: str = ""


_HIDDEN: Final = _Head(False, "", "")


@dataclass(frozen=True, slots=True)
class _Writer(ABC):
    """One run of a query over packed groups, whose items a subclass collects."""

    snapshot: Snapshot
    partition: str
    newest: Newest
    arguments: Mapping[str, Any]
    plain_only: bool
    heads: dict[bytes, _Head] = field(default_factory=dict, kw_only=True)

    @abstractmethod
    def write(self, file_id: str, name: str, size: int, mtime: int, head: _Head) -> None:
        """Collect the item of a plain group."""

    @abstractmethod
    def write_items(self, items: tuple[Any, ...]) -> None:
        """Collect items of the query itself."""

    @abstractmethod
    def make_head(self, shown: bool | None, instant: str, extension: str) -> _Head:
        """Return the head of rows of an instant and extension."""

    def add(self, groups: Groups) -> bool:
        """Add the items of some groups, in order; return false if it gave up."""
        data, bounds = groups
        heads, write = self.heads, self.write
        partition, pending = self.partition, self.snapshot.pending_compaction
        replaced = self.snapshot.replaced.get(partition)
        for start, end in bounds:
            file_id, rows = unpack_id(data, start)
            head: _Head | None = None
            at = end
            if not (
                (replaced and file_id in replaced)
                or (pending and (partition, file_id) in pending)
                or not is_plain(data, start, rows, end)
            ):
                head = _HIDDEN
                while head.shown is False and at > rows:
                    at -= BASE_BYTES
                    key = data[at : at + HEAD_BYTES]
                    head = heads.get(key) or self._read_head(key)
            if head is None or head.shown is None:
                if self.plain_only:
                    return False
                version = PartitionVersion.of_group(partition, data[start:end])
                self.write_items(self.newest.query(self.snapshot, version, **self.arguments))
            elif head.shown:
                size, mtime, token = base_tail(data, at)
                write(file_id, f"{file_id}_{token}_{head.name_end}", size, mtime, head)
        return True

    def _read_head(self, key: bytes) -> _Head:
        instant, extension = read_head(key)
        is_later = instant > self.arguments.get("max_instant", instant)
        shown = False if is_later else self.newest.shows(self.snapshot, instant)
        head = self.heads[key] = self.make_head(shown, instant, extension)
        return head


@dataclass(frozen=True, slots=True)
class _HudisForm(_Writer):
    """Collects the JSON of items in Hudi's form."""

    paths: PathForms
    template: _Template
    texts: list[str] = field(default_factory=list)

    def text(self) -> bytes:
        """Return the list of the items of all groups added."""
        return f"[{''.join(self.texts)[1:]}]".encode()

    def write(self, file_id: str, name: str, size: int, mtime: int, head: _Head) -> None:
        p0, p1, p2, p3, p4, _, _, p7, *_ = self.template.pieces
        time = f"{p2}{mtime}{p3}" if mtime else self.template.timeless
        base = f",{p0}{name}{p1}{size}{time}{name}{p4}{size}{head.instant}{file_id}{p7}"
        self.texts.append(f"{base}{file_id}{head.end}" if self.newest.of_slices else base)

    def write_items(self, items: tuple[Any, ...]) -> None:
        if items:
            self.texts.extend((",", self.newest.encode(items, self.paths)[1:-1].decode()))

    def make_head(self, shown: bool | None, instant: str, extension: str) -> _Head:
        p5, p6, _, *more = self.template.pieces[5:]
        end = f"{more[0]}{instant}{more[1]}" if more else ""
        return _Head(shown, f"{instant}{extension}", f"{p5}{instant}{p6}", end)


@dataclass(frozen=True, slots=True)
class _InColumns(_Writer):
    """Collects items in columns."""

    columns: Columns

    def write(self, file_id: str, name: str, size: int, mtime: int, head: _Head) -> None:
        columns = self.columns
        columns.names.append(name)
        columns.sizes.append(size)
        columns.mtimes.append(mtime)
        if columns.of_slices:
            columns.ids.append(file_id)
            columns.instants.append(head.instant)
            columns.logs.append(0)

    def write_items(self, items: tuple[Any, ...]) -> None:
        self.columns.add(items)

    def make_head(self, shown: bool | None, instant: str, extension: str) -> _Head:
        return _Head(shown, f"{instant}{extension}", instant)
