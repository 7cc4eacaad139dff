"""``InstantStates``: the checkpoint messages of Flink's writers, listed once and then cached.

A writer's coordinator creates a file ``<instant>.<state>`` for each change in ``.hoodie/.aux/
ckp_meta``, and its tasks poll for them. The service lists such a directory once and answers from
memory until the coordinator asks for a refresh. After ``FORCED`` answers it lists the directory
anyway, as a lost refresh would otherwise leave the tasks polling forever.

Only directories below ``<base path>/.hoodie`` of a table below the roots are listed.

Source: Hudi 1.0.2 ``InstantStateHandler`` (gone in 1.1).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from timeline.errors import InputError
from timeline.storage.base import Storage, checked_path
from timeline.storage.table_id import TableId
from timeline.table.config import META_FOLDER

FORCED: Final = 100
"""Answers after which a directory is listed again."""
MOST: Final = 1024
"""Cached directories; the least recently used is dropped first."""

StorageOf = Callable[[str], tuple[TableId, Storage]]
"""Base path → the table's identity and storage; raises an error outside the roots."""

_PARTS: Final = 2
_CHARACTERS: Final = 4096
"""Longest path of a directory; no file system has longer ones."""


@dataclass(frozen=True, slots=True)
class InstantState:
    """One message.

    Attributes:
        instant: Requested time of the instant.
        state: Flink's name for it: ``INFLIGHT``, ``COMPLETED``, ``ABORTED``.
    """

    instant: str
    state: str


@dataclass(slots=True)
class _Listed:
    """A directory's messages.

    Attributes:
        states: The messages.
        number: Number of the listing that found them; later listings have greater numbers.
        uses: How often they were returned since.
    """

    states: tuple[InstantState, ...]
    number: int
    uses: int = 0


class InstantStates:
    """LRU cache of directories; ``_lock`` guards it and isn't held while a directory is listed.

    Several threads may list a directory at the same time. Listings are numbered as they begin, and
    the result of the greatest number is kept, so that none replaces that of a later refresh.
    """

    def __init__(self, storage_of: StorageOf) -> None:
        self._storage_of = storage_of
        self._lock = threading.Lock()
        self._listed: OrderedDict[tuple[TableId, str], _Listed] = OrderedDict()
        self._begun = 0
        self._evicted = 0  # the greatest number among the results dropped

    def all(self, directory: str) -> tuple[InstantState, ...]:
        """Return a directory's messages in order of name; none if the directory doesn't exist.

        Raises:
            InputError: It isn't a directory below a table's meta folder.
            RootNotAllowedError: The table is outside the roots.
            StorageError: It can't be listed.
        """
        table, storage, inner = self._found(directory)
        with self._lock:
            known = self._listed.get((table, inner))
            if known is not None:
                known.uses += 1
                if known.uses < FORCED:
                    self._listed.move_to_end((table, inner))
                    return known.states
        return self._list(table, storage, inner)

    def refresh(self, directory: str) -> None:
        """List a directory now; raises the same errors as ``all``."""
        self._list(*self._found(directory))

    def forget(self, is_kept: Callable[[TableId], bool]) -> None:
        """Drop the directories of the tables that aren't kept."""
        with self._lock:
            for table, inner in list(self._listed):
                if not is_kept(table):
                    del self._listed[table, inner]
            # The results of listings under way aren't kept either.
            self._evicted = self._begun

    def _found(self, directory: str) -> tuple[TableId, Storage, str]:
        base_path, inner = split_directory(directory)
        table, storage = self._storage_of(base_path)
        return table, storage, inner

    def _list(self, table: TableId, storage: Storage, inner: str) -> tuple[InstantState, ...]:
        with self._lock:
            self._begun += 1
            number = self._begun
        # Outside the lock: if the storage hangs, other directories are still answered.
        entries = storage.for_cause("instant_states").list(inner)
        states = tuple(
            state
            for entry in entries
            if not entry.is_dir and (state := state_of(entry.name)) is not None
        )
        with self._lock:
            known = self._listed.get((table, inner))
            if known is not None and known.number > number:
                # A listing that began later has ended first, and its result is newer.
                return known.states
            if known is None and self._evicted >= number:
                return states  # the result of a later listing may have been dropped
            self._listed[table, inner] = _Listed(states, number)
            self._listed.move_to_end((table, inner))
            while len(self._listed) > MOST:
                _, dropped = self._listed.popitem(last=False)
                self._evicted = max(self._evicted, dropped.number)
        return states


def state_of(name: str) -> InstantState | None:
    """Return the message in a file's name; ``None``: it has another form."""
    parts = name.rstrip(".").split(".")  # Java's ``split`` drops empty parts at the end
    return InstantState(*parts) if len(parts) == _PARTS else None


def split_directory(directory: str) -> tuple[str, str]:
    """Split the path of a directory of messages into the table's base path and the rest.

    Raises:
        InputError: It isn't below a table's meta folder.
    """
    base_path, _, inner = f"{directory.rstrip('/')}/".rpartition(f"/{META_FOLDER}/")
    refused = InputError(
        f"instantstatedirpath is {directory[:500]!r};"
        f" allowed: <base path>/{META_FOLDER} or a directory below it"
    )
    if not base_path or len(directory) > _CHARACTERS:
        raise refused
    try:
        return base_path, checked_path(f"{META_FOLDER}/{inner}".rstrip("/"))
    except ValueError as exc:
        raise refused from exc
