"""``Finding``: one thing that is wrong with a table; ``FAULTS``: all kinds of them.

A fault's code never changes its meaning. docs/doctor.md describes each code.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from strandline.records.schema.columns import COUNT, FLAG, TEXT, TEXTS, schema_of
from strandline.table_services.doctor.severity import Severity

_SWEPT: Final = "--fix --apply deletes it"
INFO, WARNING, ERROR = Severity


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of finding.

    Attributes:
        severity: How bad it is.
        remedy: What to do, a clause without a full stop.
    """

    severity: Severity
    remedy: str


_REMEDIES: Final = {
    INFO: {"properties-checksum-missing": "--fix --apply adds the checksum"},
    WARNING: {
        "properties-missing": "copy hoodie.properties.backup to hoodie.properties; a next write"
        " that changes the properties does it, too",
        "missing-predecessor": "create the empty file if the instant is to be rolled back; else"
        " leave it",
        "service-pending": "execute its plan (strandline compact TABLE --apply or clean TABLE"
        " --apply), or roll it back",
        "write-pending": "make sure that no job has it, as an idle Flink job does; then the next"
        " write rolls it back, or in Python WriteClient(LocalEngine(), TABLE,"
        " {}).rollback(INSTANT)",
        "lock-left": "make sure that no writer has the lock, then delete the file; the option"
        " hoodie.write.lock.filesystem.expire lets writers do that",
        "temp-file-left": _SWEPT,
        "marker-left": f"{_SWEPT}, or else the next write of this package does",
        "heartbeat-left": _SWEPT,
        "orphan-file": f"{_SWEPT} when it is a day old, if a rollback has undone its write; else"
        " find out first whether the timeline has lost that instant",
        "table-within": "move the other table out of this one's base path: Hudi takes its"
        " partitions for this one's",
        "duplicate-base-file": "--fix --apply deletes those that the commit, savepoints and plans"
        " don't name, if the named one has the right size; Hudi reads any of them",
        "duplicate-file-name": "find out which partition it was copied from; move the copy out of"
        " the table",
        "replaced-group": "run a clean: strandline clean TABLE --apply",
        "small-files": "cluster the partition, or raise hoodie.parquet.small.file.limit for its"
        " next inserts",
    },
    ERROR: {
        "properties-unreadable": "restore .hoodie/hoodie.properties, from a backup of yours or"
        " another table of the job",
        "properties-checksum-wrong": "--fix --apply writes the right checksum",
        "timeline-layout-mismatch": "set hoodie.table.version and hoodie.timeline.layout.version"
        " to those that the instants' files have",
        "future-instant": "check the clocks of all writers, and hoodie.table.timeline.timezone: in"
        " a table with LOCAL, all need one zone",
        "instants-out-of-order": "check the clocks of all writers, and that they share a lock",
        "instant-completed-twice": "compare the two files; delete the one whose data files are"
        " gone",
        "timeline-incomplete": "restore the instants' files; until then no data file is deleted",
        "broken-instant": "restore the file; if its writer failed completing the instant, delete"
        " it instead: the next write rolls a commit back, or finishes a rollback, the next clean a"
        " clean; a pending instant can be rolled back",
        "rollback-pending": "the next write of any writer finishes it from its plan",
        "broken-archive": "restore the folder of the archived timeline",
        "archive-file-missing": "restore the file; without it, as-of reads and readers that are"
        " behind fail",
        "metadata-table-missing": "let Hudi build it again, or empty"
        " hoodie.table.metadata.partitions",
        "metadata-table-stale": "drop it (hoodie.metadata.enable=false in the next write) or have"
        " Hudi build it again: its readers miss rows",
        "visible-orphan": "compare its rows with those of its file group, then move the file out"
        " of the table",
        "missing-file": "restore the file, or roll back or restore to an older state",
        "wrong-size": "restore the file; it was truncated or overwritten",
        "torn-log": "restore the log; if its writer failed, the next write rolls that back",
        "log-without-base": "restore the base file, or an older state",
        "partition-metadata-missing": "--fix --apply creates the file if a commit wrote to the"
        " partition, a day ago, and no directory is below it",
        "replaced-group-visible": "move its files out of the table: readers show the replaced rows"
        " again",
        "unreadable-base-file": "restore the file, or an older state",
        "row-count": "restore the file: it isn't the one that its commit wrote",
        "key-range": "write the file's rows again: look-ups by key skip the file",
    },
}
"""Severity → code → remedy."""

FAULTS: Final = {
    code: Fault(severity, remedy)
    for severity, remedies in _REMEDIES.items()
    for code, remedy in remedies.items()
}
"""Every kind of finding by its code."""

FINDINGS_SCHEMA: Final = schema_of(
    code=TEXT,
    severity=TEXT,
    what=TEXT,
    partition=TEXT,
    names=TEXTS,
    bytes=COUNT,
    remedy=TEXT,
    fixable=FLAG,
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        code: A key of ``FAULTS``.
        what: What was found, a sentence without a full stop.
        names: Paths under the base path that it is about.
        bytes: Their size, as far as it matters; 0 if unknown.
        partition: The partition, ``""`` in an unpartitioned table; ``None`` if it is about none.
        fixable: Whether a repair would change these files now.
    """

    code: str
    what: str
    names: tuple[str, ...] = ()
    bytes: int = 0
    partition: str | None = None
    fixable: bool = False

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return FAULTS[self.code].severity

    @property
    def remedy(self) -> str:
        """What to do."""
        return FAULTS[self.code].remedy


def findings_table(findings: Iterable[Finding]) -> pa.Table:
    """Return findings as rows of ``FINDINGS_SCHEMA``, in their order."""
    names = FINDINGS_SCHEMA.names
    rows = [{name: getattr(each, name) for name in names} for each in findings]
    return pa.Table.from_pylist(rows, FINDINGS_SCHEMA)


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings, the worst first, then by code, partition and names."""
    return tuple(
        sorted(findings, key=lambda f: (-f.severity.rank, f.code, f.partition or "", f.names))
    )
