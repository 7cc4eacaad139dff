"""Few rounds of two writers, and of a writer that is killed; tests/oracle plays many."""

from __future__ import annotations

import pytest

from tests.kit.servers.s3_server import s3_server
from tests.strandline.write.concurrent.killed_rounds import play_killed
from tests.strandline.write.concurrent.rounds import (
    TIMES,
    play_processes,
    play_s3,
    play_threads,
    with_lock,
)

pytestmark = pytest.mark.property

ROUNDS = 6 * TIMES
KILLS = 4 * TIMES


@pytest.mark.parametrize("version", ["6", "9"])
def test_processes_with_a_lock_by_a_file(tmp_path, version):
    options = with_lock("FileSystemBasedLockProvider", **{"hoodie.write.table.version": version})
    conflicts = play_processes(tmp_path / "t", options, ROUNDS, seed=int(version))
    assert conflicts["row"] + conflicts["file"] > 0


def test_threads_with_a_lock_in_the_process(tmp_path):
    play_threads(tmp_path / "t", with_lock("InProcessLockProvider"), ROUNDS, seed=1)


def test_processes_with_a_lease(tmp_path):
    with s3_server() as server:
        play_s3(server, tmp_path / "t", with_lock("StorageBasedLockProvider"), 2 * TIMES, seed=1)


@pytest.mark.parametrize(
    "options", [with_lock("FileSystemBasedLockProvider"), {}], ids=["lock", "no lock"]
)
def test_rows_stay_right_if_a_writer_is_killed(tmp_path, options):
    play_killed(tmp_path / "t", options, KILLS, seed=1)
