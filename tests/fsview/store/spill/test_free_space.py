from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsview.store.spill.blob_space import UNIT_BYTES, Extents
from tests.kit.short_runs import examples

sizes = st.integers(0, 20 * UNIT_BYTES)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("take"), sizes),
        st.tuples(st.just("give"), st.integers(1, 60)),
    ),
    max_size=120,
)


def units(start: int, size: int) -> set[int]:
    assert start % UNIT_BYTES == 0
    return set(range(start // UNIT_BYTES, -(-(start + size) // UNIT_BYTES)))


@settings(max_examples=examples(200))
@given(steps=steps, order=st.randoms(use_true_random=False))
def test_against_a_set_of_units(steps: list[tuple[str, int]], order: Random) -> None:
    """Extents never overlap, holes are the gaps between them, and the end is the last one's."""
    extents = Extents()
    taken: list[tuple[int, int]] = []
    for what, number in steps:
        used = set().union(*(units(*extent) for extent in taken))
        if what == "take":
            holes, end = list(extents.holes()), extents.end
            start = extents.allocate(number)
            assert used.isdisjoint(units(start, number))
            if number and start == end:
                assert all(size < number for _, size in holes)
            taken.append((start, number))
        else:
            order.shuffle(taken)
            extents.free(taken[:number])
            del taken[:number]
        used = set().union(*(units(*extent) for extent in taken))
        free = set().union(*(units(*hole) for hole in extents.holes()))
        assert used.isdisjoint(free)
        assert used | free == set(range(extents.end // UNIT_BYTES))
        assert extents.end == (max(used) + 1 if used else 0) * UNIT_BYTES
        assert extents.free_bytes == len(free) * UNIT_BYTES
        found = list(extents.holes())
        assert all(a + b < c for (a, b), (c, _) in pairwise(found))


def test_the_smallest_hole_that_fits_is_taken() -> None:
    extents = Extents()
    starts = [extents.allocate(units * UNIT_BYTES) for units in (5, 1, 3, 1, 4, 1)]
    extents.free([(starts[0], 5 * UNIT_BYTES), (starts[2], 3 * UNIT_BYTES)])
    extents.free([(starts[4], 4 * UNIT_BYTES)])
    assert extents.allocate(3 * UNIT_BYTES) == starts[2]
    assert extents.allocate(3 * UNIT_BYTES + 1) == starts[4]
    assert extents.allocate(2 * UNIT_BYTES) == starts[0]


def test_of_equal_holes_the_first_is_taken() -> None:
    extents = Extents()
    starts = [extents.allocate(100) for _ in range(7)]
    extents.free([(starts[4], 100)])
    extents.free([(starts[2], 100)])
    assert extents.allocate(100) == starts[2]


def test_nothing_takes_no_place() -> None:
    extents = Extents()
    assert [extents.allocate(0), extents.allocate(0)] == [0, 0]
    extents.free([(0, 0), (0, 0)])
    assert extents.end == 0


@pytest.mark.parametrize("many", [3, 300])
def test_all_that_is_given_back_leaves_nothing(many: int) -> None:
    extents = Extents()
    taken = [(extents.allocate(n * 10), n * 10) for n in range(1, many)]
    extents.free(taken[::2])
    extents.free(taken[1::2])
    assert (extents.end, extents.free_bytes, list(extents.holes())) == (0, 0, [])
