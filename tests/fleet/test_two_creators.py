"""What excuses a marker that is new twice, and what doesn't."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from executor_proxy.seat_ring import Layout
from tests.fleet.two_creators import Known, known_of, may_both_create

pytestmark = pytest.mark.fleet

LAYOUT = Layout(copies=2)
SEATS = {"default": (0, 1), "hot": (2, 3)}
ALL = {0: "a", 1: "b", 2: "c", 3: "d"}
TABLE = "file:///lake/hot/marked"


def knows(living: Mapping[int, str] = ALL, group: str = "hot") -> Known:
    return known_of(group, SEATS, living, TABLE, LAYOUT)


def without(*urls: str | None) -> dict[int, str]:
    return {number: url for number, url in ALL.items() if url not in urls}


OWNER = knows().first["hot"]
(COPY,) = {"c", "d"} - {OWNER}
NOBODY = dict.fromkeys("abcd", 0)


def moments(
    *first: Known, second: tuple[Known, ...] | None = None, third: tuple[Known, ...] | None = None
) -> list[dict[str, Known]]:
    return [
        dict(zip(("r1", "r2"), each, strict=False))
        for each in (first, second or first, third or first)
    ]


def test_the_owner_is_the_first_that_lives_in_the_group_that_has_the_table() -> None:
    assert knows(without(OWNER)).first["hot"] == COPY
    assert knows(without("c", "d")).first["hot"] is None
    assert knows(without(OWNER)).first["default"] == knows().first["default"] in ("a", "b")


@pytest.mark.parametrize("server", "ab")
def test_a_server_of_another_group_is_no_excuse(server: str) -> None:
    """It is vacant at one router; or a group has the table at one, and another one at the other."""
    assert not may_both_create(moments(knows(), knows(without(server))), NOBODY, NOBODY)
    assert not may_both_create(moments(knows(), knows(group="default")), NOBODY, NOBODY)
    # As the other router knows that the group has the table.
    one = knows(without(knows().first["default"]), group="default")
    assert may_both_create(moments(one, knows()), NOBODY, NOBODY)


def test_an_owner_that_lives_at_one_router_only_is_an_excuse() -> None:
    both, late = (knows(), knows()), (knows(), knows(without(OWNER)))
    for at in range(3):
        told = [dict(zip(("r1", "r2"), late if at == n else both, strict=True)) for n in range(3)]
        assert may_both_create(told, NOBODY, NOBODY)
    assert not may_both_create(moments(*both), NOBODY, NOBODY)
    assert not may_both_create(moments(knows(), knows(without(COPY))), NOBODY, NOBODY)


def test_what_all_routers_learn_meanwhile_is_none() -> None:
    later = (knows(without(OWNER)), knows(without(OWNER)))
    assert not may_both_create(moments(knows(), knows(), third=later), NOBODY, NOBODY)
    # A router that doesn't answer says nothing.
    assert not may_both_create(moments(knows(), second=(knows(), knows())), NOBODY, NOBODY)


def test_a_copy_that_stood_in_for_the_owner_is_one() -> None:
    told = moments(knows(), knows())
    assert may_both_create(told, NOBODY, NOBODY | {COPY: 1})
    assert may_both_create(told, NOBODY | {COPY: 7}, NOBODY | {COPY: 1}), "it has begun anew"
    assert not may_both_create(told, NOBODY | {COPY: 7}, NOBODY | {COPY: 7})
    assert not may_both_create(told, NOBODY, {OWNER: 1}), "of another table, whose copy it is"
    assert not may_both_create(told, NOBODY | {COPY: 7}, {OWNER: 0}), "the copy doesn't answer"
