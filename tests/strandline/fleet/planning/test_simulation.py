"""What a fleet would be like, against laws and counts by hand."""

from __future__ import annotations

import pytest

from executor_proxy.seat_ring import Layout, Seat, SeatRing
from strandline.fleet.planning.simulation import MAX_ENUMERATED, copied, expected, moved, simulate

NAMES = [f"t{number}" for number in range(500)]


@pytest.mark.property
def test_a_server_alone_has_all_and_shares_with_a_second() -> None:
    found = simulate(1, 2_000, down=0.1)
    assert (found.owned, found.kept, found.leaves) == (1, 1, None)
    assert (found.joins.even, found.joins.copied) == (0.5, 1)
    assert 0.35 < found.joins.moved < 0.65
    assert found.without_copy == found.any_without_copy == found.without_server == 0.1


@pytest.mark.property
@pytest.mark.parametrize("servers", [2, 5, 9])
def test_what_goes_moves_its_own_tables_and_all_its_copies(
    subtests: pytest.Subtests, servers: int
) -> None:
    for copies in [1, 2, 3]:
        with subtests.test(copies=copies):
            found = simulate(servers, 500, Layout(copies=copies))
            assert found.leaves is not None
            # Over all seats, each table has lost its owner once, and each of its copies once.
            assert found.leaves.moved == pytest.approx(1 / servers)
            kept = min(copies, servers)
            anew = kept / servers if servers > kept else 0
            assert found.leaves.copied == pytest.approx(anew)
            assert found.joins.even == 1 / (servers + 1)


def test_without_a_copy_is_by_the_number_of_copies() -> None:
    found = simulate(5, 300, Layout(copies=2), down=0.1)
    assert found.without_copy == pytest.approx(0.01)
    assert found.without_server == pytest.approx(0.1**5)
    assert found.any_without_copy is not None
    assert found.without_copy < found.any_without_copy < 1
    assert simulate(MAX_ENUMERATED + 1, 10).any_without_copy is None


def test_a_change_counts_new_owners_and_new_copies() -> None:
    before = SeatRing([Seat(number) for number in range(4)])
    after = SeatRing([Seat(number) for number in range(5)])
    owners = {name: (before.owners(name), after.owners(name)) for name in NAMES}
    assert moved(before, after, NAMES) == {4: sum(b[0] != a[0] for b, a in owners.values())}
    assert copied(before, after, NAMES) == {
        4: sum(Seat(4) in after_ for _, after_ in owners.values())
    }
    assert not moved(before, before, NAMES)


def test_the_mean_over_all_states() -> None:
    assert expected(lambda state: sum(state), 4, 0.25) == pytest.approx(1)
    assert expected(lambda state: any(state), 3, 0.5) == pytest.approx(7 / 8)
