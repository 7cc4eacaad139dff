"""Many rounds of our writer and of real Hudi on one table, with each lock provider of both."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.servers.zookeeper_server import zookeeper_server
from tests.oracle.hudi import HUDI_0, Hudi
from tests.strandline.write.concurrent.rounds import TIMES, with_lock

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.oracle

Report = Callable[[str], None]
Play = Callable[..., Counter[str]]


ZOOKEEPER = {
    "ZookeeperBasedLockProvider": {
        "hoodie.write.lock.zookeeper.base_path": "/hudi/mixed",
        "hoodie.write.lock.zookeeper.lock_key": "t",
    },
    "ZookeeperBasedImplicitBasePathLockProvider": {},
}
"""Provider → the options that it needs beside the servers."""


@pytest.fixture(scope="module")
def play() -> Play:
    """The function that plays rounds, imported late as it needs PySpark."""
    from tests.oracle.concurrent.mixed_rounds import play_mixed

    return play_mixed


def test_100_rounds_with_a_lock_by_a_file(
    hudi: Hudi, play: Play, tmp_path: Path, report: Report
) -> None:
    """On five tables, as Hudi's writes take longer as a table grows."""
    options, counts = with_lock("FileSystemBasedLockProvider"), Counter[str]()
    for seed in range(100, 105):
        counts += play(hudi, tmp_path / f"t{seed}", options, 20 * TIMES, seed)
    report(f"Hudi and ours, {100 * TIMES} rounds: {dict(counts)}")
    ends = ("both committed", "ours refused", "Hudi's refused")
    assert min(counts[end] for end in ends) >= TIMES, counts


def test_20_rounds_on_version_6(hudi: Hudi, play: Play, tmp_path: Path) -> None:
    options = with_lock("FileSystemBasedLockProvider", **{"hoodie.write.table.version": "6"})
    check(play(hudi, tmp_path / "t", options, 20 * TIMES, seed=6))


@pytest.fixture(scope="module")
def zookeeper(hudi: Hudi, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with zookeeper_server(hudi.jvm, tmp_path_factory.mktemp("zookeeper")) as running:
        yield running.hosts


@pytest.mark.parametrize("provider", ZOOKEEPER)
def test_20_rounds_with_zookeeper(
    hudi: Hudi, play: Play, tmp_path: Path, zookeeper: str, provider: str
) -> None:
    url = {"hoodie.write.lock.zookeeper.url": zookeeper}
    options = with_lock(provider, **url, **ZOOKEEPER[provider])
    check(play(hudi, tmp_path / "t", options, 20 * TIMES, seed=23))


def test_20_rounds_with_an_older_release(tmp_path: Path) -> None:
    """One process has one release."""
    rounds = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.oracle.concurrent.mixed_rounds",
            HUDI_0,
            tmp_path,
            str(20 * TIMES),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert rounds.returncode == 0, rounds.stdout + rounds.stderr[-8000:]


def test_a_key_that_both_insert_at_once_is_there_twice(hudi: Hudi, tmp_path: Path) -> None:
    """As with two writers of Hudi: each opens a file group, and file groups don't conflict."""
    from tests.oracle.concurrent.mixed_rounds import insert_one_key

    rows = insert_one_key(hudi, tmp_path / "t", with_lock("FileSystemBasedLockProvider"))
    assert sorted(each["name"] for each in rows) == ["one", "two"]


def check(counts: Counter[str]) -> None:
    """Check that 20 rounds ended in both ways; who is refused depends on how they overlap."""
    refused = counts["ours refused"] + counts["Hudi's refused"]
    assert min(counts["both committed"], refused) >= TIMES, counts
