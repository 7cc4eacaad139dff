"""A clean on Spark deletes many files in tasks."""

from __future__ import annotations

import pytest

from strandline.table_services.clean.execution import delete_files
from strandline.write.engine.spark import SparkEngine
from strandline.write.tasks.delete_task import delete_on
from timeline.storage.local import LocalStorage

pytestmark = [pytest.mark.spark, pytest.mark.covering]


def test_tasks_delete_and_return_what_they_could_not(spark, tmp_path):
    files = [("eu", f"{n}.parquet") for n in range(1200)]
    for partition, name in files[:30]:
        (tmp_path / partition).mkdir(exist_ok=True)
        (tmp_path / partition / name).touch()
    held = ("eu", "held.parquet")
    (tmp_path / "eu" / "held.parquet" / "file").mkdir(parents=True)  # a folder isn't deleted
    storage, counts = LocalStorage(str(tmp_path)), []
    by_threads = delete_files(storage, [held], 1)
    failed = delete_on(SparkEngine(spark), storage, 1)([*files, held], counts.append)
    assert [*failed] == [*by_threads]
    assert not [path for path in tmp_path.rglob("*.parquet") if path.is_file()]
    assert counts == [1201]
