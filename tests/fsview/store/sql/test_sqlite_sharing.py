"""Servers that share a file of SQLite; ``tests/fleet`` has the same on PostgreSQL."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from tests.conformance.adoption_fault_suite import AdoptionFaultSuite
from tests.conformance.adoption_suite import AdoptionSuite
from tests.conformance.big_step_suite import BigStepSuite, opened  # noqa: F401 - a fixture
from tests.conformance.lost_record_suite import LostRecordSuite
from tests.conformance.shared_golden_suite import SharedGoldenSuite
from tests.conformance.shared_machine_suite import SharedMachineSuite
from tests.conformance.shared_place import NewPlace
from tests.conformance.sharing_server import Server
from tests.conformance.statement_fault_suite import StatementFaultSuite
from tests.conformance.upkeep_suite import UpkeepSuite
from tests.fsview.store.sql.sqlite_place import SqlitePlace
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.tables.small_table import SmallTable


@pytest.fixture
def new_place(tmp_path: Path) -> NewPlace:
    numbers = count()
    return lambda: SqlitePlace(tmp_path / f"place {next(numbers)}")


class Together:
    """Has one thread read only when all the others have to wait for it, once a round."""

    def __init__(self, count: int) -> None:
        self.barrier = threading.Barrier(count, timeout=PATIENCE_S)
        self.met: set[int] = set()

    def wait(self, _: object) -> None:
        self.before_call("read", "")

    def before_call(self, kind: str, path: str) -> None:
        if kind == "read" and threading.get_ident() not in self.met:
            self.met.add(threading.get_ident())
            self.barrier.wait()


class TestSqliteAdoption(AdoptionSuite):
    def test_servers_asked_at_one_moment_read_an_instant_once(
        self, table: SmallTable, new_place: NewPlace
    ) -> None:
        count, rounds, place = 4, 3, new_place()
        with ExitStack() as stack:
            together = Together(count)
            servers = [
                stack.enter_context(
                    Server.opened(table, place, turn_s=PATIENCE_S, wait=together.wait)
                )
                for _ in range(count)
            ]
            for server in servers:
                server.check()
                server.calls()
            for n in range(rounds):
                table.write(("a", f"new{n}"), ("d", "d0"))
                together.met.clear()
                for server in servers:
                    server.storage.fail[:] = [together.before_call]
                threads = [threading.Thread(target=server.view.sync) for server in servers]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                assert sum(server.calls().get("read sync", 0) for server in servers) == 1
                for server in servers:
                    server.storage.fail.clear()
                    server.check()
                    server.calls()
            assert sum(s.metrics.get("sync_instants") for s in servers) == rounds
            assert sum(s.metrics.get("adopted_instants") for s in servers) == rounds * (count - 1)
            assert sum(s.metrics.get("reloads") for s in servers) == 0


@pytest.mark.property
class TestSqliteAdoptionFaults(AdoptionFaultSuite):
    pass


@pytest.mark.property
class TestSqliteLostRecords(LostRecordSuite):
    pass


@pytest.mark.property
class TestSqliteStatementFaults(StatementFaultSuite):
    pass


class TestSqliteSharedGolden(SharedGoldenSuite):
    pass


class TestSqliteSharedMachine(SharedMachineSuite):
    pass


@pytest.mark.property
class TestSqliteBigSteps(BigStepSuite):
    pass


class TestSqliteUpkeep(UpkeepSuite):
    pass
