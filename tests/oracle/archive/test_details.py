"""Hudi reads our archive with its contents, and every reader the table that we cleaned.

hudi-rs reads all of these tables as the others do, also at the earliest instant that is retained.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

from fsview.local_view import LocalView
from strandline import Table
from strandline.table_services.archive.policy import ArchiveSettings
from strandline.table_services.archive.run import Archiver
from strandline.table_services.clean.policy import CleanSettings
from strandline.table_services.clean.run import Cleaner
from tests.oracle.hudi import Hudi, Rows, rows_of
from tests.oracle.tables import view_of
from tests.oracle.view.java_view import meta_client
from tests.oracle.view.walk import COPY_ON_WRITE, MERGE_ON_READ, PARTITIONS, Walk
from timeline.clock import SystemClock, TimeGenerator
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage

if TYPE_CHECKING:
    from tests.oracle.clean.history_walker import HistoryWalker

pytestmark = pytest.mark.oracle

RETAINED: Final = 2
KEPT: Final = ArchiveSettings(keep_min=4, keep_max=5)
CLEANED: Final = CleanSettings(retained=RETAINED)
ROUNDS: Final = 4
OF_LOGS: Final = ("logVersion", "logOffset", "baseFile", "logFiles")
"""What Hudi's archive of layout 1 drops from the statistics of a deltacommit; ours keeps it."""
Details = dict[tuple[str, str, str], Any]


@pytest.fixture(params=[COPY_ON_WRITE, MERGE_ON_READ])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[6, 8, 9])
def walker(hudi: Hudi, tmp_path: Path, request: pytest.FixtureRequest, kind: str) -> HistoryWalker:
    """A table of Hudi's with every action that is archived."""
    from tests.oracle.clean.history_walker import HistoryWalker  # needs PySpark

    walker = HistoryWalker(hudi, tmp_path / "t", Walk("archived", 34, 0, request.param, kind))
    for _ in range(ROUNDS):
        walker.write("upsert", PARTITIONS)
        walker.write("insert_overwrite", PARTITIONS[:1])
        walker.write("upsert", PARTITIONS)
        walker.serve("rollback")
        walker.write("upsert", PARTITIONS)
        if kind == MERGE_ON_READ:
            walker.serve("schedule_compaction")
            walker.serve("run_compaction")
        clean(walker.path)
    walker.write("upsert", PARTITIONS)
    return walker


def clean(path: Path) -> None:
    """Clean, also tables that our writer doesn't write."""
    meta = TableMetaClient.open(LocalStorage(str(path)))
    view = LocalView.newest(view_of(path))
    Cleaner(meta, view, TimeGenerator(SystemClock()), CLEANED).run()


def archive(path: Path) -> Counter[str]:
    """Archive; return how many instants of each action went."""
    meta = TableMetaClient.open(LocalStorage(str(path)))
    done = Archiver(meta, TimeGenerator(SystemClock()), KEPT, CLEANED).run()
    assert done is not None
    return Counter(instant.action for instant in done.instants)


def test_hudi_reads_our_archive_and_what_it_retains(walker: HistoryWalker, kind: str) -> None:
    path, hudi = walker.path, walker.hudi
    before, copy = path.with_name("before"), path.with_name("copy")
    shutil.copytree(path, before, copy_function=shutil.copy2)
    clean(path)
    shutil.copytree(path, copy, copy_function=shutil.copy2)
    walker.serve("archive")
    theirs, their_plans = details(hudi, path), compactions(hudi, path)
    shutil.rmtree(path)
    copy.rename(path)
    archived = archive(path)

    # What Hudi archives of the same table has the same contents; it may archive more.
    found, plans = details(hudi, path), compactions(hudi, path)
    assert len(archived) > 1, archived
    assert found.keys() <= theirs.keys()
    assert found == {key: theirs[key] for key in found}
    assert len(found) >= sum(archived.values())
    assert plans.keys() <= their_plans.keys()
    assert plans == {key: their_plans[key] for key in plans}
    # In layout 1 Hudi looks for plans in inflight states, where neither archiver puts them.
    assert bool(plans) is (kind == MERGE_ON_READ and walker.walk.version > 6)

    earliest = Table(path).earliest_instant()
    assert earliest is not None
    then = spark_rows(hudi, before, earliest)
    assert then != spark_rows(hudi, before, None)
    for time in (earliest, None):
        expected = spark_rows(hudi, before, time)
        assert spark_rows(hudi, path, time) == expected
        assert sorted_rows(Table(path).scan(as_of=time).to_arrow()) == expected
        assert sorted_rows(rust_rows(path, time)) == expected

    # Hudi archives on, after ours.
    for _ in range(KEPT.keep_max):
        walker.write("upsert", PARTITIONS)
    with walker.client() as client:
        client.clean()
        client.archive()
    assert sorted_rows(Table(path).to_arrow()) == spark_rows(hudi, path, None)
    assert details(hudi, path).keys() > found.keys()


def details(hudi: Hudi, path: Path) -> Details:
    """Return time, action and state of the archived instants that Hudi reads, with the content."""
    archive = meta_client(hudi, path).getArchivedTimeline()
    archive.loadCompletedInstantDetailsInMemory()
    completed = [instant for instant in archive.getInstants() if instant.isCompleted()]
    return _details(archive, completed)


def compactions(hudi: Hudi, path: Path) -> Details:
    """Return the same of the compactions whose plans Hudi reads from the archive, with the plan."""
    archive = meta_client(hudi, path).getArchivedTimeline()
    archive.loadCompactionDetailsInMemory("0", "9" * 17)
    return _details(archive, archive.getInstants())


def _details(archive: Any, instants: Iterable[Any]) -> Details:
    found: Details = {}
    for instant in instants:
        content = archive.getInstantDetails(instant)
        if content.isPresent():
            named = instant.requestedTime(), instant.getAction(), instant.getState().name()
            found[named] = comparable(bytes(content.get()))
    return found


def comparable(content: bytes) -> Any:
    """Return the content of an instant: bytes in layout 2, in layout 1 a value."""
    if not content.startswith(b"{"):
        return content
    found = json.loads(content)
    for stats in found.get("partitionToWriteStats", {}).values():
        for stat in stats:
            for name in OF_LOGS:
                stat.pop(name, None)
    return found


def spark_rows(hudi: Hudi, path: Path, time: str | None) -> Rows:
    options = {} if time is None else {"as_of_instant": time}
    return sorted(hudi.rows(hudi.frame(path, **options)), key=repr)


def rust_rows(path: Path, time: str | None) -> pa.Table:
    from hudi import HudiReadOptions, HudiTable

    options = HudiReadOptions()
    if time is not None:
        options = options.with_as_of_timestamp(time)
    return pa.Table.from_batches(HudiTable(str(path)).read(options))


def sorted_rows(table: pa.Table) -> Rows:
    return sorted(rows_of(table), key=repr)
