"""Makes a random history of a table with real Hudi's write client, and cleans of ours between.

The actions are those of ``tests.oracle.view.random_walk``, but writes skip Spark's data source,
which takes three times as long. Cleans are Hudi's or ours; some are only planned, and some find
nothing and leave an empty clean.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from fsview.local_view import LocalView
from strandline.settings.setting import Settings, settings_of
from strandline.table_services.clean.policy import (
    EMPTY_HOURS,
    KEEP_LATEST_COMMITS,
    KEEP_LATEST_FILE_VERSIONS,
    POLICY,
    RETENTION_OF,
    CleanSettings,
)
from strandline.table_services.clean.run import Cleaner
from tests.oracle.hudi import Hudi
from tests.oracle.tables import view_of
from tests.oracle.view.random_walk import Action, Walker
from tests.oracle.view.walk import AVRO, NAME, PARTITIONS, Walk
from timeline.clock import SystemClock, TimeGenerator
from timeline.instant import CLEAN, REPLACE_COMMIT
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage

_REPLACING: Final = {
    "insert_overwrite": "insertOverwrite",
    "insert_overwrite_table": "insertOverwriteTable",
}
_WRITES: Final = {"insert": "insert", "upsert": "upsert", "bulk_insert": "bulkInsert"}
_AGES: Final = 1 << 40
"""Ordering values begin here: py4j passes smaller numbers as ints, which are no Avro longs."""


class HistoryWalker(Walker):
    """Does things to a table, which it makes first."""

    def __init__(self, hudi: Hudi, path: Path, walk: Walk) -> None:
        super().__init__(hudi, path, walk)
        self._ts = _AGES
        jvm: Any = hudi.jvm
        self._hudi: Any = jvm.org.apache.hudi
        self._schema = jvm.org.apache.avro.Schema.Parser().parse(AVRO)
        self._empty = self._hudi.common.util.Option.empty()
        self._make()

    def _make(self) -> None:
        jvm: Any = self.hudi.jvm
        properties = jvm.java.util.Properties()
        for name, value in self.walk.options.items():
            properties.setProperty(name, value)
        builder = self._hudi.common.table.HoodieTableMetaClient.newTableBuilder()
        builder.fromProperties(properties).setTableType(self.walk.kind).setTableName(NAME)
        builder.setRecordKeyFields("id").setPartitionFields("p").setOrderingFields("ts")
        builder.setTableVersion(self.walk.version)
        builder.setKeyGeneratorClassProp("org.apache.hudi.keygen.SimpleKeyGenerator")
        builder.setCommitTimezone(self._hudi.common.model.HoodieTimelineTimeZone.UTC)
        builder.initTable(self.hudi.storage_conf, str(self.path))

    def step(self, number: int) -> str:
        """Do something; the second step is an upsert, so that there soon is something to clean."""
        if number == 1:
            self._write("upsert", partitions=PARTITIONS[:3])
            self.done["upsert"] += 1
            return "upsert"
        return super().step(number)

    def write(self, operation: str, partitions: tuple[str, ...]) -> None:
        """Write random rows to these partitions."""
        self._write(operation, partitions=partitions)

    def serve(self, action: str) -> None:
        """Do what the table's state allows, named as in a random walk."""
        self._actions()[action][1]()

    def _actions(self) -> dict[str, tuple[int, Action]]:
        found = super()._actions()
        # Without these, every second step would be a service or a failure.
        found["upsert"] = (16, found["upsert"][1])
        found["clean"] = (3, self._clean)
        found["ours_cleans"] = (3, self._ours_cleans)
        if not any(i.action == CLEAN and not i.is_completed for i in self.timeline()):
            found["plan_clean"] = (1, self._plan_clean)
        return found

    # Writes.

    def _write(
        self, operation: str, *, partitions: tuple[str, ...] | None = None, **more: str
    ) -> None:
        with self.client(**more) as client:
            instant, written, *replaced = self._written(client, operation, partitions)
            more_of_it = (REPLACE_COMMIT, *replaced) if replaced else ()
            assert client.commit(instant, written, self._empty, *more_of_it)

    def _written(
        self, client: Any, operation: str, partitions: tuple[str, ...] | None
    ) -> tuple[Any, ...]:
        """Write the files of a commit; return its time, statuses, and what it replaces, if any."""
        rng = self.rng
        chosen = partitions or tuple(rng.sample(PARTITIONS, rng.choice((1, 1, 2, 3))))
        self._ts += 1
        if operation == "delete_partition":
            instant = client.startCommit(REPLACE_COMMIT)
            result = client.deletePartitions(self._listed(chosen), instant)
            return instant, result.getWriteStatuses(), result.getPartitionToReplaceFileIds()
        rows = self._rows(operation, chosen)
        if operation in _REPLACING:
            instant = client.startCommit(REPLACE_COMMIT)
            records = self._spread(map(self._record, rows))
            result = getattr(client, _REPLACING[operation])(records, instant)
            return instant, result.getWriteStatuses(), result.getPartitionToReplaceFileIds()
        instant = client.startCommit()
        if operation == "delete":
            keys = self._spread(self._key(row) for row in rows)
            return instant, client.delete(keys, instant)
        records = self._spread(map(self._record, rows))
        return instant, getattr(client, _WRITES[operation])(records, instant)

    def _fail_at_commit(self) -> None:
        operation = self.rng.choice(("upsert", "insert", "bulk_insert", "insert_overwrite"))
        with self.client() as client:
            _, written, *_ = self._written(client, operation, None)
            written.count()  # statuses are made as the files are

    def _key(self, row: dict[str, Any]) -> Any:
        return self._hudi.common.model.HoodieKey(row["id"], row["p"])

    def _record(self, row: dict[str, Any]) -> Any:
        jvm: Any = self.hudi.jvm
        record = jvm.org.apache.avro.generic.GenericData.Record(self._schema)
        for name, value in row.items():
            record.put(name, value)
        model = self._hudi.common.model
        payload = model.DefaultHoodieRecordPayload(record, row["ts"])
        return model.HoodieAvroRecord(self._key(row), payload)

    def _listed(self, values: Any) -> Any:
        found = self.hudi.jvm.java.util.ArrayList()
        for value in values:
            found.add(value)
        return found

    def _spread(self, values: Any) -> Any:
        spark: Any = self.hudi.spark
        return spark._jsc.parallelize(self._listed(values), 1)

    # Cleans.

    def _policy(self) -> dict[str, str]:
        policy = self.rng.choice((KEEP_LATEST_COMMITS, KEEP_LATEST_FILE_VERSIONS))
        retained = str(self.rng.randint(1, 3))
        hours = self.rng.choice(("-1", "1"))
        return {
            POLICY.name: policy,
            RETENTION_OF[policy].name: retained,
            EMPTY_HOURS.name: hours,
        }

    def _clean(self) -> None:
        with self._cleaning_client() as client:
            client.clean()

    def _plan_clean(self) -> None:
        services = self._hudi.common.model.TableServiceType
        with self._cleaning_client() as client:
            client.scheduleTableService(self._empty, services.CLEAN)

    def _cleaning_client(self) -> Any:
        options = self._policy().items()
        return self.client(**{name.replace(".", "_"): value for name, value in options})

    def _ours_cleans(self) -> None:
        """Clean, also tables that our writer doesn't write."""
        meta = TableMetaClient.open(LocalStorage(str(self.path)))
        settings = CleanSettings.of(Settings.parse(self._policy(), settings_of(CleanSettings)))
        view = LocalView.newest(view_of(self.path))
        Cleaner(meta, view, TimeGenerator(SystemClock()), settings).run()
