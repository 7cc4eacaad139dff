"""Instant states: what Flink's checkpoint messages in a table's meta folder say, from memory.

A Flink writer's coordinator leaves a file ``<instant>.<state>`` for each change (``.hoodie/.aux/
ckp_meta``), and its tasks poll them. The service lists such a directory once and answers from that
until the coordinator asks for a refresh, or until it was asked ``FORCED`` times: a refresh that was
lost would keep the tasks waiting for ever.

Only directories below ``<base path>/.hoodie`` of a table that may be served are listed.

Source: Hudi 1.0.2 ``InstantStateHandler`` (gone in 1.1).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from timeline.errors import InputError
from timeline.storage.base import Storage, checked_path
from timeline.table.config import META_FOLDER

FORCED: Final = 100
"""After so many answers a directory is listed again."""
MOST: Final = 1024
"""How many directories are remembered; the one not asked for the longest goes first."""

StorageOf = Callable[[str], tuple[Hashable, Storage]]
"""From a base path to the table's identity and storage; refuses what may not be served."""

_PARTS: Final = 2
_CHARACTERS: Final = 4096
"""Longest name of a directory; no file system has longer ones."""


@dataclass(frozen=True, slots=True)
class InstantState:
    """One message.

    Attributes:
        instant: Requested time of the instant.
        state: Whatever Flink calls it: ``INFLIGHT``, ``COMPLETED``, ``ABORTED``.
    """

    instant: str
    state: str


@dataclass(slots=True)
class _Listed:
    """What a directory held, and how often it was told since."""

    states: tuple[InstantState, ...]
    told: int = 0


class InstantStates:
    """The directories that are polled; ``_lock`` guards them, and is not held while one is listed.

    Two callers may list a directory at the same time; what was listed last is kept.
    """

    def __init__(self, storage_of: StorageOf) -> None:
        self._storage_of = storage_of
        self._lock = threading.Lock()
        self._listed: OrderedDict[Hashable, _Listed] = OrderedDict()

    def all(self, directory: str) -> tuple[InstantState, ...]:
        """Return the messages of a directory, by name; none if it isn't there.

        Raises:
            InputError: It isn't a directory below a table's meta folder.
            RootNotAllowedError: The table may not be served.
            StorageError: It can't be listed.
        """
        table, storage, inner = self._found(directory)
        with self._lock:
            known = self._listed.get((table, inner))
            if known is not None:
                known.told += 1
                if known.told < FORCED:
                    self._listed.move_to_end((table, inner))
                    return known.states
        return self._list(table, storage, inner)

    def refresh(self, directory: str) -> None:
        """List a directory now.

        Raises:
            InputError: As ``all``, and the others.
        """
        self._list(*self._found(directory))

    def _found(self, directory: str) -> tuple[Hashable, Storage, str]:
        base_path, inner = split_directory(directory)
        table, storage = self._storage_of(base_path)
        return table, storage, inner

    def _list(self, table: Hashable, storage: Storage, inner: str) -> tuple[InstantState, ...]:
        entries = storage.for_cause("instant_states").list(inner)
        states = tuple(
            state
            for entry in entries
            if not entry.is_dir and (state := state_of(entry.name)) is not None
        )
        with self._lock:
            self._listed[table, inner] = _Listed(states)
            self._listed.move_to_end((table, inner))
            while len(self._listed) > MOST:
                self._listed.popitem(last=False)
        return states


def state_of(name: str) -> InstantState | None:
    """Return the message that a file's name is, ``None`` if it is none."""
    parts = name.rstrip(".").split(".")  # Java's split drops what is empty at the end
    return InstantState(*parts) if len(parts) == _PARTS else None


def split_directory(directory: str) -> tuple[str, str]:
    """Return the base path and the path below it of a directory of messages.

    Raises:
        InputError: It isn't below a table's meta folder.
    """
    if len(directory) > _CHARACTERS:
        raise _refused(directory)
    segments = directory.rstrip("/").split("/")
    meta_folders = [at for at, segment in enumerate(segments) if segment == META_FOLDER]
    base_path = "/".join(segments[: meta_folders[-1]]) if meta_folders else ""
    try:
        if base_path:
            return base_path, checked_path("/".join(segments[meta_folders[-1] :]))
    except ValueError as exc:
        raise _refused(directory) from exc
    raise _refused(directory)


def _refused(directory: str) -> InputError:
    return InputError(
        f"instantstatedirpath is {directory[:500]!r};"
        f" allowed: <base path>/{META_FOLDER} or a directory below it"
    )
