"""The lock by ZooKeeper on a real server, alone and beside Hudi's provider."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss

from strandline.commit.lock.base import LockRetries, TableLock, Wait
from strandline.commit.lock.open import open_lock
from strandline.commit.lock.zookeeper import ZookeeperAddress, ZookeeperLock, implicit_path
from strandline.write.options.client_options import parse_options
from tests.conformance.lock_suite import SharedLockSuite
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.servers.zookeeper_server import ZookeeperServer, zookeeper_server
from tests.oracle.hudi import Hudi
from tests.oracle.locks.lock_providers import PACKAGE, hudi_lock
from timeline.clock import Clock
from timeline.errors import LockError
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.oracle

BASE = "/hudi/locks"


@pytest.fixture(scope="module")
def server(hudi: Hudi, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZookeeperServer]:
    with zookeeper_server(hudi.jvm, tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture
def subject(server: ZookeeperServer, request: pytest.FixtureRequest) -> Subject:
    return Subject(server.hosts, f"{BASE}/{request.node.name}")


@dataclass(frozen=True)
class Subject:
    hosts: str
    path: str

    def open(self, clock: Clock | None = None, wait: Wait = time.sleep) -> ZookeeperLock:
        address = ZookeeperAddress(self.hosts, self.path, 2.0, 10.0, 3, 0.1, 0.5)
        return ZookeeperLock(address, clock)

    @property
    def options(self) -> dict[str, str]:
        base, _, key = self.path.rpartition("/")
        prefix = "hoodie.write.lock.zookeeper."
        return {
            f"{prefix}url": self.hosts,
            f"{prefix}base_path": base,
            f"{prefix}lock_key": key,
            f"{prefix}session_timeout_ms": "2000",
            "hoodie.write.lock.provider": PACKAGE + "ZookeeperBasedLockProvider",
            "hoodie.write.lock.wait_time_ms_between_retry": "100",
            "hoodie.write.lock.max_wait_time_ms_between_retry": "500",
            "hoodie.write.lock.num_retries": "3",
        }


class TestZookeeperLock(SharedLockSuite):
    def expire(self, clock: ManualClock) -> None:
        """The server ends the session of a killed client while the next one waits."""


def test_hudi_waits_for_us(hudi: Hudi, subject: Subject) -> None:
    theirs = hudi_lock(hudi, "ZookeeperBasedLockProvider", subject.options)
    with contextlib.closing(subject.open()) as ours, theirs as hudi_s:
        assert ours.try_lock(0)
        assert not hudi_s.try_lock(10)
        assert ours.is_held()
        ours.unlock()
        assert hudi_s.try_lock(60_000)
        assert not ours.try_lock(0)
        hudi_s.unlock()
        assert ours.try_lock(60)


def test_we_wait_for_hudi(hudi: Hudi, subject: Subject) -> None:
    with contextlib.closing(subject.open()) as ours:
        with hudi_lock(hudi, "ZookeeperBasedLockProvider", subject.options) as theirs:
            assert theirs.try_lock(60_000)
            assert not ours.try_lock(0)
            assert ours.holder().startswith("application_id=")
        # Closing Hudi's client ends its session, and with it the lock.
        assert ours.try_lock(60)


def test_many_clients_of_both_queue(hudi: Hudi, subject: Subject) -> None:
    """The lock goes round in the order of the queue, whoever made the nodes."""
    held: list[str] = []
    with contextlib.ExitStack() as stack:
        ours = [stack.enter_context(contextlib.closing(subject.open())) for _ in range(3)]
        theirs = [
            stack.enter_context(hudi_lock(hudi, "ZookeeperBasedLockProvider", subject.options))
            for _ in range(2)
        ]
        for _ in range(5):
            for one in (*ours, *theirs):
                assert one.try_lock(60_000 if one in theirs else 60)
                held.append(type(one).__name__)
                others = [other for other in (*ours, *theirs) if other is not one]
                assert not any(other.try_lock(0) for other in others)
                one.unlock()
    assert len(held) == 25


def test_implicit_base_path_is_that_of_hudi(
    hudi: Hudi, server: ZookeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    implicit = hudi.jvm.org.apache.hudi.client.transaction.lock
    named = implicit.ZookeeperBasedImplicitBasePathLockProvider.getLockBasePath
    for path in ("/t", "s3a://b/t", "S3A://b/t", "s3://b/a long path with an ü, longer than 32"):
        assert implicit_path(path) == f"{named(path)}/lock_key"
    base = str(tmp_path_factory.mktemp("table"))
    options = {
        "hoodie.write.lock.provider": PACKAGE + "ZookeeperBasedImplicitBasePathLockProvider",
        "hoodie.write.lock.zookeeper.url": server.hosts,
    }
    name = "ZookeeperBasedImplicitBasePathLockProvider"
    lock = open_lock(parse_options(options | FAST), LocalStorage(base))
    hudi_s = hudi_lock(hudi, name, {"hoodie.base.path": base, **options})
    with contextlib.closing(lock), hudi_s as theirs:
        with lock.held("the test"):
            lock.check()
            assert not theirs.try_lock(10)
        assert theirs.try_lock(60_000)
        with pytest.raises(LockError, match=r"2 attempts"), lock.held("the test"):
            pass


FAST = {
    "hoodie.write.lock.wait_time_ms": "0",
    "hoodie.write.lock.client.num_retries": "1",
    "hoodie.write.lock.client.wait_time_ms_between_retry": "0",
}


def test_ended_session_is_a_lost_lock(server: ZookeeperServer, subject: Subject) -> None:
    with contextlib.closing(subject.open()) as one, contextlib.closing(subject.open()) as two:
        lock = TableLock(one, LockRetries(1, 0))
        with lock.held("commit 1"):
            lock.check()
            server.end_session(one._session[0])
            assert two.try_lock(60)
            with pytest.raises(LockError, match="lost during commit 1"):
                lock.check()
        assert two.is_held()
        two.unlock()
        with TableLock(one, LockRetries(20, 0, 0.1)).held("commit 2"):
            assert one.is_held()


def test_unreachable_server_is_a_lost_lock(
    hudi: Hudi, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with zookeeper_server(hudi.jvm, tmp_path_factory.mktemp("zookeeper")) as server:
        address = ZookeeperAddress(server.hosts, "/t", 2.0, 0.5, 1, 0.1, 0.1)
        provider = ZookeeperLock(address)
        assert provider.try_lock(0)
    assert not provider.is_held()
    with pytest.raises(LockError, match="ZooKeeper at"):
        provider.unlock()
    with pytest.raises(LockError, match="ZooKeeper at"):
        provider.try_lock(0)
    provider.close()


class LostAnswers(ZookeeperLock):
    """A lock whose first request of each of these kinds is carried out and not answered."""

    lost: set[str]

    def _answer(self, name: str, *args: Any, **options: Any) -> Any:
        answer = super()._answer(name, *args, **options)
        if name in self.lost:
            self.lost.remove(name)
            raise ConnectionLoss
        return answer


def test_lost_answers_leave_one_node_and_then_none(subject: Subject) -> None:
    """Curator's protection: a repeated creation finds the node of the first by its name."""
    one = LostAnswers(ZookeeperAddress(subject.hosts, subject.path, 2.0, 10.0, 3, 0.1, 0.5))
    one.lost = {"create", "delete", "get_children"}
    with contextlib.closing(one), contextlib.closing(subject.open()) as two:
        assert one.try_lock(0)
        assert one.is_held()
        assert len(one._children()) == 1
        assert not two.try_lock(0)
        one.unlock()
        assert one.lost == set()
        assert one._children() == []
        assert two.try_lock(0)
