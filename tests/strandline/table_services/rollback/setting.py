"""A small table on a given storage, with instants that tests leave in any state."""

from __future__ import annotations

from fsview.model.file_name import base_file_name
from strandline.commit.lock.base import TableLock
from strandline.commit.markers import CREATE, create_marker, marker_name
from strandline.commit.others_heartbeats import Beat, HeartbeatSettings, WriterProcess
from strandline.table_services.rollback.policy import RollbackPolicy
from strandline.table_services.rollback.run import Rollbacks
from tests.kit.concurrency.manual_clock import ManualClock
from tests.strandline.write.tables import client, row, table
from timeline.clock import SystemClock, TimeGenerator
from timeline.instant import COMMIT
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CommitMetadata, WriteStat

ELSEWHERE = WriterProcess("another-host", "", 1, 1)
DEAD = RollbackPolicy(foreign=True)


class Setting:
    """A table with one row, and ways to leave instants on it.

    Attributes:
        clock: Stands still; a wait advances it.
        waited: Seconds waited in all.
    """

    def __init__(self, storage, version=9, **options) -> None:
        self.storage = storage
        named = {"write__table__version": version, **options}
        with client(storage.base_path, storage, **named) as c:
            c.upsert(table(row("old")))
        self.meta = TableMetaClient.open(storage)
        self.clock = ManualClock(SystemClock().now_ms())
        self.waited = 0.0
        self._paths: dict[str, str] = {}
        self._times = TimeGenerator(SystemClock(), self.meta.config.timezone)

    def rollbacks(self, policy=DEAD, lock=None) -> Rollbacks:
        clock = self.clock
        times = TimeGenerator(clock, self.meta.config.timezone, wait=self._pass)
        return Rollbacks(self.meta, times, clock, lock or TableLock(), policy, self._wait)

    def repair(self, policy=DEAD, lock=None) -> dict[str, str]:
        return self.rollbacks(policy, lock).repair(self.meta.active_timeline())

    def _wait(self, seconds: float) -> None:
        self.waited += seconds
        self._pass(seconds)

    def _pass(self, seconds: float) -> None:
        self.clock.advance(round(seconds * 1000))

    def pending_commit(self, *files: str):
        """Leave an inflight commit with these files, each with a marker."""
        instant = self.meta.create_requested(COMMIT, self._times.next())
        instant = self.meta.transition_to_inflight(instant)
        self.add_files(instant, *files)
        return instant

    def add_files(self, instant, *files: str) -> None:
        """Add base files of an instant; ``<partition>/<file id>.parquet`` names each in tests."""
        for file in files:
            partition, _, name = file.rpartition("/")
            file_id = name.removesuffix(".parquet")
            real = base_file_name(file_id, "0-1-2", instant.requested_time, ".parquet")
            path = self._paths[file] = f"{partition}/{real}"
            create_marker(self.storage, instant.requested_time, marker_name(path, CREATE))
            self.storage.create(path, b"data")

    def complete(self, instant, *files: str):
        paths = map(self.path, files)
        stats = tuple(WriteStat(path=path, partition_path="eu") for path in paths)
        metadata = CommitMetadata({"eu": stats}, operation_type="UPSERT")
        return self.meta.complete(instant, metadata, self._times.next(instant.requested_time))

    def path(self, file: str) -> str:
        """Return the path of an added file."""
        return self._paths.get(file, file)

    def exists(self, file: str) -> bool:
        return self.storage.stat(self.path(file)) is not None

    def states(self, action=COMMIT) -> dict[str, str]:
        """Return the state of each instant of an action by requested time."""
        found = (i for i in self.meta.active_timeline() if i.action == action)
        return {i.requested_time: i.state.value for i in found}


def beat(instant, modified_ms, owner=ELSEWHERE, *, ended=False) -> Beat:
    return Beat(instant.requested_time, modified_ms, owner, "token", ended)


HEARTBEATS = HeartbeatSettings()
