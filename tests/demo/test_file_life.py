"""The life of one data file, as told by the table that it belonged to."""

import pyarrow as pa
import pytest

from demo.file_life import file_life
from demo.progress import note
from strandline import LocalEngine, WriteClient

OPTIONS = {
    "hoodie.table.name": "flights",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.embed.timeline.server": False,
    "hoodie.clean.commits.retained": 2,
    "hoodie.keep.min.commits": 4,
    "hoodie.keep.max.commits": 5,
}


def write(base, batches):
    with WriteClient(LocalEngine(), base, OPTIONS) as client:
        for number in range(1, batches + 1):
            rows = pa.table({"id": ["a"], "ts": [number]})
            client.upsert(rows, extra_metadata=note(number, "upsert"))


def test_a_file_is_written_superseded_and_kept_for_the_retained_commits(tmp_path):
    write(tmp_path, 2)
    life = file_life(tmp_path)
    assert life.is_there
    assert [number for number, _ in life.events] == [1, 2, 2]
    assert "wrote it" in life.events[0][1]
    assert "next slice of its file group" in life.events[1][1]


@pytest.mark.parametrize("batches", [5, 12], ids=["active", "archived"])
def test_a_clean_deletes_it(tmp_path, batches):
    write(tmp_path, batches)
    life = file_life(tmp_path)
    assert not life.is_there
    assert not (tmp_path / life.path).exists()
    (first, _), (second, _), (third, why) = life.events
    assert (first, second) == (1, 2)
    # The state at each of two commits stays readable.
    assert third == 4
    assert "clean" in why


def test_a_table_without_commits_has_none(tmp_path):
    with WriteClient(LocalEngine(), tmp_path, OPTIONS) as client:
        client.upsert(pa.table({"id": pa.array([], pa.string()), "ts": pa.array([], pa.int64())}))
    assert file_life(tmp_path) is None
