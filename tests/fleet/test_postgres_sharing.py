"""Servers that share a database of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.adoption_fault_suite import AdoptionFaultSuite
from tests.conformance.adoption_suite import AdoptionSuite
from tests.conformance.big_step_suite import BigStepSuite, opened  # noqa: F401 - a fixture
from tests.conformance.lost_record_suite import LostRecordSuite
from tests.conformance.shared_golden_suite import SharedGoldenSuite
from tests.conformance.shared_machine_suite import SharedMachineSuite
from tests.conformance.shared_place import NewPlace
from tests.conformance.statement_fault_suite import StatementFaultSuite
from tests.conformance.upkeep_suite import UpkeepSuite
from tests.fleet.postgres_place import PostgresPlace
from tests.kit.servers.postgres_server import PostgresServer, postgres_server

pytestmark = pytest.mark.fleet


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


@pytest.fixture
def new_place(server: PostgresServer) -> NewPlace:
    return lambda: PostgresPlace(server.url())


class TestPostgresAdoption(AdoptionSuite):
    pass


class TestPostgresAdoptionFaults(AdoptionFaultSuite):
    pass


class TestPostgresLostRecords(LostRecordSuite):
    pass


class TestPostgresStatementFaults(StatementFaultSuite):
    of_an_opening = 8


class TestPostgresSharedGolden(SharedGoldenSuite):
    pass


class TestPostgresSharedMachine(SharedMachineSuite):
    examples = 25


class TestPostgresBigSteps(BigStepSuite):
    pass


class TestPostgresUpkeep(UpkeepSuite):
    pass
