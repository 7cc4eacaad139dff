"""Two of Hudi's jobs at a time on our service, and services that are replaced or killed."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from fsview.local_view import LocalView
from fsview.table_view import TableView
from tests.oracle.driver_log import fallbacks
from tests.oracle.drop_in.jobs import (
    BESIDE,
    CITIES,
    KINDS,
    QUIET,
    RETRYING,
    ROUNDS,
    Job,
    Kind,
    java_errors,
    keyed,
    locked,
    pointed_at,
    write_beside,
    written_beside,
)
from tests.oracle.drop_in.recording_relay import OK, Exchange, asked
from tests.oracle.drop_in.service import Service, another, check_asked, served
from tests.oracle.hudi import HUDI, Hudi
from timeline.instant import ROLLBACK
from timeline.storage.open import open_storage

pytestmark = pytest.mark.oracle


class Overtaking:
    """Has the first of two writers commit while the second, which began before, is held.

    The second gets the answer to its first look-up only then: all that it asks, it asks at an
    instant that is no longer the table's last.

    Attributes:
        behind: How many look-ups came from a writer that had been overtaken.
    """

    def __init__(self, first: str, second: str) -> None:
        self._first, self._second = f"p={first}", f"p={second}"
        self._changed = threading.Condition()
        self._began: Counter[str] = Counter()
        self._ended: Counter[str] = Counter()
        self._writer_of: dict[str, str] = {}
        self._committed = ""
        self.behind = 0

    def __call__(self, request: Exchange) -> None:
        params = request.params
        directory = params.get("markerdirpath", "")
        with self._changed:
            if request.path.endswith("/marker/create"):
                self._writer_of[directory] = params["markername"].split("/")[0]
            elif request.path.endswith("/marker/dir/delete"):
                self._note_end(directory)
            elif request.path.endswith("/datafiles/beforeoron/latest"):
                self._hold(params["partition"])
                self.behind += params["lastinstantts"] < self._committed

    def _note_end(self, directory: str) -> None:
        """A writer deletes its markers once it has committed."""
        writer = self._writer_of.pop(directory, "")
        self._ended[writer] += 1
        if writer == self._first:
            self._committed = directory.rpartition("/")[2]
        self._changed.notify_all()

    def _hold(self, writer: str) -> None:
        self._began[writer] = number = self._ended[writer] + 1
        self._changed.notify_all()
        began_both = self._changed.wait_for(lambda: self._began[self._second] >= number, 180)
        assert began_both, "the second writer didn't begin"
        if writer == self._second:
            assert self._changed.wait_for(lambda: self._ended[self._first] >= number, 180)


def test_two_jobs_write_a_table_at_a_time(
    hudi: Hudi, service: Service, log: Path, tmp_path: Path, report: Callable[[str], None]
) -> None:
    """Hudi's own server answers 400 to the writer that was overtaken, and its job fails."""
    pointed = pointed_at(service.relay.port)
    paths = {kind: service.lake / str(kind) for kind in BESIDE}
    jobs = [Job(hudi, path, kind, pointed | locked(path)) for kind, path in paths.items()]
    for job in jobs:
        job.write("bulk_insert", job.changed(CITIES[:2], range(8)), **QUIET)

    service.relay.before = overtaking = Overtaking(CITIES[0], CITIES[1])
    with another("beside", HUDI, service, tmp_path / "other.log"):
        for job in jobs:
            # This one cleans after each write, while the other's is still under way.
            write_beside(job, CITIES[0], hoodie_compact_inline="false")
    service.relay.before = None
    assert overtaking.behind >= len(jobs) * ROUNDS

    for job in jobs:
        for rows in written_beside(CITIES[1]):
            job.rows |= keyed(rows)
        job.check()
        job.write("upsert", job.changed(CITIES, range(30, 33)))
        job.check()
    # Of the other table nothing is left over: its changes lie in logs.
    assert "clean" in jobs[0].actions()
    seen = service.check_all_answered()
    check_asked(seen, list(BESIDE), markers=True)
    report(service.check_followed())
    assert fallbacks(log) == fallbacks(tmp_path / "other.log") == []


def test_the_later_of_two_writers_of_a_file_is_refused_early(
    hudi: Hudi, log: Path, tmp_path: Path
) -> None:
    options = ("--early-conflicts=true", "--early-conflicts-period=50")
    with served(tmp_path, *options) as service:
        path = service.lake / str(KINDS[0])
        pointed = pointed_at(service.relay.port) | locked(path)
        pointed["hoodie.write.concurrency.early.conflict.detection.enable"] = "true"
        job = Job(hudi, path, KINDS[0], pointed)
        job.write("bulk_insert", job.changed(CITIES, range(8)))
        job.fail(job.changed(CITIES, range(4)))
        (pending,) = [i for i in job.timeline() if not i.is_completed]
        # Its writer lives as long as this is fresh.
        heartbeat = path / ".hoodie" / ".heartbeat" / pending.requested_time
        heartbeat.parent.mkdir(exist_ok=True)
        heartbeat.touch()

        first = threading.Lock()

        def wait_for_conflict(request: Exchange) -> None:
            if request.path.endswith("/marker/create") and not first.acquire(blocking=False):
                while not service.process.status()["markers"]["conflicts"]:
                    pass  # asking takes its time

        service.relay.before = wait_for_conflict
        with pytest.raises(java_errors(), match="HoodieEarlyConflictDetectionException"):
            job.write("upsert", job.changed(CITIES, range(4)))
        service.relay.before = None
        job.check()
        service.check_all_answered()


def test_what_one_server_leaves_behind_the_other_rolls_back(
    hudi: Hudi, service: Service, log: Path
) -> None:
    kind = KINDS[2]
    ours = Job(hudi, service.lake / str(kind), kind, pointed_at(service.relay.port))
    theirs = Job(hudi, ours.path, kind, {})
    ours.write("bulk_insert", ours.changed(CITIES, range(8)))
    ours.fail(ours.changed(CITIES, range(12)))

    # Hudi's own server, in the driver, finds our markers; then ours finds its.
    seen = asked(service.relay.exchanges)
    rows = ours.changed(CITIES[:2], range(4))
    theirs.write("upsert", rows, **QUIET)
    theirs.fail(ours.changed(CITIES, range(12)))
    assert asked(service.relay.exchanges) == seen
    ours.rows |= keyed(rows)
    ours.write("upsert", ours.changed(CITIES[1:], range(2)), **QUIET)

    ours.check()
    rollbacks = [i for i in ours.timeline() if i.is_completed and i.action == ROLLBACK]
    assert len(rollbacks) == 2
    files = {file.name for file in ours.path.glob("p=*/*") if file.suffix == ".parquet"}
    view = LocalView.newest(TableView(open_storage(str(ours.path))))
    view.load_all_partitions()
    named = (view.all_base_files(f"p={city}") for city in CITIES)
    assert files == {file.name for file in itertools.chain(*named)}
    service.check_all_answered()
    assert fallbacks(log) == []


class Outage:
    """Kills the service at the first request to a route; starts it when some more were lost."""

    def __init__(self, service: Service, route: str, *, lost: int) -> None:
        self._service, self._route, self._lost = service, route, lost
        self._lock = threading.Lock()
        self._count = 0

    @property
    def is_over(self) -> bool:
        return self._count > self._lost

    def __call__(self, request: Exchange) -> None:
        with self._lock:
            if self._count or request.path.endswith(self._route):
                self._count += 1
            if self._count == 1:
                self._service.process.kill()
                self._service.relay.hang_up()
            if self._count == self._lost + 1:
                self._service.process.start()


FALLING_BACK = {
    "hoodie.filesystem.view.type": "REMOTE_FIRST",
    # There is no fallback for the others.
    "hoodie.write.markers.type": "DIRECT",
}


@pytest.mark.parametrize(
    ("kind", "more", "route", "lost"),
    [
        # What is read is asked four times by Hudi's HTTP client, before anybody hears of it.
        (KINDS[0], FALLING_BACK, "/datafile/latest/partition", 12),
        (KINDS[2], FALLING_BACK, "/slices/beforeoron/latest", 12),
        (KINDS[0], RETRYING, "/marker/create", 4),
    ],
    ids=["cow6-falling-back", "mor6-falling-back", "cow6-retrying"],
)
def test_a_service_that_is_killed_and_started_again_harms_no_job(
    hudi: Hudi,
    service: Service,
    log: Path,
    kind: Kind,
    more: dict[str, str],
    route: str,
    lost: int,
) -> None:
    pointed = pointed_at(service.relay.port) | more
    job = Job(hudi, service.lake / str(kind), kind, pointed)
    job.write("bulk_insert", job.changed(CITIES, range(8)))
    job.write("upsert", job.changed(CITIES, range(4, 12)))

    service.relay.before = outage = Outage(service, route, lost=lost)
    job.write("upsert", job.changed(CITIES, range(10)))
    assert outage.is_over
    service.relay.before = None
    job.check()
    job.write("delete", job.changed(CITIES, range(3)))
    job.write("upsert", job.changed(CITIES[1:], range(2, 5)))
    job.check()

    assert {one.status for one in service.relay.exchanges} == {OK, None}
    assert service.counted().total() > 0
    assert bool(fallbacks(log)) == (more is FALLING_BACK)
