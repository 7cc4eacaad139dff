"""A random walk of real Hudi over one small table: writes, table services, failures, undoing.

What is done is drawn from a seed; instants and file names are Hudi's own and differ each time. An
action that the table's state rules out isn't drawn. A write *fails* as a writer that dies does: all
its files are there and its instant stays inflight (a validator refuses the commit), or some are (a
base file that it has to read is spoiled meanwhile).
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

from tests.oracle.hudi import Hudi
from tests.oracle.view.java_view import meta_client
from tests.oracle.view.walk import (
    AVRO,
    FOR_ALL,
    KEYS,
    MERGE_ON_READ,
    NAME,
    PARTITIONS,
    REFUSE_COMMIT,
    SCHEMA,
    Walk,
)
from timeline.instant import (
    CLUSTERING,
    COMMIT,
    COMPACTION,
    DELTA_COMMIT,
    LOG_COMPACTION,
    REPLACE_COMMIT,
    SAVEPOINT,
    WRITE_ACTIONS,
    Instant,
)
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage
from timeline.timeline import Timeline

SERVICES: Final = (CLUSTERING, COMPACTION, LOG_COMPACTION, REPLACE_COMMIT)
"""While one of these pends, Hudi drops no partition."""

LAZY: Final = {"hoodie_cleaner_policy_failed_writes": "LAZY"}
"""Writes without rolling back what failed before."""

JAVA_ERRORS: Final = (Py4JJavaError, CapturedException)


class _InVainError(Exception):
    """Nothing that was spoiled was needed."""


Action = Callable[[], object]
Row = dict[str, Any]


class Walker:
    """Does things to a table.

    Attributes:
        done: Action → how often Hudi did it.
        refused: Action → how often Hudi refused it, and its last words.
    """

    def __init__(self, hudi: Hudi, path: Path, walk: Walk) -> None:
        self.hudi, self.path, self.walk = hudi, path, walk
        self.rng = random.Random(walk.seed)
        self.done: Counter[str] = Counter()
        self.refused: dict[str, tuple[int, str]] = {}
        self._ts = 0
        self._lazy = self._compacts = False
        self.options = {
            **FOR_ALL,
            "hoodie.datasource.write.table.type": walk.kind,
            "hoodie.write.table.version": str(walk.version),
            **walk.options,
        }
        if not hudi.is_1:
            self.options.setdefault(
                "hoodie.datasource.write.payload.class",
                "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload",
            )

    # Steps.

    def step(self, number: int) -> str:
        """Do something; return what, and how it ended. The first step, 0, makes the table."""
        if number in self.walk.moves:
            self._move_to(self.walk.moves[number])
            return f"to version {self.walk.moves[number]}"
        if number == 0:
            self._write("insert", partitions=PARTITIONS[:3])
            return "insert"
        drawn = self._actions()
        names = sorted(drawn)
        (name,) = self.rng.choices(names, [drawn[one][0] for one in names])
        try:
            drawn[name][1]()
        except JAVA_ERRORS as error:
            said = str(getattr(error, "java_exception", error))
            self.refused[name] = (self.refused.get(name, (0, ""))[0] + 1, said)
            return f"{name}: {said}"
        except _InVainError:
            name = f"{name}, in vain"
        self.done[name] += 1
        return name

    def _options(self) -> dict[str, str]:
        # Hudi refuses to roll back a write that another came after, unless it does so lazily.
        policy = "LAZY" if self._lazy else "EAGER"
        return self.options | {"hoodie.cleaner.policy.failed.writes": policy}

    def _move_to(self, version: int) -> None:
        """Up- or downgrade the table."""
        self.options["hoodie.write.table.version"] = str(version)
        hudi: Any = self.hudi.jvm.org.apache.hudi
        made = hudi.table.upgrade
        with self.client(hoodie_write_auto_upgrade="true") as client:
            made.UpgradeDowngrade(
                meta_client(self.hudi, self.path),
                client.getConfig(),
                client.getEngineContext(),
                made.SparkUpgradeDowngradeHelper.getInstance(),
            ).run(hudi.common.table.HoodieTableVersion.fromVersionCode(version), None)
        done = meta_client(self.hudi, self.path).getTableConfig().getTableVersion().versionCode()
        assert done == version

    def timeline(self) -> Timeline:
        """Return the active timeline."""
        return TableMetaClient.open(LocalStorage(str(self.path))).active_timeline()

    def _actions(self) -> dict[str, tuple[int, Action]]:
        """Return what can be done now: action → its weight and how."""
        now = self.timeline()
        failed = self._failed(now)
        self._lazy = bool(failed) and any(
            i.is_completed and i.action in WRITE_ACTIONS and i.requested_time > failed for i in now
        )
        merge_on_read = self.walk.kind == MERGE_ON_READ
        found: dict[str, tuple[int, Action]] = {
            "upsert": (10, lambda: self._write("upsert")),
            "insert": (4, lambda: self._write("insert")),
            "bulk_insert": (2, lambda: self._write("bulk_insert")),
            "delete": (3, lambda: self._write("delete")),
            "insert_overwrite": (2, lambda: self._write("insert_overwrite")),
            "insert_overwrite_table": (1, lambda: self._write("insert_overwrite_table")),
            "upsert_with_services": (4, self._upsert_with_services),
            "fail_at_commit": (3, self._fail_at_commit),
            "fail_midway": (2, self._fail_midway),
            "clean": (3, lambda: self._call("clean")),
            "archive": (2, lambda: self._call("archive")),
        }
        if "hoodie.storage.layout.type" not in self.options:
            found["schedule_clustering"] = (2, lambda: self._schedule("Clustering"))
        if not any(i.action in SERVICES and not i.is_completed for i in now):
            found["delete_partition"] = (2, self._delete_partition)
        if failed:
            found["write_beside_failed"] = (10, lambda: self._write("upsert", **LAZY))
            found["rollback_failed"] = (10, lambda: self._call("rollback", failed))
        log_compaction = _first(now, LOG_COMPACTION)
        # Once a compaction overtakes a log compaction, Hudi never runs the latter.
        self._compacts = merge_on_read and not log_compaction
        if self._compacts:
            found["schedule_compaction"] = (4, lambda: self._schedule("Compaction"))
            if self.hudi.is_1:
                found["schedule_log_compaction"] = (2, lambda: self._schedule("LogCompaction"))
        if compaction := _first(now, COMPACTION):
            found["run_compaction"] = (8, lambda: self._run("compact", compaction))
            found["fail_compaction"] = (8, lambda: self._fail("compact", compaction))
        if log_compaction:
            found["run_log_compaction"] = (8, lambda: self._run("logCompact", log_compaction))
        clustering = _first(now, CLUSTERING) or self._first_clustering(now)
        if clustering:
            found["run_clustering"] = (8, lambda: self._call("cluster", clustering, True))
            found["fail_clustering"] = (2, lambda: self._fail("cluster", clustering))
        writes = [i for i in now if i.is_completed and i.action in WRITE_ACTIONS]
        saved = [i.requested_time for i in now if i.action == SAVEPOINT and i.is_completed]
        if writes and writes[-1].requested_time not in saved:
            last = writes[-1].requested_time
            found["savepoint"] = (2, lambda: self._call("savepoint", last, "walker", "walk"))
            found["rollback"] = (3, lambda: self._call("rollback", last))
        if saved:
            found["restore"] = (2, lambda: self._call("restoreToSavepoint", saved[-1]))
            found["delete_savepoint"] = (2, lambda: self._call("deleteSavepoint", saved[0]))
        return found

    def _failed(self, now: Timeline) -> str | None:
        """Return the first write that is pending, if no clustering planned it."""
        planned = self._first_clustering(now)
        times = (
            i.requested_time
            for i in now
            if not i.is_completed and i.action in (COMMIT, DELTA_COMMIT, REPLACE_COMMIT)
        )
        return next((time for time in times if time != planned), None)

    def _first_clustering(self, now: Timeline) -> str | None:
        """Return the pending replacecommit that a clustering was planned as."""
        client = TableMetaClient.open(LocalStorage(str(self.path)))
        for instant in now:
            if instant.action == REPLACE_COMMIT and not instant.is_completed:
                plan = client.read_plan(instant)
                if getattr(plan, "clustering_plan", None) is not None:
                    return instant.requested_time
        return None

    # Writes.

    def _write(
        self, operation: str, *, partitions: tuple[str, ...] | None = None, **more: str
    ) -> None:
        rng = self.rng
        chosen = partitions or tuple(rng.sample(PARTITIONS, rng.choice((1, 1, 2, 3))))
        self._ts += 1
        rows = self._rows(operation, chosen)
        options = self._options() | {"hoodie.datasource.write.operation": operation}
        options |= {name.replace("_", "."): value for name, value in more.items()}
        self.hudi.write(pa.Table.from_pylist(rows, SCHEMA), self.path, options)

    def _rows(self, operation: str, partitions: tuple[str, ...]) -> list[Row]:
        """Return the rows of a write; an insert may add keys that are stored."""
        rng = self.rng
        return [
            {"id": f"k{key:02}", "p": partition, "ts": self._ts, "v": rng.random()}
            for partition in partitions
            for key in sorted(rng.sample(range(KEYS), rng.randint(1, KEYS // 2)))
        ]

    def _delete_partition(self) -> None:
        gone = self.rng.choice(PARTITIONS)
        self._write(
            "delete_partition",
            partitions=(gone,),
            hoodie_datasource_write_partitions_to_delete=gone,
        )

    def _upsert_with_services(self) -> None:
        services = {
            "hoodie_clean_automatic": "true",
            "hoodie_archive_automatic": "true",
        }
        if self._compacts and self.rng.random() < 0.5:
            services["hoodie_compact_inline"] = "true"
        self._write("upsert", **services)

    def _fail_at_commit(self) -> None:
        operation = self.rng.choice(("upsert", "insert", "bulk_insert", "insert_overwrite"))
        self._expect_failure(
            lambda: self._write(
                operation,
                **{name.replace(".", "_"): value for name, value in REFUSE_COMMIT.items()},
            )
        )

    def _fail_midway(self) -> None:
        with self._spoiled():
            self._expect_failure(lambda: self._write("upsert", partitions=PARTITIONS))

    # Services, through Hudi's write client.

    def _schedule(self, service: str) -> None:
        self._call(f"schedule{service}", self.hudi.jvm.org.apache.hudi.common.util.Option.empty())

    def _run(self, method: str, time: str) -> None:
        self._call(method, time, *([True] if self.hudi.is_1 else []))

    def _fail(self, method: str, time: str) -> None:
        run = self._run if method != "cluster" else lambda m, t: self._call(m, t, True)
        with self._spoiled():
            self._expect_failure(lambda: run(method, time))

    def _call(self, method: str, *arguments: object) -> Any:
        with self.client() as client:
            return getattr(client, method)(*arguments)

    @contextmanager
    def client(self, **more: str) -> Iterator[Any]:
        """Open Hudi's write client."""
        options = self._options() | {name.replace("_", "."): value for name, value in more.items()}
        spark: Any = self.hudi.spark
        client = self.hudi.jvm.org.apache.hudi.DataSourceUtils.createHoodieClient(
            spark._jsc, AVRO, str(self.path), NAME, options
        )
        try:
            yield client
        finally:
            client.close()

    # Failures.

    def _expect_failure(self, action: Action) -> None:
        try:
            action()
        except JAVA_ERRORS:
            self._let_tasks_end()
            return
        raise _InVainError

    def _let_tasks_end(self) -> None:
        """Wait for the tasks of a job that failed: they go on, and write, for a while."""
        tracker: Any = self.hudi.spark.sparkContext._jsc.sc().statusTracker()
        while any(executor.numRunningTasks() for executor in tracker.getExecutorInfos()):
            pass

    @contextmanager
    def _spoiled(self) -> Iterator[None]:
        """Make the base files of one partition unreadable for a while."""
        partition = self.rng.choice(PARTITIONS)
        kept = self.path.with_name(f"{self.path.name}.kept")
        files = sorted((self.path / partition).glob("*.parquet"))
        kept.mkdir()
        for file in files:
            os.rename(file, kept / file.name)
            file.write_bytes(b"spoiled")
        try:
            yield
        finally:
            for file in files:
                if file.exists():
                    os.replace(kept / file.name, file)
                else:
                    os.remove(kept / file.name)
            kept.rmdir()


def _first(now: Timeline, action: str) -> str | None:
    pending: list[Instant] = [i for i in now if i.action == action and not i.is_completed]
    return pending[0].requested_time if pending else None
