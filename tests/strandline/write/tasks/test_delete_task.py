"""Many files are deleted in tasks, few by the driver; what fails is returned from both."""

from __future__ import annotations

import pickle

import pytest

from strandline.write.engine.local import LocalEngine
from strandline.write.tasks.delete_task import DeleteTask, delete_on
from timeline.errors import StorageUnavailableError
from timeline.storage.local import LocalStorage

FILES = [("eu" if n % 2 else "", f"{n}.parquet") for n in range(2500)]


class Cluster(LocalEngine):
    """Runs tasks like a cluster, on pickled copies; remembers the number of rows of each part."""

    in_process = False

    def __init__(self):
        super().__init__(cores=2)
        self.parts = []

    def from_driver(self, tables):
        self.parts = [table.num_rows for table in tables]
        return super().from_driver(tables)

    def transform(self, data, task, schema):
        return super().transform(data, pickle.loads(pickle.dumps(task)), schema)


class Stubborn(LocalStorage):
    """Can't delete some files."""

    def __reduce__(self):
        return Stubborn, (self.base_path,)

    def delete(self, path):
        if path.endswith("99.parquet"):
            raise StorageUnavailableError(f"{path} is busy")
        return super().delete(path)


@pytest.fixture
def storage(tmp_path):
    (tmp_path / "eu").mkdir()
    for partition, name in FILES[:200]:
        (tmp_path / partition / name).touch()
    return Stubborn(str(tmp_path))


@pytest.mark.parametrize(
    ("parallelism", "parts"),
    [pytest.param(2, [1250, 1250], id="tasks"), pytest.param(3, [], id="threads of the driver")],
)
def test_files_are_deleted_and_those_that_fail_returned(storage, tmp_path, parallelism, parts):
    engine, counts = Cluster(), []
    failed = delete_on(engine, storage, parallelism)(FILES, counts.append)
    assert sorted(failed) == sorted(f for f in FILES if f[1].endswith("99.parquet"))
    assert {path.name for path in tmp_path.rglob("*.parquet")} == {"99.parquet", "199.parquet"}
    assert sum(counts) == len(FILES)
    assert engine.parts == parts


def test_an_engine_of_this_process_deletes_on_threads(storage, tmp_path):
    assert not delete_on(LocalEngine(), LocalStorage(str(tmp_path)), 1)(FILES, int)
    assert not [*tmp_path.rglob("*.parquet")]


def test_a_task_without_files_yields_nothing(storage):
    assert not [*DeleteTask(storage)(iter(()))]


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(LocalEngine(), id="threads"),
        pytest.param(Cluster(), id="tasks", marks=pytest.mark.property),
    ],
)
def test_a_deletion_ends_between_two_steps(storage, tmp_path, engine):
    asked = []

    def proceed():
        asked.append(len([*tmp_path.rglob("*.parquet")]))
        if len(asked) == 2:
            raise KeyError

    files = [file for file in FILES[:200] if not file[1].endswith("99.parquet")]
    many = files * 102  # more than two cores delete in one job
    with pytest.raises(KeyError):
        delete_on(engine, storage, 1, proceed, 50 if engine.in_process else 1000)(many, int)
    assert asked == ([200, 150] if engine.in_process else [200, 2])
