"""Many rounds of two writers with a lease, and of a writer that is killed (-9) or stalls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.servers.s3_server import S3Endpoint
from tests.s3.struck_writer import play_s3_rounds
from tests.strandline.write.concurrent.rounds import TIMES, play_s3, with_lock

pytestmark = pytest.mark.s3

Report = Callable[[str], None]


def test_20_rounds_with_a_lease(s3: S3Endpoint, tmp_path: Path, report: Report) -> None:
    options = with_lock("StorageBasedLockProvider")
    conflicts = play_s3(s3, tmp_path / "t", options, 20 * TIMES, seed=22)
    report(f"two writers on S3, {20 * TIMES} rounds: {sum(conflicts.values())} conflicts")
    assert conflicts["row"] + conflicts["file"] > 0


def test_rows_stay_right_if_a_writer_is_killed_20_times(
    open_s3, tmp_path: Path, report: Report
) -> None:
    counts = play_s3_rounds(open_s3, tmp_path, kills=20 * TIMES, seed=24)
    report(f"killed on S3: {dict(counts)}")
    assert counts["rolled back"] >= 4 * TIMES


def test_rows_stay_right_if_a_writer_stalls_10_times(
    open_s3, tmp_path: Path, report: Report
) -> None:
    """It fails if another one has rolled its write back, and leaves nothing of its own."""
    counts = play_s3_rounds(open_s3, tmp_path, stalls=10 * TIMES, seed=25)
    report(f"stalled on S3: {dict(counts)}")
    assert counts["rolled back"] >= 2 * TIMES
