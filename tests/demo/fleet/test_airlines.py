"""The tables of the fleet's demo, and which of them a round writes."""

from __future__ import annotations

from collections import Counter
from itertools import chain

from demo.feed import flights
from demo.fleet.airlines import TABLES, WRITTEN, feeds, written

NAMES = [f"t{number}" for number in range(TABLES)]


def test_the_first_round_writes_all_tables_and_later_ones_each_in_turn() -> None:
    rounds = [written(NAMES, number) for number in range(1, 10)]
    assert rounds[0] == dict.fromkeys(NAMES, 1)
    assert {len(each) for each in rounds[1:]} == {WRITTEN}
    assert rounds[1] == {"t0": 2, "t1": 2, "t2": 2}
    assert rounds[5] == {"t0": 3, "t1": 3, "t2": 3}
    assert Counter(chain(*rounds)) == dict.fromkeys(NAMES, 3)


def test_feeds_have_the_batches_of_all_rounds() -> None:
    found = feeds(flights(), 14)
    assert len(found) == TABLES
    last = {
        name: batch
        for number in range(1, 15)
        for name, batch in written(list(found), number).items()
    }
    assert all(len(feed) >= last[name] for name, feed in found.items())
    for name, feed in found.items():
        for batch in feed:
            assert set(batch.upserts["carrier"]) == {name}
    sizes = [len(feed[0].upserts) for feed in found.values()]
    assert min(sizes) > 0
