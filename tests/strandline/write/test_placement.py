"""Which rows go to which file: a pure decision, so tested on numbers alone."""

from __future__ import annotations

import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from strandline.write.placement import (
    Sizing,
    StoredFile,
    UpdateGroup,
    assign,
    average_record_bytes,
)

SIZING = Sizing(max_file_bytes=1000, small_file_bytes=800, record_bytes=10)


def decide(updates=(), inserts=None, stored=None, sizing=SIZING):
    numbers = itertools.count()
    return assign(updates, inserts or {}, stored or {}, sizing, lambda: f"new{next(numbers)}")


def test_updates_go_to_their_groups():
    found = decide([UpdateGroup("p", "g2", "g2_f", 5), UpdateGroup("p", "g1", "g1_f", 1)])
    assert [(b.number, b.file_id, b.base_file) for b in found.buckets] == [
        (0, "g1", "g1_f"),
        (1, "g2", "g2_f"),
    ]
    assert found.updates == {("p", "g1"): 0, ("p", "g2"): 1}


def test_inserts_fill_small_files_and_then_open_groups():
    stored = {"p": [StoredFile("big", "big_f", 800), StoredFile("small", "small_f", 700)]}
    found = decide(inserts={"p": 130}, stored=stored)
    assert [b.file_id for b in found.buckets] == ["small", "new0"]
    # 300 bytes are free in the small one, 30 records; 100 records fit into a new one.
    assert found.inserts["p"].bounds == (30 / 130, 1.0)


def test_a_small_file_with_updates_takes_inserts_in_the_same_bucket():
    stored = {"p": [StoredFile("g", "g_f", 100)]}
    found = decide([UpdateGroup("p", "g", "g_f", 3)], {"p": 10}, stored)
    assert len(found.buckets) == 1
    assert found.inserts["p"].pick("any") == found.updates["p", "g"] == 0


def test_a_limit_of_nothing_leaves_stored_files_alone():
    sizing = Sizing(1000, 0, 10)
    found = decide(inserts={"p": 1}, stored={"p": [StoredFile("g", "g_f", 0)]}, sizing=sizing)
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
    stored = [StoredFile(f"s{n}", f"s{n}_f", size) for n, size in enumerate(sizes)]
    found = decide(inserts={"p": rows}, stored={"p": stored}, sizing=sizing)
    shares = found.inserts["p"]
    counts = [round((high - low) * rows) for low, high in itertools.pairwise((0.0, *shares.bounds))]
    assert sum(counts) == rows
    assert shares.bounds[-1] == 1.0
    size_of = {file.file_id: file.size for file in stored}
    for number, count in zip(shares.numbers, counts, strict=True):
        room = sizing.room(size_of.get(found.buckets[number].file_id, 0))
        assert 0 < count <= max(room, 1)


def test_keys_spread_over_groups_by_their_share_and_always_alike():
    shares = decide(inserts={"p": 400}).inserts["p"]
    picked = Counter(shares.pick(f"key{n}") for n in range(4000))
    assert set(picked) == set(shares.numbers)
    assert max(picked.values()) < 1.2 * min(picked.values())
    assert all(shares.pick(f"key{n}") == shares.pick(f"key{n}") for n in range(100))


def test_the_newest_commit_that_is_large_enough_tells_the_size_of_a_record():
    commits = [(500, 1), (5001, 10), (9000, 2)]
    assert average_record_bytes(commits, default=7, threshold_bytes=1000) == 501
    assert average_record_bytes(commits, default=7, threshold_bytes=10_000) == 7
    assert average_record_bytes([(5000, 0)], default=7, threshold_bytes=0) == 7
