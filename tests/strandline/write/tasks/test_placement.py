"""Which rows go to which file: a pure decision, so tested on numbers alone."""

from __future__ import annotations

import itertools
from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from strandline.write.tasks.placement import (
    Sizing,
    StoredFile,
    average_record_bytes,
    new_file_id,
    pack,
    place,
)

SIZING = Sizing(max_file_bytes=1000, small_file_bytes=800, record_bytes=10)


def stored(file_id, size, partition="p"):
    return StoredFile(partition, file_id, f"{file_id}_f", size)


def decide(updates=(), inserts=None, files=(), sizing=SIZING, rewrites=None):
    numbers = itertools.count()
    return place(
        dict(updates),
        inserts or {},
        files,
        {},
        sizing,
        rewrites=rewrites,
        new_file_id=lambda: f"new{next(numbers)}",
    )


def test_in_a_merge_on_read_table_updates_go_to_logs_unless_inserts_rewrite_their_file():
    files = [
        stored("small", 100),
        replace(stored("logs", 50), has_logs=True),
        stored("next", 200),
        stored("big", 900),
        StoredFile("p", "only-logs", "", 0, has_logs=True),
        StoredFile("p", "new", "", 0),
    ]
    updates = dict.fromkeys(range(len(files)), 1)
    found = decide(updates, {"p": 5}, files, rewrites=1)
    kinds = {b.file_id: (b.base_file, b.is_log) for b in found.buckets}
    assert kinds == {
        "small": ("small_f", False),
        "logs": (None, True),
        "next": (None, True),
        "big": (None, True),
        "only-logs": (None, True),
        "new": (None, False),
    }
    # A log's weight is that of its rows, not of the stored file.
    weights = {b.file_id: found.weights[b.number] for b in found.buckets}
    assert (weights["big"], weights["small"]) == (10, 160)
    assert decide({}, {"p": 5}, files, rewrites=0).buckets[0].file_id == "new0"
    assert decide({0: 1}, {}, files, rewrites=1).buckets[0].is_log


def test_updates_go_to_their_groups():
    found = decide({0: 5, 2: 1}, files=[stored("g2", 900), stored("g3", 900), stored("g1", 900)])
    assert [(b.number, b.file_id, b.base_file) for b in found.buckets] == [
        (0, "g1", "g1_f"),
        (1, "g2", "g2_f"),
    ]
    assert found.of_file == (1, -1, 0)


def test_inserts_fill_small_files_and_then_open_groups():
    found = decide(inserts={"p": 130}, files=[stored("big", 800), stored("small", 700)])
    assert [b.file_id for b in found.buckets] == ["small", "new0"]
    # 300 bytes are free in the small one, 30 records; 100 records fit into a new one.
    assert found.inserts["p"].bounds == (30 / 130, 1.0)
    assert found.weights == (1000, 1000)


def test_a_small_file_with_updates_takes_inserts_in_the_same_bucket():
    found = decide({0: 3}, {"p": 10}, [stored("g", 100)])
    assert len(found.buckets) == 1
    assert found.inserts["p"].numbers == found.of_file == (0,)
    assert found.weights == (230,)


def test_a_limit_of_nothing_leaves_stored_files_alone():
    found = decide(inserts={"p": 1}, files=[stored("g", 0)], sizing=Sizing(1000, 0, 10))
    assert [b.base_file for b in found.buckets] == [None]


def test_a_record_larger_than_a_file_gets_a_file_of_its_own():
    found = decide(inserts={"p": 3}, sizing=Sizing(10, 0, 1000))
    assert len(found.buckets) == 3


@given(
    rows=st.integers(1, 500),
    sizes=st.lists(st.integers(0, 1200), max_size=5),
    record=st.integers(1, 2000),
)
def test_no_group_is_given_more_than_fits(rows, sizes, record):
    sizing = Sizing(1000, 800, record)
    files = [stored(f"s{n}", size) for n, size in enumerate(sizes)]
    found = decide(inserts={"p": rows}, files=files, sizing=sizing)
    shares = found.inserts["p"]
    counts = [round((high - low) * rows) for low, high in itertools.pairwise((0.0, *shares.bounds))]
    assert sum(counts) == rows
    assert shares.bounds[-1] == 1.0
    size_of = {file.file_id: file.size for file in files}
    for number, count in zip(shares.numbers, counts, strict=True):
        room = sizing.room(size_of.get(found.buckets[number].file_id, 0))
        assert 0 < count <= max(room, 1)


@given(st.lists(st.integers(0, 100), min_size=1, max_size=30), st.integers(1, 8))
def test_no_part_is_much_heavier_than_it_must_be(weights, parts):
    chosen = pack(weights, parts)
    loads = [0] * parts
    for weight, part in zip(weights, chosen, strict=True):
        loads[part] += weight
    assert sum(loads) == sum(weights)
    assert max(loads) <= max(max(weights), sum(weights) / parts) * 4 / 3 + max(weights) / 3


def test_equal_buckets_use_all_tasks():
    assert sorted(pack([5, 5, 5, 5], 4)) == [0, 1, 2, 3]
    found = decide(inserts={"p": 100, "q": 100})
    assert len(set(found.tasks(cores=2))) == 2
    assert set(found.tasks(cores=1)) == {0}


def test_the_newest_commit_that_is_large_enough_tells_the_size_of_a_record():
    commits = [(500, 1), (5001, 10), (9000, 2)]
    assert average_record_bytes(commits, default=7, threshold_bytes=1000) == 501
    assert average_record_bytes(commits, default=7, threshold_bytes=10_000) == 7
    assert average_record_bytes([(5000, 0)], default=7, threshold_bytes=0) == 7


def test_no_new_group_looks_like_a_bucket():
    """A partition of one such group was taken for that of a bucket index, and refused."""
    drawn = iter(["00001234-aaaa-4aaa-8aaa-aaaaaaaaaaaa", "12340000-aaaa-4aaa-8aaa-aaaaaaaaaaaa"])
    assert new_file_id(lambda: UUID(next(drawn))).startswith("12340000-")
