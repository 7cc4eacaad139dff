"""The local engine distributes rows to tasks as a cluster does; tasks can be sent to a cluster."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import fields, replace

import pyarrow as pa
import pytest

from strandline.commit.markers import DirectMarkers
from strandline.records.file.base_file_writer import BaseFileSettings
from strandline.records.key.generator import KeyGenerator
from strandline.records.merge import MergeRules
from strandline.write.engine.driver_limits import DriverLimits
from strandline.write.engine.local import LocalEngine
from strandline.write.index.colocated import FindTask, PlaceTask
from strandline.write.index.search import SearchIndex, SearchTask, SpreadTask
from strandline.write.index.search_tagging import TagProfileTask, TagTask
from strandline.write.tasks.key_task import KeyProfileTask, KeyTask, ProblemTask
from strandline.write.tasks.placement import AssignTask, Bucket
from strandline.write.tasks.row_order import PartitionOrderTask
from strandline.write.tasks.write_task import WriteTask
from tests.conformance.engine_suite import EngineSuite
from timeline.errors import ConfigError, InputError, StorageUnavailableError
from timeline.storage.local import LocalStorage
from timeline.table.config import TableConfig

ROWS = pa.table({"k": ["a", "b", "c", "a", "b", "a"], "n": range(6)})
SEEN = pa.schema([("task", pa.int64()), ("attempt", pa.int64()), ("k", pa.string())])


def seen(batches):
    """A task that yields its partition, its attempt and the key of each row."""
    attempt = LocalEngine.attempt()
    for batch in batches:
        count = batch.num_rows
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([attempt.partition] * count),
                pa.array([attempt.attempt] * count),
                batch.column("k"),
            ],
            schema=SEEN,
        )


def run(engine, task, schema):
    return engine.collect(engine.transform(engine.adopt(ROWS), task, schema))


class TestLocalEngine(EngineSuite):
    @pytest.fixture(params=[1, 3])
    def engine(self, request):
        return LocalEngine(request.param)


def test_rows_that_differ_keep_their_order_when_grouped():
    engine = LocalEngine()
    data = engine.adopt(pa.table({"k": ["c", "a", "b", "a"], "n": range(4)}))
    assert engine.collect(engine.group(data, ("k",), 2))["n"].to_pylist() == [0, 1, 3, 2]


def test_rows_are_dealt_to_all_tasks():
    found = run(LocalEngine(3), seen, SEEN).to_pylist()
    assert sorted(each["task"] for each in found) == [0, 0, 1, 1, 2, 2]
    assert len({each["attempt"] for each in found}) == 3


@pytest.mark.parametrize("retries", [0, 1, 2])
def test_a_retryable_failure_runs_the_task_again_as_another_attempt(retries):
    attempts = []

    def flaky(batches):
        attempts.append(LocalEngine.attempt().write_token)
        if len(attempts) < 3:
            raise StorageUnavailableError("not now")
        yield from batches

    engine = LocalEngine(1, task_retries=retries)
    if retries < 2:
        with pytest.raises(StorageUnavailableError):
            run(engine, flaky, ROWS.schema)
    else:
        assert run(engine, flaky, ROWS.schema).equals(ROWS)
    assert len(set(attempts)) == retries + 1


def test_a_failure_that_would_come_again_is_not_tried_again():
    attempts = []

    def wrong(batches):
        attempts.append(1)
        raise InputError("never")
        yield from batches

    with pytest.raises(InputError):
        run(LocalEngine(1, task_retries=5), wrong, ROWS.schema)
    assert attempts == [1]


def test_an_engine_needs_a_task():
    with pytest.raises(ConfigError, match="tasks is 0"):
        LocalEngine(0)


TALLY = LocalEngine().tally()


def tasks():
    storage = LocalStorage("/nowhere")
    schema = pa.schema([("k", pa.string())])
    generator = KeyGenerator(("k",), (), "NON_PARTITION")
    search = SearchIndex(by_filter=True).file_search
    return [
        KeyTask(schema, generator, LocalEngine.attempt, ("k",)),
        ProblemTask(KeyTask(schema, generator, LocalEngine.attempt)),
        KeyProfileTask(DriverLimits(), LocalEngine.attempt),
        SpreadTask({"": (0,)}, TALLY, LocalEngine.attempt),
        SearchTask(({"": ((0, "f"),)},), storage, TALLY, search),
        PlaceTask({"": 0}),
        FindTask({"": ((0, "f"),)}, storage, TALLY, search),
        PartitionOrderTask(("k",)),
        TagTask(schema, ("k",), TALLY, LocalEngine.attempt, combine=True),
        TagProfileTask(),
        AssignTask(schema, (0,), {}, (0,)),
        WriteTask(
            storage=storage,
            config=TableConfig({}),
            buckets=(Bucket(0, "", "id"),),
            tasks=(0,),
            rules=MergeRules(schema, (), False, "1"),
            combine=False,
            avro_schema="{}",
            settings=BaseFileSettings(),
            tally=TALLY,
            attempt=LocalEngine.attempt,
            markers=DirectMarkers("1"),
        ),
    ]


def test_tasks_pickle(subtests):
    for task in tasks():
        with subtests.test(task=type(task).__name__):
            there = pickle.loads(pickle.dumps(task))
            assert type(there) is type(task)
            # Storages and counters are equal only to themselves.
            own = {"storage", "tally"} & {each.name for each in fields(there)}
            there = replace(there, **{name: getattr(task, name) for name in own})
            if isinstance(there, WriteTask):
                assert task.begun.in_driver
                assert not there.begun.in_driver
                there = replace(there, begun=task.begun)
            assert there == task


SERVER_ROOMS = ("api", "http", "lookup", "process")
"""Of the service; its room of markers has their names and files, which tasks write, too."""


@pytest.mark.property
def test_executors_load_neither_the_server_nor_the_driver_nor_views_that_list_storage():
    modules = [
        "strandline.write.tasks.key_task",
        "strandline.write.tasks.placement",
        "strandline.write.index.search",
        "strandline.write.index.colocated",
        "strandline.write.index.search_tagging",
        "strandline.write.tasks.write_task",
    ]
    script = (
        f"import sys, {', '.join(modules)}\n"
        "driver = {'flask', 'werkzeug', 'httptools', 'click', 'pyspark'}\n"
        f"server = {tuple(f'strandline.server.{room}' for room in SERVER_ROOMS)}\n"
        "views = 'fsview.table_view', 'fsview.local_view', 'fsview.state', 'fsview.store.stores'\n"
        "ours = (*server, *views, 'fsview.record', 'strandline.write.client')\n"
        "print(sorted(driver & set(sys.modules)), [m for m in sys.modules if m.startswith(ours)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd="."
    )
    assert done.stdout.strip() == "[] []"
