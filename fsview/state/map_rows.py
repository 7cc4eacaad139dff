"""The rows of a table's record besides those of the snapshot and of the partitions.

``fsview.state.record_rows`` names them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from fsview.snapshot.snapshot import Snapshot
from fsview.state.plain_values import (
    clustering_of_json,
    clustering_to_json,
    operations_of_json,
    operations_to_json,
)
from fsview.state.row_text import text_of, value_of

_COMPACTION: Final = "compaction"
_LOG_COMPACTION: Final = "logcompaction"
_CLUSTERING: Final = "clustering"
_REPLACED: Final = "replaced"
_OUTDATED: Final = "outdated"


def maps_of(snapshot: Snapshot, outdated: frozenset[tuple[str, str]]) -> dict[str, object]:
    """Return what the rows besides those of the snapshot and its partitions hold, by name."""
    return {
        _COMPACTION: snapshot.pending_compaction,
        _LOG_COMPACTION: snapshot.pending_log_compaction,
        _CLUSTERING: snapshot.pending_clustering,
        _REPLACED: snapshot.replaced,
        _OUTDATED: outdated,
    }


def map_row(name: str, content: Any) -> bytes:
    """Return the row of an item of ``maps_of``."""
    if name == _REPLACED:
        return text_of(content)
    if name == _OUTDATED:
        return text_of(sorted(content))
    if name == _CLUSTERING:
        return text_of(clustering_to_json(content))
    return text_of(operations_to_json(content))


def read_fields(rows: Mapping[str, bytes | None]) -> dict[str, Any]:
    """Return the fields of the snapshot that are among some rows.

    Raises:
        ValueError: They are damaged; or ``AttributeError``, ``IndexError``, ``KeyError``,
            ``TypeError``.
    """
    return {
        field: _MAPS[name](value_of(row))
        for name, field in _FIELDS.items()
        if (row := rows.get(name))
    }


def read_outdated(
    rows: Mapping[str, bytes | None], before: frozenset[tuple[str, str]]
) -> frozenset[tuple[str, str]]:
    """Return what had completed before the last upgrade; ``before`` unless it is among the rows.

    Raises:
        ValueError: As ``read_fields``, as are the other errors.
    """
    row = rows.get(_OUTDATED)
    return frozenset((time, action) for time, action in value_of(row)) if row else before


def _replaced_of_json(stored: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    return {partition: dict(groups) for partition, groups in stored.items()}


_FIELDS: Final = {
    _COMPACTION: "pending_compaction",
    _LOG_COMPACTION: "pending_log_compaction",
    _CLUSTERING: "pending_clustering",
    _REPLACED: "replaced",
}
"""Row → field of the snapshot."""
_MAPS: Final[Mapping[str, Callable[[Any], Any]]] = {
    _COMPACTION: operations_of_json,
    _LOG_COMPACTION: operations_of_json,
    _CLUSTERING: clustering_of_json,
    _REPLACED: _replaced_of_json,
}
"""Row → what reads its content."""
