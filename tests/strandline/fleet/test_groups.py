"""Groups: their names and roots, and the racks that belong to them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.fleet.groups import Group, check_group, groups_of, outer_roots, upwards
from timeline.errors import ConfigError
from timeline.storage.table_id import TableId

RACKS = [f"rack-{number}" for number in range(475)]


@pytest.mark.parametrize("name", ["default", "hot", "eu-west.1", "A_2", "x" * 64])
def test_names_of_groups(name: str) -> None:
    assert check_group(name) == name


@pytest.mark.parametrize("name", ["", "auto", ".", "..", "a/b", "-a", "a b", "ü", "x" * 65, "a\n"])
def test_what_names_no_group_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"--group is .*; allowed: 1 to 64 letters, digits"):
        check_group(name, "--group")


def test_roots_are_the_same_in_any_order_and_spelling() -> None:
    assert outer_roots(["s3a://lake//a/", "/data/x/../", "s3://lake/a/b", "s3://lake/ab"]) == (
        "file:///data",
        "s3://lake/a",
        "s3://lake/ab",
    )
    assert outer_roots(["/", "/data"]) == ("file:///",)
    assert Group.of("g", ["s3://lake", "/data"]).shown == "/data, s3://lake/"


def test_a_place_is_within_roots_name_by_name() -> None:
    group = Group.of("g", ["s3://lake/a", "/data"])
    for inside in ("s3://lake/a", "s3://lake/a/b/c", "file:///data/t"):
        assert group.has_room_for(inside)
    for outside in ("s3://lake/ab", "s3://lake/", "file:///dat", "s3://lake2/a/b", "gs://lake/a"):
        assert not group.has_room_for(outside)
    assert Group.of("g", ["/"]).has_room_for("file:///data/t")


@given(st.lists(st.text("ab.é", min_size=1, max_size=3), max_size=5))
def test_upwards_is_each_directory_above(names: list[str]) -> None:
    place = TableId("s3", "lake", "/" + "/".join(names))
    above = list(upwards(str(place)))
    assert above == [f"s3://lake/{'/'.join(names[:n])}" for n in range(len(names), -1, -1)]


@given(
    st.sets(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=6),
    st.sets(st.integers(0, 10_000), min_size=1, max_size=60),
)
def test_a_further_group_only_takes_racks(names: set[str], numbers: set[int]) -> None:
    racks = [f"r{number}" for number in sorted(numbers)]
    before, after = groups_of(racks, names, 10), groups_of(racks, {*names, "new"}, 10)
    assert before.keys() == after.keys() == set(racks)
    assert all(after[rack] in (group, "new") for rack, group in before.items())
    # One rack alone finds the same group as among all.
    assert all(groups_of([rack], names, 10) == {rack: group} for rack, group in before.items())


def test_racks_are_spread_about_evenly() -> None:
    names = [f"g{number}" for number in range(6)]
    sizes = Counter(groups_of(RACKS, names).values())
    assert sizes.keys() == set(names)
    assert max(sizes.values()) < 1.5 * len(RACKS) / len(names)


def test_without_groups_racks_have_none() -> None:
    with pytest.raises(ConfigError, match="there are 0 groups for the racks; allowed: at least 1"):
        groups_of(["a"], [])
