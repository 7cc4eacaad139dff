"""``Finding``: one thing that is wrong with a table; ``FAULTS``: all kinds of them.

A fault's code never changes its meaning. docs/doctor.md describes each code.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from strandline.table_services.doctor.severity import Severity

_SWEPT: Final = "--fix --apply deletes it"
INFO, WARNING, ERROR = Severity


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of finding.

    Attributes:
        code: Its name.
        severity: How bad it is.
        remedy: What to do, a clause without a full stop.
    """

    code: str
    severity: Severity
    remedy: str


FAULTS: Final = {
    fault.code: fault
    for fault in (
        Fault(
            "properties-missing",
            WARNING,
            "copy hoodie.properties.backup to hoodie.properties; a next write that changes the"
            " properties does it, too",
        ),
        Fault(
            "properties-unreadable",
            ERROR,
            "restore .hoodie/hoodie.properties, from a backup of yours or another table of the job",
        ),
        Fault("properties-checksum-wrong", ERROR, "--fix --apply writes the right checksum"),
        Fault("properties-checksum-missing", INFO, "--fix --apply adds the checksum"),
        Fault(
            "timeline-layout-mismatch",
            ERROR,
            "set hoodie.table.version and hoodie.timeline.layout.version to those that the"
            " instants' files have",
        ),
        Fault(
            "future-instant",
            ERROR,
            "check the clocks of all writers, and hoodie.table.timeline.timezone: in a table with"
            " LOCAL, all need one zone",
        ),
        Fault(
            "instants-out-of-order",
            ERROR,
            "check the clocks of all writers, and that they share a lock",
        ),
        Fault(
            "instant-completed-twice",
            ERROR,
            "compare the two files; delete the one whose data files are gone",
        ),
        Fault(
            "timeline-incomplete",
            ERROR,
            "restore the instants' files; until then no data file is deleted",
        ),
        Fault("broken-instant", ERROR, "restore the file; a pending instant can be rolled back"),
        Fault(
            "missing-predecessor",
            WARNING,
            "create the empty file if the instant is to be rolled back; else leave it",
        ),
        Fault(
            "service-pending",
            WARNING,
            "execute its plan (strandline compact TABLE --apply or clean TABLE --apply), or roll it"
            " back",
        ),
        Fault(
            "write-pending",
            WARNING,
            "make sure that no job has it, as an idle Flink job does; then the next write rolls it"
            " back, or in Python WriteClient(LocalEngine(), TABLE).rollback(INSTANT)",
        ),
        Fault("rollback-pending", ERROR, "the next write of any writer finishes it from its plan"),
        Fault("temp-file-left", WARNING, _SWEPT),
        Fault("marker-left", WARNING, f"{_SWEPT}, or else the next write of this package does"),
        Fault("heartbeat-left", WARNING, _SWEPT),
        Fault("broken-archive", ERROR, "restore the folder of the archived timeline"),
        Fault(
            "archive-file-missing",
            ERROR,
            "restore the file; without it, as-of reads and readers that are behind fail",
        ),
        Fault(
            "metadata-table-missing",
            ERROR,
            "let Hudi build it again, or empty hoodie.table.metadata.partitions",
        ),
        Fault(
            "metadata-table-stale",
            ERROR,
            "drop it (hoodie.metadata.enable=false in the next write) or have Hudi build it again:"
            " its readers miss rows",
        ),
        Fault(
            "orphan-file",
            WARNING,
            "--fix --apply deletes it when it is a day old, if a rollback has undone its write;"
            " else find out first whether the timeline has lost that instant",
        ),
        Fault(
            "visible-orphan",
            ERROR,
            "compare its rows with those of its file group, then move the file out of the table",
        ),
        Fault(
            "table-within",
            WARNING,
            "move the other table out of this one's base path: Hudi takes its partitions for this"
            " one's",
        ),
        Fault("missing-file", ERROR, "restore the file, or roll back or restore to an older state"),
        Fault("wrong-size", ERROR, "restore the file; it was truncated or overwritten"),
        Fault(
            "torn-log",
            ERROR,
            "restore the log; if its writer failed, the next write rolls that back",
        ),
        Fault(
            "duplicate-base-file",
            WARNING,
            "--fix --apply deletes those that the commit, savepoints and plans don't name, if the"
            " named one has the right size; Hudi reads any of them",
        ),
        Fault(
            "duplicate-file-name",
            WARNING,
            "find out which partition it was copied from; move the copy out of the table",
        ),
        Fault("log-without-base", ERROR, "restore the base file, or an older state"),
        Fault(
            "partition-metadata-missing",
            ERROR,
            "--fix --apply creates the file if a commit wrote to the partition, a day ago, and no"
            " directory is below it",
        ),
        Fault("replaced-group", WARNING, "run a clean: strandline clean TABLE --apply"),
        Fault(
            "replaced-group-visible",
            ERROR,
            "move its files out of the table: readers show the replaced rows again",
        ),
        Fault(
            "small-files",
            WARNING,
            "cluster the partition, or raise hoodie.parquet.small.file.limit for its next inserts",
        ),
        Fault("unreadable-base-file", ERROR, "restore the file, or an older state"),
        Fault("row-count", ERROR, "restore the file: it isn't the one that its commit wrote"),
        Fault("key-range", ERROR, "write the file's rows again: look-ups by key skip the file"),
    )
}
"""Every kind of finding by its code."""

FINDINGS_SCHEMA: Final = pa.schema(
    [
        ("code", pa.string()),
        ("severity", pa.string()),
        ("what", pa.string()),
        ("partition", pa.string()),
        ("names", pa.list_(pa.string())),
        ("bytes", pa.int64()),
        ("remedy", pa.string()),
        ("fixable", pa.bool_()),
    ]
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
    rows = [
        {
            "code": found.code,
            "severity": found.severity.value,
            "what": found.what,
            "partition": found.partition,
            "names": found.names,
            "bytes": found.bytes,
            "remedy": found.remedy,
            "fixable": found.fixable,
        }
        for found in findings
    ]
    return pa.Table.from_pylist(rows, FINDINGS_SCHEMA)


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings, the worst first, then by code, partition and names."""
    return tuple(
        sorted(findings, key=lambda f: (-f.severity.rank, f.code, f.partition or "", f.names))
    )
