"""Services that create markers in one directory: the owner, then the next in its place."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strandline.server.marker.file import directory_path, read_stored
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.formats.marker_name import create, marker_name
from tests.strandline.server.marker.conflict_site import (
    COMMITS_TOO,
    GROUP,
    OTHER,
    Site,
    other_writer,
)

INSTANT = "20300101000000000"
PATH = f"/memory/t/{directory_path(INSTANT)}"
STEPS = st.tuples(
    st.integers(0, 2), st.sampled_from(("create", "delete", "names")), st.integers(0, 3)
)


def test_the_next_finds_a_conflict_of_markers_that_it_did_not_create() -> None:
    owner = Site()
    copy = Site(beside=owner)
    other_writer(owner)
    assert owner.announce(INSTANT)
    # The owner is lost before it has looked.
    assert copy.announce(INSTANT, OTHER, number=1)
    copy.look()
    assert not copy.announce(INSTANT, OTHER, number=2)
    assert copy.markers.status()["conflicts"] == 1


def test_a_repeated_marker_of_a_writer_that_asks_for_conflicts_is_no_conflict() -> None:
    owner = Site()
    copy = Site(beside=owner)
    assert owner.announce(INSTANT)
    assert copy.announce(INSTANT), "its first answer was lost"


def test_commits_from_before_the_next_began_to_look_are_left_to_the_writers_commit() -> None:
    owner = Site(COMMITS_TOO)
    copy = Site(COMMITS_TOO, beside=owner)
    assert owner.announce(INSTANT)
    owner.look()
    owner.table.write(GROUP)
    assert copy.announce(INSTANT, number=1)
    copy.look()
    assert copy.announce(INSTANT, number=2), "in doubt there is no conflict"
    owner.table.write(GROUP)
    copy.look_later()
    assert not copy.announce(INSTANT, number=3)


@given(st.lists(STEPS, max_size=12))
def test_whoever_creates_or_deletes_all_services_tell_the_same_markers(
    steps: list[tuple[int, str, int]],
) -> None:
    first = Site()
    # As the first is one of many, too.
    sites = [Site(beside=first) for _ in range(3)]
    there: set[str] = set()
    for number, what, name in steps:
        first.clock.advance(1)
        markers, marker = sites[number].markers, marker_name(INSTANT, name)
        if what == "create":
            is_new = create(markers, PATH, marker).result(PATIENCE_S)
            assert is_new or marker in there
            there.add(marker)
        elif what == "delete":
            assert markers.delete(PATH) is bool(there)
            there.clear()
        assert set(markers.names(PATH)) == there
    stored = read_stored(first.table.storage, directory_path(INSTANT))
    assert set(stored.names) == there
    assert stored.has_type is bool(there)
