"""Compares the file groups of two tables that were written from the same feed.

File ids and instants differ between any two runs. What must be equal is everything else: each
partition's file groups, the commits (as batch and step of the feed) that wrote their slices, and
the keys and versions of the rows in each slice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from demo.feed import KEY
from demo.progress import Step, steps_done
from demo.record import GroupProof
from strandline import Table

_IDENTITY = (*KEY, "ts")
"""Columns that identify a version of a flight."""


@dataclass(frozen=True, slots=True, order=True)
class Slice:
    """One slice of a file group.

    Attributes:
        written: The step of the feed that wrote it.
        rows: Number of its rows.
        digest: SHA-256 of the rows' keys and versions, in the order of keys.
        logs: Number of logs that are merged with these rows.
    """

    written: Step
    rows: int
    digest: str
    logs: int = 0


Groups = Mapping[str, list[tuple[Slice, ...]]]
"""Partition → the slices of each file group, newest first; groups in the order of their slices."""


def file_groups(base_path: Path) -> Groups:
    """Return all file groups of a table.

    Cost: lists the table, and reads the keys of all files.
    """
    uri = base_path.as_uri()
    steps = steps_done(uri, archived=True)
    groups: dict[tuple[str, str], list[Slice]] = {}
    for row in Table(uri).files(all_slices=True).to_pylist():
        group = groups.setdefault((row["partition"], row["file_id"]), [])
        logs = len(row["log_paths"])
        group.append(_slice(base_path / row["path"], steps.get(row["base_instant"]), logs))
    partitions: dict[str, list[tuple[Slice, ...]]] = {}
    for (partition, _), slices in sorted(groups.items()):
        partitions.setdefault(partition, []).append(tuple(slices))
    return {partition: sorted(found) for partition, found in partitions.items()}


def compare(groups: Groups, wanted: Groups) -> GroupProof:
    """Compare a table's file groups with another's."""
    found = [group for of_partition in groups.values() for group in of_partition]
    return GroupProof(len(found), sum(map(len, found)), _difference(groups, wanted))


def _difference(groups: Groups, wanted: Groups) -> str | None:
    for partition in sorted({*groups, *wanted}):
        ours, theirs = groups.get(partition, []), wanted.get(partition, [])
        if len(ours) != len(theirs):
            return f"{partition}: {len(ours)} file groups, there should be {len(theirs)}"
        for number, (group, other) in enumerate(zip(ours, theirs, strict=True), 1):
            if group != other:
                differs = f"has {_text(group)}, it should have {_text(other)}"
                return f"{partition}: file group {number} {differs}"
    return None


def _slice(path: Path, step: Step | None, logs: int) -> Slice:
    """Return the slice of a base file."""
    rows = pq.read_table(path, columns=list(_IDENTITY), partitioning=None)
    versions = sorted(zip(*(rows[name].to_pylist() for name in _IDENTITY), strict=True))
    digest = hashlib.sha256(repr(versions).encode()).hexdigest()
    # A file of no commit differs from any slice of the other table.
    return Slice(step or (0, "uncommitted"), len(versions), digest, logs)


def _text(group: tuple[Slice, ...]) -> str:
    slices = (f"batch {s.written[0]} {s.written[1]} ({s.rows} rows, {s.digest[:8]})" for s in group)
    return ", ".join(slices)
