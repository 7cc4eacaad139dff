"""File groups of tables that were written from the same feed."""

from dataclasses import replace

import pytest

from demo.feed import arrow, batches
from demo.file_groups import compare, file_groups
from demo.file_life import file_life, log_record
from demo.job import options
from demo.progress import last_step, note, steps_done
from demo.prove import prove
from demo.record import LogRecord
from demo.replay import replay
from strandline import WriteClient
from strandline.write.engine.local import LocalEngine


def write(folder, feed, **more):
    with WriteClient(LocalEngine(), folder.as_uri(), options(9, service=False, **more)) as client:
        for batch in feed:
            client.upsert(arrow(batch.upserts), extra_metadata=note(batch.number, "upsert"))
    return file_groups(folder)


@pytest.fixture(scope="module")
def feed(rows):
    return list(batches(rows, 3))


@pytest.fixture(scope="module")
def groups(tmp_path_factory, feed):
    return write(tmp_path_factory.mktemp("table"), feed)


def test_two_runs_of_one_feed_have_the_same_file_groups(groups, tmp_path, feed):
    proof = compare(write(tmp_path, feed), groups)
    # Each batch writes a new partition and the one before.
    assert (proof.groups, proof.slices, proof.difference) == (3, 5, None)
    assert list(steps_done(tmp_path.as_uri()).values()) == [(n, "upsert") for n in (1, 2, 3)]
    assert last_step(tmp_path.as_uri()) == (3, "upsert")


def test_logs_are_compacted_and_read_as_the_replay(rows, tmp_path):
    sent = list(batches(rows, 5))
    groups = write(tmp_path, sent, table_type="merge-on-read")
    # Each batch updates the partition before; the compaction follows the fourth one.
    assert log_record(tmp_path) == LogRecord(written=4, compactions=1, merged=3)
    steps = [[(each.written, each.logs) for each in group] for (group,) in groups.values()]
    compacted = ((4, "compaction"), 0)
    assert steps == [
        *([compacted, ((number, "upsert"), 1)] for number in (1, 2, 3)),
        [((4, "upsert"), 1)],
        [((5, "upsert"), 0)],
    ]
    assert last_step(tmp_path.as_uri()) == (5, "upsert")
    life = file_life(tmp_path)
    assert [number for number, _ in life.events] == [1, 4, 5]
    for upto, differs in ((5, False), (4, True)):
        wanted = arrow(
            replay(replace(batch, deletes=batch.deletes[:0]) for batch in sent[:upto]).rows
        )
        assert {proof.difference is not None for proof in prove(tmp_path, wanted)} == {differs}


def test_the_first_difference_is_told(groups):
    partition, *_ = groups
    ((newest, *older),) = groups[partition]
    assert newest.written == (2, "upsert")
    rewritten = (replace(newest, written=(3, "delete"), rows=1), *older)
    for changed, told in [
        ({partition: []}, f"{partition}: 0 file groups, there should be 1"),
        ({"dt=2099-01-01": [rewritten]}, "dt=2099-01-01: 1 file groups, there should be 0"),
        ({partition: [(newest,)]}, f"{partition}: file group 1 has batch 2 upsert (842 rows, "),
        ({partition: [rewritten]}, f"{partition}: file group 1 has batch 3 delete (1 rows, "),
    ]:
        assert compare(dict(groups) | changed, groups).difference.startswith(told)


def test_rows_of_another_version_are_a_difference(groups, tmp_path, feed):
    first, second, third = feed
    late = replace(second, upserts=second.upserts.assign(ts=third.upserts["ts"].iloc[0]))
    assert "it should have" in compare(write(tmp_path, [first, late, third]), groups).difference
