"""Many rounds of two writers of ours with each lock provider, and with one of them killed (-9).

Those on S3 are in ``tests/s3``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.servers.zookeeper_server import zookeeper_server
from tests.oracle.hudi import Hudi
from tests.strandline.write.concurrent.killed_rounds import play_killed
from tests.strandline.write.concurrent.rounds import TIMES, play_processes, play_threads, with_lock

pytestmark = pytest.mark.oracle

Report = Callable[[str], None]

ZOOKEEPER = {
    "ZookeeperBasedLockProvider": {
        "hoodie.write.lock.zookeeper.base_path": "/hudi/rounds",
        "hoodie.write.lock.zookeeper.lock_key": "t",
    },
    "ZookeeperBasedImplicitBasePathLockProvider": {},
}
"""Provider → the options that it needs beside the servers."""


def test_100_rounds_with_a_lock_by_a_file(tmp_path: Path, report: Report) -> None:
    options = with_lock("FileSystemBasedLockProvider")
    conflicts = play_processes(tmp_path / "t", options, 100 * TIMES, seed=100)
    report(f"two writers, {100 * TIMES} rounds: {sum(conflicts.values())} conflicts")


def test_20_rounds_on_version_6(tmp_path: Path) -> None:
    options = with_lock("FileSystemBasedLockProvider", **{"hoodie.write.table.version": "6"})
    play_processes(tmp_path / "t", options, 20 * TIMES, seed=6)


def test_20_rounds_with_cleans(tmp_path: Path) -> None:
    cleans = {"hoodie.clean.automatic": "true", "hoodie.clean.commits.retained": "2"}
    options = with_lock("FileSystemBasedLockProvider", **cleans)
    play_processes(tmp_path / "t", options, 20 * TIMES, seed=20)


def test_20_rounds_of_threads(tmp_path: Path) -> None:
    play_threads(tmp_path / "t", with_lock("InProcessLockProvider"), 20 * TIMES, seed=21)


@pytest.fixture(scope="module")
def zookeeper(hudi: Hudi, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with zookeeper_server(hudi.jvm, tmp_path_factory.mktemp("zookeeper")) as running:
        yield running.hosts


@pytest.mark.parametrize("provider", ZOOKEEPER)
def test_20_rounds_with_zookeeper(tmp_path: Path, zookeeper: str, provider: str) -> None:
    url = {"hoodie.write.lock.zookeeper.url": zookeeper}
    options = with_lock(provider, **url, **ZOOKEEPER[provider])
    play_processes(tmp_path / "t", options, 20 * TIMES, seed=23)


@pytest.mark.parametrize("version", ["6", "9"])
@pytest.mark.parametrize("locked", [True, False], ids=["lock", "no lock"])
def test_rows_stay_right_if_one_of_two_writers_is_killed_50_times(
    tmp_path: Path, version: str, locked: bool, report: Report
) -> None:
    """At a storage call of its own, or, with a lock, at one of the survivor's."""
    named = {"hoodie.write.table.version": version}
    options = with_lock("FileSystemBasedLockProvider", **named) if locked else named
    counts = play_killed(tmp_path / "t", options, 50 * TIMES, seed=int(version) + 100 * locked)
    # Most calls of a write lie between its request and its completion.
    assert counts["rolled back"] >= 10 * TIMES
    assert not counts["locks"] or locked
    report(f"killed, version {version}, {'' if locked else 'no '}lock: {dict(counts)}")
