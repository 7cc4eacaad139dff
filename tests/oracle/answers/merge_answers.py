"""Asks real Hudi which row is left in each case of the merge rule.

python -m tests.oracle.answers.merge_answers    record them in tests/kit/answers/merge_answers.json
python -m tests.oracle.answers.merge_answers FILE    write those of Hudi 0.15.0 that differ to FILE

A write that fails is repeated with each half of its cases, to find those that fail. Cases with
nulls are asked about for few tables only: each failure takes seconds.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JJavaError

from tests.kit.answers.merge_cases import (
    ANSWERS,
    COMMIT,
    EVENT,
    FAILS,
    GONE,
    KINDS,
    MODES,
    VERSIONS,
    Case,
    answers,
    cases_of,
    stored_rows,
    tables,
    written_rows,
)
from tests.oracle.hudi import HUDI, HUDI_0, Hudi, hudi_session

_PAYLOADS: Final = {
    EVENT: "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
    COMMIT: "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload",
}


OLD_KINDS: Final = ("int", "long", "string")
"""Kinds about which Hudi 0.15.0 is asked."""


def options(kind: str, version: int, mode: str, operation: str) -> dict[str, str]:
    """Return the options of a table without partitions, written by one task.

    Hudi 0.15.0 ignores those that it lacks, and takes the merge mode from the payload class.
    """
    return {
        "hoodie.table.name": "t",
        "hoodie.write.table.version": str(version),
        "hoodie.write.auto.upgrade": "false",
        "hoodie.write.record.merge.mode": mode,
        "hoodie.datasource.write.payload.class": _PAYLOADS[mode],
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.keygenerator.class": (
            "org.apache.hudi.keygen.NonpartitionedKeyGenerator"
        ),
        "hoodie.datasource.write.precombine.field": ",".join(KINDS[kind].fields),
        "hoodie.datasource.write.operation": operation,
        "hoodie.upsert.shuffle.parallelism": "1",
        "hoodie.bulkinsert.shuffle.parallelism": "1",
        "hoodie.delete.shuffle.parallelism": "1",
        "hoodie.embed.timeline.server": "false",
        "hoodie.write.markers.type": "DIRECT",
        "hoodie.clean.automatic": "false",
    }


def ask(
    hudi: Hudi, path: Path, kind: str, version: int, mode: str, *, nulls: bool
) -> dict[str, str]:
    """Return Hudi's answer to each case, from a new table at ``path``."""
    cases = [case for case in cases_of(kind) if nulls or not case.has_null]
    stored = stored_rows(cases, KINDS[kind])
    hudi.write(stored, path, options(kind, version, mode, "bulk_insert"), partitions=1)
    failed = set()
    for operation, hard in (("upsert", False), ("delete", True)):
        how = options(kind, version, mode, operation)
        same = [case for case in cases if case.is_hard == hard]
        for has_null in (False, True):
            some = [case for case in same if case.has_null == has_null]
            failed |= _write(hudi, path, kind, how, some)
    left = {row["id"]: row["origin"] for row in hudi.read(path)}
    return {
        case.name: FAILS if case.name in failed else left.get(case.name, GONE) for case in cases
    }


def _write(
    hudi: Hudi, path: Path, kind: str, how: dict[str, str], cases: Sequence[Case]
) -> set[str]:
    """Write the rows of some cases; return the names of those that make Hudi fail."""
    if not cases:
        return set()
    try:
        hudi.write(written_rows(cases, KINDS[kind]), path, how, partitions=1)
    except Py4JJavaError:
        if len(cases) == 1:
            return {cases[0].name}
        half = len(cases) // 2
        return _write(hudi, path, kind, how, cases[:half]) | _write(
            hudi, path, kind, how, cases[half:]
        )
    return set()


def record(hudi: Hudi, folder: Path) -> dict[str, object]:
    """Return what ``merge_answers.json`` holds.

    Raises:
        AssertionError: Versions of tables differ.
    """
    found: dict[str, dict[str, dict[str, str]]] = {mode: {} for mode in MODES}
    for kind, version, mode in tables():
        # Hudi fails on most nulls; each failure takes seconds, so the newest version must do.
        nulls = mode == COMMIT or version == VERSIONS[-1]
        given = ask(hudi, folder / f"{kind} {version} {mode}", kind, version, mode, nulls=nulls)
        for case, answer in given.items():
            by_kind = found[mode].setdefault(case, {})
            assert by_kind.setdefault(kind, answer) == answer, (kind, version, mode, case)
        sys.stdout.write(f"{kind} {version} {mode}\n")
        sys.stdout.flush()
    by_mode = {
        mode: {case: _shortened(by_case[case]) for case in sorted(by_case)}
        for mode, by_case in found.items()
    }
    return {"hudi": HUDI, "versions": list(VERSIONS), **by_mode}


def differences(hudi: Hudi, folder: Path) -> dict[str, dict[str, dict[str, str]]]:
    """Return mode → case → kind → answer, where another release's answer differs, in version 6."""
    found: dict[str, dict[str, dict[str, str]]] = {mode: {} for mode in MODES}
    for mode, kind in itertools.product(MODES, OLD_KINDS):
        usual = answers(kind, mode)
        for case, answer in ask(
            hudi, folder / f"{kind} {mode}", kind, 6, mode, nulls=False
        ).items():
            if answer != usual[case]:
                found[mode].setdefault(case, {})[kind] = answer
    return found


def ask_old(path: Path) -> dict[str, dict[str, dict[str, str]]]:
    """Return the differences of Hudi 0.15.0, asked in a process of its own."""
    subprocess.run(
        [sys.executable, "-m", "tests.oracle.answers.merge_answers", str(path)], check=True
    )
    return json.loads(path.read_text("utf-8"))


def _shortened(given: dict[str, str]) -> str | dict[str, str]:
    return next(iter(given.values())) if len(set(given.values())) == 1 else given


def main(arguments: Sequence[str]) -> None:
    """Record the answers, or write those of Hudi 0.15.0 to a file."""
    release = HUDI_0 if arguments else HUDI
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with hudi_session(folder / "warehouse", release) as hudi:
            found = differences(hudi, folder) if arguments else record(hudi, folder)
        if arguments:
            Path(arguments[0]).write_text(json.dumps(found), "utf-8")
            return
        _save(found)
        _save({**found, HUDI_0: ask_old(folder / "old")})


def _save(found: Mapping[str, object]) -> None:
    ANSWERS.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
