"""``ServedRoots``: the roots below which tables are served, and the base paths that they allow.

A base path is compared with the roots by its text first, then link by link, so that nothing outside
the roots is accessed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from timeline.errors import InputError, RootNotAllowedError, StorageUnavailableError
from timeline.storage.local_path import resolve
from timeline.storage.table_id import TableId, is_relative
from timeline.table.partition_metadata import PATH_CHARACTERS


@dataclass(frozen=True)
class ServedRoots:
    """The roots at one moment, in any spelling; never changed.

    Attributes:
        found: Each root as it was given → as it resolves.
        awaited: Each local root that hasn't been found yet → its text as it was given.
    """

    found: Mapping[TableId, TableId] = field(default_factory=dict)
    awaited: Mapping[TableId, str] = field(default_factory=dict)

    @cached_property
    def resolved(self) -> frozenset[TableId]:
        """The roots that were found, as they resolve."""
        return frozenset(self.found.values())

    @cached_property
    def _given(self) -> Mapping[TableId, TableId]:
        """Each place to which only links lead → the first of the roots that do, as it was given."""
        given: dict[TableId, TableId] = {}
        for root in sorted(self.found, key=str):
            given.setdefault(self.found[root], root)
        return {real: root for real, root in given.items() if real not in self.found}

    def with_root(self, root: str, real: TableId) -> ServedRoots:
        """Return these roots and one that resolves to ``real``, which isn't awaited any more."""
        left = self.without(root)
        return replace(left, found={**left.found, TableId.of(root).normal(): real})

    def awaiting(self, root: str) -> ServedRoots:
        """Return these roots and one that is to be found, unless it was."""
        spelled = TableId.of(root).normal()
        if spelled in self.found:
            return self
        return replace(self, awaited={**self.awaited, spelled: root})

    def without(self, root: str) -> ServedRoots:
        """Return these roots but one."""
        spelled = TableId.of(root).normal()
        found = {each: real for each, real in self.found.items() if each != spelled}
        awaited = {each: given for each, given in self.awaited.items() if each != spelled}
        return ServedRoots(found, awaited)

    def named(self, text: str) -> str | None:
        """Return the base path of a root; ``None``: the text names none.

        Args:
            text: The root as it was given or as it resolves, in any spelling.
        """
        named = TableId.of(text).normal() if text else None
        if named is None or named in self.awaited or named in self.resolved:
            return None if named is None else named.base_path
        real = self.found.get(named)
        return None if real is None else real.base_path

    def serve(self, table_id: TableId) -> bool:
        """Whether a table, by its resolved id, is at or below a root."""
        # A driver may have thousands of roots: their number doesn't matter here.
        return not self.resolved.isdisjoint(_upwards(table_id))

    def allow(self, base_path: str) -> bool:
        """Whether a base path is at or below a root by its text; follows no link, reads nothing."""
        table_id = TableId.of(base_path).normal()
        if table_id.family == "file":
            return self.place_of(table_id.path) is not None
        return self.serve(table_id)

    def admitted(self, base_path: str) -> TableId:
        """Return the id of a base path that may be served; follows its links, if it is local.

        Raises:
            InputError: It is empty, too long, relative, or holds a NUL.
            RootNotAllowedError: It is outside the roots.
            StorageUnavailableError: It can't be followed, or its root hasn't been found yet.
        """
        if not base_path:
            raise InputError("the base path is empty")
        if "\0" in base_path:
            raise InputError(f"the base path {base_path!r} holds a NUL, which no path does")
        if len(base_path) > PATH_CHARACTERS:
            raise InputError(
                f"the base path {base_path[:200]!r}... has {len(base_path)} characters; allowed:"
                f" at most {PATH_CHARACTERS}"
            )
        if is_relative(base_path):
            raise InputError(
                f"the base path {base_path!r} is relative; allowed: a URL, or a path that begins"
                f" with '/', as the caller's working directory isn't the service's"
            )
        table_id = TableId.of(base_path).normal()
        try:
            if table_id.family == "file":
                # Nothing outside the roots is accessed, not even to see whether it exists.
                return TableId("file", "", resolve(table_id.path, self.place_of, "it"))
            if self.serve(table_id):
                return table_id
        except RootNotAllowedError as exc:
            detail = exc.detail
        except OSError as exc:
            if exc.errno == errno.ELOOP:  # a cycle of links: there can be no table
                return table_id
            raise StorageUnavailableError(
                f"base path {base_path!r} can't be followed: {exc.strerror or exc}"
            ) from exc
        else:
            detail = f"it means {table_id}"
        if any(above in self.awaited for above in _upwards(table_id)):
            raise StorageUnavailableError(
                f"base path {base_path!r} is below a root that isn't there yet",
                hint="the root is looked for again every few seconds",
            )
        allowed = ", ".join(sorted(map(str, self.found))) or "none"
        raise RootNotAllowedError(
            f"base path {base_path!r} is outside the roots served",
            detail=f"{detail}; the roots are: {allowed}",
        )

    def place_of(self, path: str) -> str | None:
        """Return a local path with its root resolved, ``None`` outside of all roots.

        Only the text is compared, with each root as it was given and as it was resolved.
        """
        place = TableId("file", "", path)
        if self.serve(place):
            return path
        spelled = next((above for above in _upwards(place) if above in self.found), None)
        if spelled is None:
            return None
        return self.found[spelled].path.rstrip("/") + path[len(spelled.path.rstrip("/")) :]

    def as_given(self, table_id: TableId) -> TableId:
        """Return the id of a table below its root as that was given; the inverse of ``place_of``.

        Servers of a fleet compare paths as clients name them, not as links resolve. The id is
        returned unchanged outside of all roots, and below one that was given without links.

        Args:
            table_id: The table's resolved id.
        """
        if not self._given:
            return table_id  # as nearly always
        real = next((above for above in _upwards(table_id) if above in self.resolved), None)
        root = None if real is None else self._given.get(real)
        if real is None or root is None:
            return table_id
        below = table_id.path[len(real.path.rstrip("/")) :]
        return TableId("file", "", root.path.rstrip("/") + below)


def resolved(base_path: str) -> TableId:
    """Return the id of a base path with ``..`` and, if it is local, links resolved."""
    table_id = TableId.of(base_path).normal()
    if table_id.family == "file":
        return TableId("file", "", os.path.realpath(table_id.path))
    return table_id


def _upwards(place: TableId) -> Iterator[TableId]:
    """Yield a place and each directory above it, the root directory last."""
    path = place.path
    while True:
        yield TableId(place.family, place.authority, path)
        if path in ("/", ""):
            return
        path = path.rpartition("/")[0] or "/"
