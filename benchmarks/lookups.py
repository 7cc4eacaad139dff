"""The cost of a task's look-up with and without the service: ``python -m benchmarks.lookups``.

A look-up is that of tagging: open the view that the driver pinned, and get the newest base files of
one partition. It uses local disk, the embedded service in its child process, and one client. Both
ways alternate in one run, so that their ratio holds on a busy machine. As in a task, each look-up
has a new view and the connection to the service is kept.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from executor_proxy import LookupReport, ViewLocation
from fsview.model.file_name import base_file_name
from strandline import TimelineService
from timeline.instant import COMMIT
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CommitMetadata, WriteStat
from timeline.storage.local import LocalStorage
from timeline.table.config import TableConfig
from timeline.table.config_file import write_table_config
from timeline.table.partition_metadata import write_partition_metadata

INSTANTS = 20
SIZES = (10, 100, 1000)
ROUNDS = 40


def make_table(path: Path) -> TableMetaClient:
    """Write a table with one partition of empty files for each size, over several instants."""
    storage = LocalStorage(str(path))
    config = TableConfig.create(
        name="bench", version=9, record_key_fields=("id",), partition_fields=("p",)
    )
    write_table_config(storage, config, create=True)
    meta = TableMetaClient.open(storage)
    for number in range(INSTANTS):
        instant = f"202601010000{number:02}000"
        stats: dict[str, tuple[WriteStat, ...]] = {}
        for size in SIZES:
            partition = f"files={size}"
            if number == 0:
                write_partition_metadata(storage, partition, instant)
            names = [
                base_file_name(
                    f"{file:08x}-0000-4000-8000-000000000000-0", "0-1-2", instant, ".parquet"
                )
                for file in range(number * size // INSTANTS, (number + 1) * size // INSTANTS)
            ]
            for name in names:
                (path / partition / name).touch()
            stats[partition] = tuple(
                WriteStat(
                    file_id=name.split("_")[0],
                    path=f"{partition}/{name}",
                    partition_path=partition,
                    prev_commit="null",
                )
                for name in names
            )
        requested = meta.create_requested(COMMIT, instant)
        done = CommitMetadata(partition_to_write_stats=stats, operation_type="INSERT")
        meta.complete(meta.transition_to_inflight(requested), done, f"202601010000{number:02}500")
    return meta


def look_up(location: ViewLocation, partition: str) -> tuple[float, int]:
    """Return the seconds of one look-up, and the number of the task's list calls."""
    report = LookupReport()
    started = time.perf_counter()
    view = location.open(report)
    files = view.latest_base_files(partition)
    elapsed = time.perf_counter() - started
    view.close()
    assert len(files) == int(partition.split("=")[1])
    calls = report.storage_calls()
    return elapsed, sum(n for (kind, _), n in calls.items() if kind == "list")


def main() -> None:
    """Measure both ways and print medians and their ratio."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench"
        timeline = make_table(path).active_timeline().client_timeline()
        last = timeline.last
        assert last is not None
        with TimelineService([str(path)]) as service:
            ways = [
                ViewLocation(
                    str(path),
                    () if url is None else (url,),
                    token,
                    {},
                    last.requested_time,
                    timeline.hash,
                )
                for url, token in ((service.url, service.token), (None, None))
            ]
            print(f"{'files':>6} {'service':>10} {'listing':>10} {'ratio':>6}   lists a look-up")
            for size in SIZES:
                partition = f"files={size}"
                for way in ways:
                    look_up(way, partition)
                found = [[look_up(way, partition) for way in ways] for _ in range(ROUNDS)]
                remote, local = (statistics.median(pair[i][0] for pair in found) for i in (0, 1))
                lists = [found[0][i][1] for i in (0, 1)]
                times = f"{remote * 1e3:>7.2f} ms {local * 1e3:>7.2f} ms {local / remote:>6.1f}"
                print(f"{size:>6} {times}   {lists[0]} and {lists[1]}")


if __name__ == "__main__":
    main()
