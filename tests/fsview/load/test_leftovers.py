"""Files of failed task attempts where a partition is listed: they are answered no longer than they
exist, and never in place of a file that the commit names.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fsview.local_view import LocalView
from tests.kit.servers.stores import Restarted
from tests.kit.tables.model import cleaning, leftovers, services, undoing, writes
from tests.kit.tables.model.asking import Pin, shape
from tests.kit.tables.model.cases import (
    GROUP,
    VERSIONS,
    a_table,
    assert_as_rebuilt,
    reloads,
    watched,
)
from tests.kit.tables.model.table import ModelTable, Write

ACTIONS = ("commit", "replacecommit", "clustering", "compaction", "logcompaction")


def begun(version: int, action: str) -> tuple[ModelTable, Write]:
    """Return a table with a write in flight, each of whose tasks failed once."""
    table = a_table(version, "COPY_ON_WRITE" if action == "commit" else "MERGE_ON_READ")
    if action == "commit":
        return table, writes.begin(table, [(GROUP, "base")], leftovers_in="a")
    writes.complete(table, writes.begin(table, [(GROUP, "log")]))
    if action == "replacecommit":
        return table, writes.begin_overwrite(
            table, [GROUP], ["a"], "INSERT_OVERWRITE", leftovers=True
        )
    if action == "clustering":
        write = services.request_clustering(table, [GROUP])
    else:
        write = services.request_compaction(table, [GROUP], logs_only=action == "logcompaction")
    services.start(table, write, leftovers=True)
    return table, write


@VERSIONS
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(
    ("kind", "restarted"), [("memory", False), ("memory", True), ("rocksdb", True)]
)
def test_what_a_failed_attempt_left_goes_when_its_instant_completes(
    version: int, kind: str, action: str, restarted: bool, tmp_path: Path
) -> None:
    """The partition is first listed while it lies there, before the instant completes."""
    table, write = begun(version, action)
    service = Restarted(kind, tmp_path, table.storage)
    left = {path.rpartition("/")[2] for path in write.leftovers}
    held = {f.name for f in service.view.loader.version(service.view.sync(), "a").files()}
    assert left <= held
    leftovers.clear(table, write)
    if restarted:
        service.restart()
    writes.complete(table, write)
    client, right = Pin.of(table), table.truth.copy()
    assert_as_rebuilt(service.view, table)
    for _ in range(2):
        writes.complete(table, writes.begin(table, [(("b", "b0-0"), "base")]))
    service.view.sync()
    behind = LocalView.at(service.view, client.last_instant, client.timeline_hash)
    assert shape(behind.all_file_slices("a")) == right.all_file_slices("a")
    assert service.metrics.get("partition_reloads") == 0
    service.close()


@pytest.mark.parametrize("loaded", ["before", "after"])
def test_a_log_that_a_failed_attempt_at_a_rollback_left_stays_until_its_slice_is_cleaned(
    loaded: str,
) -> None:
    """In version 6 no instant names it, so a view that lists it shows it, as Hudi does."""
    table = a_table(6, "MERGE_ON_READ")
    view, metrics = watched(table)
    undoing.begin_rollback(table, writes.begin(table, [(GROUP, "log")]))
    undoing.finish_rollback(table, leftovers=True)
    (log,) = table.unnamed.values()
    if loaded == "after":
        view, metrics = watched(table)
    names = {f.name for f in view.loader.version(view.sync(), "a").files()}
    assert (log.name in names) == (loaded == "after")
    assert view.check("a").outcome == "equal"
    compaction = services.request_compaction(table, [GROUP], logs_only=False)
    services.start(table, compaction)
    writes.complete(table, compaction)
    cleaning.begin_clean(table, cleaning.to_clean(table))
    cleaning.finish_clean(table)
    assert not table.unnamed
    assert_as_rebuilt(view, table)
    assert not reloads(metrics)
