"""The three ways on a real S3 server, counted in its log; a small table, processes for tasks."""

import multiprocessing

import pytest

from demo.feed import after, arrow, batches
from demo.object_store.job import write_options
from demo.object_store.lake import OFF, ON, StoreLake, base_path, loads
from demo.object_store.record import FORGETS, KEPT, OWN, WAYS
from demo.object_store.server import StoreServer
from demo.object_store.ways import Ways, order
from demo.progress import note
from demo.prove import prove
from strandline import LocalEngine, WriteClient

PARTITIONS = 6


def in_processes(ask, each):
    """Run tasks in fresh processes, two at a time."""
    with multiprocessing.get_context("spawn").Pool(2, maxtasksperchild=1) as pool:
        return pool.map(ask, each, chunksize=1)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with StoreServer.running(tmp_path_factory.mktemp("s3"), 0.005) as running:
        yield running


@pytest.fixture(scope="module")
def lake(server, rows, tmp_path_factory):
    lake = StoreLake(tmp_path_factory.mktemp("lake"), server.direct)
    options = write_options(9, "copy-on-write", service=False)
    told = list(lake.make(after(rows, PARTITIONS), PARTITIONS, options))
    assert told[-1].endswith("objects copied inside the S3 server")
    return lake


def test_the_ways_are_counted_in_the_servers_log(server, lake, rows):
    at = base_path(ON)
    day = PARTITIONS + 1
    partitions = [f"dt=2013-01-{number:02}" for number in range(1, day + 1)]
    options = {way: server.options(way) for way in WAYS}
    with Ways.running(at, options, server.direct, in_processes) as ways:
        jobs = [ways.ask(KEPT, 6, ways.newest(), partitions[:-1], 2)]
        settings = write_options(9, "copy-on-write", service=False)
        (batch,) = batches(rows, day, first=day)
        with WriteClient(LocalEngine(), at, settings, storage_options=server.direct) as client:
            client.upsert(arrow(batch.upserts), extra_metadata=note(day, "upsert"))
        ways.forget()
        jobs += [ways.ask(way, day, ways.newest(), partitions, 2) for way in order(1)]
        # What is kept is kept: without a commit nothing is read.
        jobs.append(ways.ask(KEPT, day, ways.newest(), partitions, 2))
    loading, *asked, again = server.count(jobs)
    assert [failure for each in (loading, *asked, again) for failure in each.failures] == []
    by_way = {each.job.way: each for each in asked}
    own, forgets, kept = (by_way[way].requests.answered for way in (OWN, FORGETS, KEPT))
    assert own > forgets > kept > again.requests.answered == 0
    for each in asked:
        assert each.requests.by_way == {each.job.way: each.requests.answered}
        assert each.job.answer == asked[0].job.answer
        assert [task.files for task in each.job.tasks] == [len(partitions)] * 2
    assert all(task.driver_s > 0 for task in by_way[OWN].job.tasks)
    # Each call that a task counts is a request.
    assert sum(task.calls for task in by_way[OWN].job.tasks) <= own
    assert all(0 < task.lists < task.calls for task in by_way[OWN].job.tasks)


def test_the_copy_is_the_table(lake, rows):
    wanted = arrow(after(rows, PARTITIONS))
    assert all(proof.holds for proof in prove(lake.files(OFF), wanted))


def test_the_capacity_is_a_number_of_requests(server, lake):
    before = len(server.proxy.requests())
    assert server.capacity(ON, ["flights/dt=2013-01-01"]) > 1
    # Its delay isn't the server's.
    assert len(server.proxy.requests()) == before


def test_each_way_comes_first_in_turn():
    assert [order(turn)[0] for turn in range(4)] == [OWN, FORGETS, KEPT, OWN]
    assert all(sorted(order(turn)) == sorted(WAYS) for turn in range(3))


@pytest.mark.parametrize(
    ("partitions", "count", "last"), [(300, 20, (286, 300)), (16, 16, (16, 16)), (21, 20, (20, 21))]
)
def test_loads_are_all_days_once(partitions, count, last):
    found = loads(partitions)
    assert (len(found), found[-1]) == (count, last)
    days = [day for first, end in found for day in range(first, end + 1)]
    assert days == list(range(1, partitions + 1))
