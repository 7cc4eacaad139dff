"""Early conflicts: the later of two writes of a file group fails before its files are written."""

from __future__ import annotations

import threading

import pytest

from strandline.commit.settings import EARLY_STRATEGIES
from strandline.write.engine.local import LocalEngine
from strandline.write.tasks.write_task import WriteTask
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.tables import reader
from tests.strandline.server.process.services import status_of
from tests.strandline.write.embedded.test_service_markers import EARLY, SERVED, Watched, names
from tests.strandline.write.tables import client, row, stored, table
from timeline.errors import ConfigError, StorageUnavailableError, WriteConflictError

PERIOD_MS = "write__concurrency__async__conflict__detector__period_ms"
# The service looks again for ten periods after it was last asked.
SERVICE = {**EARLY, **SERVED, PERIOD_MS: 1000}
COMMITS = {"write__concurrency__early__conflict__check__commit__conflict": "true"}
LOCK = {name: EARLY[name] for name in EARLY if "early" not in name}
served = pytest.mark.property  # each starts a service
KINDS = [pytest.param(EARLY, id="direct"), pytest.param(SERVICE, id="service", marks=served)]
TYPES = [{}, {"datasource__write__table__type": "MERGE_ON_READ"}]

FIRST = table(row("a"), row("b", "us"), row("c", "asia"))
OLDER = table(row("a", ts=2), row("b", "us", ts=2), row("c", "asia", ts=2))
LATER = table(row("a", ts=3), row("b", "us", ts=3), row("c", "asia", ts=3))


class Interrupted(LocalEngine):
    """Does something once when all data files of the next write are there; one task a write."""

    def __init__(self):
        super().__init__(tasks=1, cores=1)
        self.meanwhile = None

    def transform(self, data, task, schema):
        done = super().transform(data, task, schema)
        if isinstance(task, WriteTask) and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return done


def found_by(service):
    """Wait until a service has found a conflict."""
    pause = threading.Event()
    for _ in range(int(PATIENCE_S * 100)):
        if service is None or status_of(service)["markers"]["conflicts"]:
            return
        pause.wait(0.01)
    raise AssertionError("no conflict was found")


@pytest.fixture
def base(tmp_path):
    return stored(tmp_path / "t", FIRST)


@pytest.mark.parametrize("options", KINDS)
@pytest.mark.parametrize("of_type", TYPES, ids=["files", "logs"])
def test_the_later_of_two_writes_fails_early(tmp_path, options, of_type):
    base, engine, created = stored(tmp_path / "t", FIRST, **of_type), Interrupted(), []

    def at_file(number):
        created.append(number)
        # The service looks in the background, as Hudi's does.
        found_by(later.service)

    later = client(base, Watched(base, at_file), LocalEngine(tasks=1, cores=1), **options)
    older = client(base, engine=engine, **options)

    def write_later():
        with pytest.raises(WriteConflictError, match="conflicts with another writer, by its ma"):
            later.upsert(LATER)

    with older, later:
        engine.meanwhile = write_later
        instant = older.upsert(OLDER).instant
        # The service's first check may be done before the first marker is written, or after it.
        assert len(created) <= (0 if options is EARLY else 1)
        assert instant in reader.committed(base)
        assert reader.leftovers(base) == []
        assert later.upsert(LATER).rows_updated == 3
    assert names(base) == ["a@3", "b@3", "c@3"]
    assert bool(list(reader.logs(base))) == bool(of_type)


@pytest.mark.parametrize("options", KINDS)
@pytest.mark.parametrize("early", [True, False])
def test_a_commit_during_the_write_counts_if_it_is_looked_for(base, options, early):
    created = []

    def at_file(number):
        created.append(number)
        if number == 1:
            with client(base, **LOCK) as other:
                other.upsert(OLDER)
            found_by(c.service if early else None)

    chosen = {**options, **(COMMITS if early else {})}
    with client(base, Watched(base, at_file), LocalEngine(tasks=1, cores=1), **chosen) as c:
        with pytest.raises(WriteConflictError, match="by its markers" if early else "UPSERT of"):
            c.upsert(LATER)
        assert len(created) == (1 if early else 3)
        assert names(base) == ["a@2", "b@2", "c@2"]
        assert reader.leftovers(base) == []


@pytest.mark.parametrize("options", KINDS)
def test_a_write_that_failed_is_no_conflict(base, options):
    """Under LAZY its markers and its heartbeat stay until a clean rolls it back."""
    lazy = {**options, "clean__failed__writes__policy": "LAZY"}

    def fail(number):
        if number == 3:
            raise StorageUnavailableError("injected")

    with (
        client(base, Watched(base, fail), LocalEngine(tasks=1, cores=1), **lazy) as c,
        pytest.raises(StorageUnavailableError),
    ):
        c.upsert(OLDER)
    assert reader.leftovers(base)
    with client(base, **lazy) as c:
        assert c.upsert(LATER).conflicts == ()
    assert names(base) == ["a@3", "b@3", "c@3"]


def test_writes_of_other_file_groups_are_no_conflict(base):
    engine = Interrupted()
    with client(base, engine=engine, **EARLY) as older, client(base, **EARLY) as later:
        engine.meanwhile = lambda: later.upsert(table(row("c", "asia", ts=3), row("n", "asia")))
        older.upsert(table(row("a", ts=2), row("b", "us", ts=2), row("m")))
    assert names(base) == ["a@2", "b@2", "c@3", "m@1", "n@1"]


def test_single_writers_do_not_look(base):
    """As in Hudi, where the option has no effect without optimistic concurrency control."""
    alone = {name: value for name, value in EARLY.items() if "mode" not in name}
    engine = Interrupted()
    with client(base, engine=engine, **alone) as older, client(base, **alone) as later:
        engine.meanwhile = lambda: later.upsert(LATER)
        with pytest.raises(WriteConflictError, match="UPSERT of commit"):
            older.upsert(OLDER)
    assert names(base) == ["a@3", "b@3", "c@3"]


@pytest.mark.parametrize("name", EARLY_STRATEGIES)
def test_hudis_strategies_are_taken(base, name):
    with client(base, **EARLY, write__concurrency__early__conflict__detection__strategy=name) as c:
        assert c.upsert(LATER).rows_updated == 3


def test_other_strategies_are_refused_by_name(base):
    option = {"write__concurrency__early__conflict__detection__strategy": "com.example.Mine"}
    with pytest.raises(ConfigError, match=r"strategy=com\.example\.Mine; allowed: Simple"):
        client(base, **EARLY, **option)
