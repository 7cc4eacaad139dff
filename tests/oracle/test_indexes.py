"""Each index chooses the file groups that real Hudi's does; either writer follows the other.

Of a table that one of them made there are two copies. Hudi writes a batch to one copy, our writer
to the other: afterwards the same file groups hold the same rows.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.records.meta_fields import PARTITION_PATH, RECORD_KEY
from tests.kit.answers.bucket_cases import answers
from tests.kit.tables import reader
from tests.oracle.answers.bucket_answers import ask
from tests.oracle.hudi import Hudi
from tests.oracle.tables import SCHEMA, ours, theirs, writer

pytestmark = pytest.mark.oracle

CITIES: Final = ("amsterdam", "bern", "cork")
GROUPS: Final = 3
"""File groups in each partition of a new table, and buckets."""


@dataclass(frozen=True)
class Case:
    """An index, a version of the table, and who makes it."""

    index: str
    version: int
    maker: str
    mode: str = "EVENT_TIME_ORDERING"
    moves: bool = True

    def options(self) -> dict[str, str]:
        moves = str(self.moves).lower()
        buckets = {"hoodie_bucket_index_num_buckets": str(GROUPS)}
        return {
            **(buckets if self.index == "BUCKET" else {}),
            "hoodie_index_type": self.index,
            "hoodie_simple_index_update_partition_path": moves,
            "hoodie_bloom_index_update_partition_path": moves,
            "hoodie_write_record_merge_mode": self.mode,
            "hoodie_parquet_small_file_limit": "0",
        }


CASES: Final = [
    Case("SIMPLE", 9, "hudi"),
    Case("BLOOM", 6, "ours"),
    Case("BLOOM", 9, "hudi"),
    Case("BUCKET", 6, "hudi"),
    Case("BUCKET", 8, "ours"),
    Case("BUCKET", 9, "hudi", "COMMIT_TIME_ORDERING"),
    Case("GLOBAL_SIMPLE", 6, "ours"),
    Case("GLOBAL_SIMPLE", 8, "hudi", "COMMIT_TIME_ORDERING"),
    Case("GLOBAL_SIMPLE", 9, "hudi"),
    Case("GLOBAL_SIMPLE", 9, "ours", moves=False),
    Case("GLOBAL_BLOOM", 9, "hudi"),
    Case("GLOBAL_BLOOM", 6, "hudi", "COMMIT_TIME_ORDERING", moves=False),
]


def rows(numbers: Iterable[int], ts: int, note: str, shift: int = 0) -> pa.Table:
    """Return a row of each number; ``shift`` moves it to another city."""
    made = [(f"r{n:03}", CITIES[(n + shift) % 3], ts, float(n), f"{note} {n}") for n in numbers]
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in made], SCHEMA)


BATCHES: Final = (
    ("upsert", rows(range(0, 40, 3), 5, "same city")),
    ("upsert", rows(range(0, 60, 4), 6, "next city", shift=1)),
    ("upsert", rows(range(1, 30, 4), 1, "late and elsewhere", shift=2)),
    ("upsert", pa.concat_tables([rows(range(50, 56), 7, "a"), rows(range(50, 56), 8, "b", 1)])),
    ("delete", rows(range(0, 70, 5), 9, "gone", shift=1)),
    ("delete", rows(range(0, 70, 5), 9, "gone")),
    ("insert", rows(range(100, 120), 9, "new")),
)


def groups(path: Path) -> dict[tuple[str, str], list[Any]]:
    """Return (partition, file id) → the rows of its newest file, with key and partition path."""
    names = [RECORD_KEY, PARTITION_PATH, *SCHEMA.names]
    return {
        group: sorted(
            tuple(row[name] for name in names)
            for row in pq.read_table(path / group[0] / file, partitioning=None).to_pylist()
        )
        for group, file in reader.newest_files(path).items()
    }


class Writers:
    """Both writers with the options of one case."""

    def __init__(self, hudi: Hudi, case: Case) -> None:
        self.hudi, self.case = hudi, case

    def ours(self, path: Path, operation: str, data: pa.Table) -> None:
        with writer(path, ours(self.case.version, **self.case.options())) as client:
            getattr(client, operation)(data)

    def theirs(self, path: Path, operation: str, data: pa.Table) -> None:
        options = theirs(self.case.version, operation, **self.case.options())
        self.hudi.write(data, path, options, partitions=1)

    def make(self, path: Path) -> None:
        """Make a table with several file groups in each partition."""
        make = self.ours if self.case.maker == "ours" else self.theirs
        if self.case.index == "BUCKET":
            make(path, "insert", rows(range(48), 3, "first"))
            return
        for first in range(0, 48, 16):
            make(path, "insert", rows(range(first, first + 16), 3, "first"))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_file_groups_hold_the_same_rows_afterwards(hudi: Hudi, tmp_path: Path, case: Case) -> None:
    writers, left, right = Writers(hudi, case), tmp_path / "hudi", tmp_path / "ours"
    writers.make(left)
    for number, (operation, data) in enumerate(BATCHES):
        shutil.rmtree(right, ignore_errors=True)
        shutil.copytree(left, right)
        before = set(groups(left))
        writers.theirs(left, operation, data)
        writers.ours(right, operation, data)
        found = [
            _comparable(groups(path), before, by_bucket=case.index == "BUCKET")
            for path in (right, left)
        ]
        assert found[0] == found[1], f"after {operation} {number}"
        read = [sorted(hudi.read(path), key=repr) for path in (right, left)]
        assert read[0] == read[1], f"after {operation} {number}"
        if number % 2:
            # The next batch goes on from what we wrote.
            left, right = right, left


def _comparable(
    found: dict[tuple[str, str], list[Any]], before: set[tuple[str, str]], *, by_bucket: bool
) -> dict[tuple[str, str], list[Any]]:
    """Return groups with equal names on both sides: a new one's is its bucket, or none."""
    named: dict[tuple[str, str], list[Any]] = {}
    for (partition, file_id), held in found.items():
        name = file_id if (partition, file_id) in before else file_id[:8] if by_bucket else ""
        named[partition, name] = sorted([*named.get((partition, name), []), *held])
    return {group: held for group, held in named.items() if held}


def test_hudi_takes_the_index_of_our_tables_from_their_properties(
    hudi: Hudi, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    case = Case("BUCKET", 9, "ours")
    Writers(hudi, case).make(path)
    before = set(groups(path))
    for version_options in ({}, {"hoodie_parquet_small_file_limit": "0"}):
        options = theirs(9, "upsert", **version_options)
        hudi.write(rows(range(60), 4, "by default"), path, options, partitions=1)
    found = groups(path)
    assert set(found) == before
    assert {int(file_id[:8]) for _, file_id in found} == set(range(GROUPS))


def test_hudi_answers_as_recorded(hudi: Hudi) -> None:
    assert ask(hudi) == answers()
