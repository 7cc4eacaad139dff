"""The benchmark of look-ups in executors: what it compares, its table, and a tiny run of a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.lookups.fresh import cpu_of, first_look_ups
from benchmarks.lookups.jobs import ALONE, FILES, LISTING, in_this_worker, jobs
from benchmarks.lookups.single import FILES as OF_PARTITION
from benchmarks.lookups.single import Lookups, in_pairs, location_of
from benchmarks.object_store.slow_store import SCHEME
from benchmarks.results.ratios import Bound, Ratio, table
from benchmarks.servers.big_table import BigTable, Shape
from fsview.wire.param import REQUEST_ID_HEADER
from tests.executor_proxy.scripted_server import Reply, ScriptedServer

pytestmark = pytest.mark.property


@pytest.fixture
def big(tmp_path: Path) -> BigTable:
    return BigTable.create(tmp_path / "big", Shape(2, FILES))


def test_the_bare_call_sends_the_proxys_request(big: BigTable) -> None:
    with (
        ScriptedServer(lambda _: Reply(b"[]")) as server,
        Lookups(server.url, "secret", big) as lookups,
    ):
        lookups.of_files(big.partitions[0])
        lookups.bare(OF_PARTITION, big.partitions[0])()
    proxy, bare = server.requests
    assert (bare.method, bare.path, bare.params) == (proxy.method, proxy.path, proxy.params)
    # Each request has an id of its own.
    first, second = (each.headers.pop(REQUEST_ID_HEADER.lower()) for each in (bare, proxy))
    assert first != second
    assert bare.headers == proxy.headers


def test_an_object_store_of_the_benchmark_has_the_tables_of_the_disk(big: BigTable) -> None:
    views = [
        location_of(big, (), base_path=f"{prefix}{big.path}").open()
        for prefix in ("", f"{SCHEME}://")
    ]
    for partition in big.partitions:
        disk, store = (view.latest_base_files(partition) for view in views)
        assert disk == store
        assert len(disk) == FILES


def test_a_worker_lists_the_timeline_once_and_each_partition_once(big: BigTable) -> None:
    _, report = in_this_worker(location_of(big, ()), [big.partitions, big.partitions])
    calls = report.storage_calls()
    assert (
        sum(count for (kind, cause), count in calls.items() if (kind, cause) == ("list", "lookup"))
        == 2
    )
    assert [found.source for found in report.lookups] == ["local"] * 4


def test_a_fresh_worker_answers_before_it_is_measured(tmp_path: Path) -> None:
    through, listing = first_look_ups(tmp_path, rounds=1)
    assert all(0 < value < 60 for value in (*through.values, *listing.values))
    with pytest.raises(RuntimeError, match="status 1"):
        cpu_of("raise ValueError")


def test_a_job_is_measured_on_both_kinds_of_storage(tmp_path: Path) -> None:
    rows = list(jobs(tmp_path, hudi=None, rounds=1, tasks=1))
    assert {row.other for row in rows} == {LISTING, ALONE}
    assert [row.unit for row in rows] == ["ms", "ms", "ms", "ms", "", ""] * 2
    assert all(len(row.values) == len(row.partners) == 1 for row in rows)


def test_pairs_are_measured_in_alternating_order() -> None:
    order: list[str] = []
    found = in_pairs((lambda: order.append("a"), lambda: order.append("b")) for _ in range(3))
    assert order == ["b", "a", "a", "b", "b", "a"]
    assert [len(values) for values in found] == [3, 3]


def test_a_row_has_medians_and_the_quartiles_of_the_pairs_ratios() -> None:
    row = Ratio("f", [2, 4, 9], "s", "g", [1, 4, 3], Bound(ratio=2))
    assert row.ratios == [2, 1, 3]
    assert row.row() == ("f", "4 s", "g", "3 s", "2 (1.5-2.5)", "<= 2 times", "yes")
    assert table([row]).splitlines()[2] == f"| {' | '.join(row.row())} |"


@pytest.mark.parametrize(
    ("row", "shown", "met"),
    [
        (Ratio("as shown", [3.0049], "s", bound=Bound(value=3)), "3 s", True),
        (Ratio("above", [3.01], "s", bound=Bound(value=3)), "3.01 s", False),
        (Ratio("in parts", [1.6e-5], "us", bound=Bound(value=2e-5)), "16 us", True),
        (Ratio("without a partner", [1], "s", bound=Bound(ratio=2)), "1 s", False),
        (Ratio("no target", [2500], ""), "2,500", None),
    ],
    ids=lambda value: value.what if isinstance(value, Ratio) else "",
)
def test_targets_are_compared_as_shown(row: Ratio, shown: str, met: bool | None) -> None:
    assert row.row()[1] == shown
    assert row.met is met
