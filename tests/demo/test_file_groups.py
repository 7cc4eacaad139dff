"""File groups of tables that were written from the same feed."""

from dataclasses import replace

import pytest

from demo.feed import arrow, batches
from demo.file_groups import compare, file_groups
from demo.job import options
from demo.progress import last_step, note, steps_done
from strandline import WriteClient
from strandline.write.engine.local import LocalEngine


def write(folder, feed):
    with WriteClient(LocalEngine(), folder.as_uri(), options(9, service=False)) as client:
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
