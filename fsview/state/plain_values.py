"""What rows and news hold of the model, as plain values for JSON, in both directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from fsview.model.file_group import CompactionOperation
from fsview.snapshot.snapshot import GroupKey
from fsview.store.base import Handle
from timeline.instant import Instant, State

_LARGE: Final = 1 << 53
"""The least handle that is stored as text, in hexadecimal digits."""


# Writing.


def operations_to_json(operations: Mapping[GroupKey, CompactionOperation]) -> list[dict[str, Any]]:
    """Return pending operations as plain values, which ``operations_of_json`` reads."""
    # Not ``asdict``, which copies what the fields hold.
    return [{f.name: getattr(o, f.name) for f in fields(o)} for o in operations.values()]


def clustering_to_json(clustering: Mapping[GroupKey, Instant]) -> list[tuple[Any, ...]]:
    """Return groups in pending clusterings as plain values."""
    return [(*key, instant_to_json(i)) for key, i in clustering.items()]


def handle_to_json(handle: Handle) -> int | str:
    """Return a handle as a plain value, which ``handle_of_json`` reads."""
    # Larger numbers aren't exact in all readers of JSON.
    return handle if handle < _LARGE else f"{handle:x}"


def instant_to_json(instant: Instant) -> tuple[Any, ...]:
    """Return an instant as plain values, which ``instant_of_json`` reads."""
    return (
        instant.requested_time,
        instant.action,
        instant.state.value,
        instant.completion_time,
        instant.legacy,
    )


# Reading.


def operations_of_json(stored: list[dict[str, Any]]) -> dict[GroupKey, CompactionOperation]:
    """Return the operations of ``operations_to_json``."""
    found = (CompactionOperation(**{**o, "delta_files": tuple(o["delta_files"])}) for o in stored)
    return {(operation.partition, operation.file_id): operation for operation in found}


def clustering_of_json(stored: list[list[Any]]) -> dict[GroupKey, Instant]:
    """Return the groups of ``clustering_to_json``."""
    return {(partition, id_): instant_of_json(instant) for partition, id_, instant in stored}


def instant_of_json(stored: Sequence[Any]) -> Instant:
    """Return the instant of ``instant_to_json``."""
    time, action, state, completion_time, legacy = stored
    return Instant(time, action, State(state), completion_time, legacy)


def handle_of_json(stored: int | str) -> Handle:
    """Return the handle of ``handle_to_json``."""
    return Handle(int(stored, 16) if isinstance(stored, str) else stored)
