"""The announcement of a completion, which describes the changes of the commit.

A writer that finds a commit whose completion is in doubt must know the changes of that commit.
Markers don't suffice: they name neither the file groups that a replacecommit replaces nor the
schema. So the file ``.hoodie/.heartbeat/<instant>.completing`` holds a JSON object::

    {"version": 1, "operation": "UPSERT", "schema": "…", "groups": {"eu": ["<file id>", …]}}

``groups`` has the file ids written or replaced in each partition, ``schema`` is the Avro schema
that the commit records. It is written once, by one request, before the request that completes the
instant. Hudi doesn't read it.
"""

from __future__ import annotations

import json
from typing import Final

from strandline.commit.conflict import ConcurrentOperation
from timeline.instant import Instant

_VERSION: Final = 1
"""To be incremented by a change after which readers of this version would miss a conflict."""


def encode_announcement(operation: ConcurrentOperation) -> bytes:
    """Return the content of a commit's announcement: some 40 bytes for each file group."""
    groups: dict[str, list[str]] = {}
    for partition, file_id in sorted(operation.groups):
        groups.setdefault(partition, []).append(file_id)
    content = {
        "version": _VERSION,
        "operation": operation.operation,
        "schema": operation.avro_schema,
        "groups": groups,
    }
    return json.dumps(content, separators=(",", ":")).encode()


def decode_announcement(instant: Instant, data: bytes) -> ConcurrentOperation | None:
    """Return the changes of a commit by its announcement; ``None`` if the content is unknown.

    Args:
        instant: The commit, which becomes the operation's instant.
        data: The announcement's content; empty or of another version if another release wrote it.
    """
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):  # the latter for JSON that is nested too deeply
        return None
    match content:
        case {
            "version": version,
            "operation": str(operation),
            "schema": str(schema),
            "groups": dict(groups),
        } if version == _VERSION and all(map(_is_text_list, groups.values())):
            pairs = ((partition, file_id) for partition in groups for file_id in groups[partition])
            return ConcurrentOperation(instant, operation, frozenset(pairs), schema)
    return None


def _is_text_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
