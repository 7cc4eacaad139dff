"""How a server stands to a shared record: every event in every state."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from fsview.record.status import (
    EVERYTHING,
    Ahead,
    Blank,
    HeldState,
    InStep,
    Lack,
    RecordStatus,
    Unread,
)

LACK = Lack(frozenset({"a"}), ({"new": 1},))
MORE = Lack(frozenset({"a", "b"}), ({"new": 1}, {"new": 2}))
ROWS = [InStep(), Blank(), Ahead(LACK), Ahead(EVERYTHING), Unread()]
CAUSES = [None, "cause"]
STANDINGS = [RecordStatus(*parts) for parts in product(ROWS, HeldState, CAUSES)]


def kept(status: RecordStatus) -> RecordStatus:
    return status.kept_in_memory(status.lack({"b"}, [{"new": 2}]))


Event = Callable[[RecordStatus], RecordStatus]
OF_ROWS: dict[str, tuple[Event, list[object]]] = {
    "a read begins": (RecordStatus.reading, [Unread()] * 5),
    "read": (lambda s: s.read(is_usable=True), [InStep()] * 5),
    "read, not usable": (lambda s: s.read(is_usable=False), [Blank()] * 5),
    "saved": (RecordStatus.saved, [InStep()] * 5),
    "kept in memory": (
        kept,
        [
            Ahead(Lack(frozenset({"b"}), ({"new": 2},))),
            Ahead(EVERYTHING),
            Ahead(MORE),
            Ahead(EVERYTHING),
            Unread(),
        ],
    ),
}
"""Event → the rows after it, for each of ``ROWS``."""
CURRENT, CATCHING_UP, BEHIND = HeldState
OF_HELD: dict[str, tuple[Event, list[HeldState]]] = {
    "fell behind": (RecordStatus.fell_behind, [BEHIND, BEHIND, BEHIND]),
    "resumed": (RecordStatus.resumed, [CURRENT, CATCHING_UP, CATCHING_UP]),
    "restarted": (
        lambda s: s.restarted(keeps_links=True),
        [CURRENT, CATCHING_UP, CATCHING_UP],
    ),
    "caught up": (RecordStatus.caught_up, [CURRENT, CURRENT, BEHIND]),
}
"""Event → what holds after it, for each of ``HeldState``."""


@pytest.mark.parametrize("event", OF_ROWS)
def test_what_changes_the_rows_changes_nothing_else(event: str) -> None:
    act, wanted = OF_ROWS[event]
    for status in STANDINGS:
        after = act(status)
        assert after.rows == wanted[ROWS.index(status.rows)], status
        assert (after.held, after.distrusted) == (status.held, status.distrusted)


@pytest.mark.parametrize("event", OF_HELD)
def test_what_changes_whether_it_answers_changes_nothing_else(event: str) -> None:
    act, wanted = OF_HELD[event]
    for status in STANDINGS:
        after = act(status)
        assert after.held is wanted[list(HeldState).index(status.held)], status
        assert (after.rows, after.distrusted) == (status.rows, status.distrusted)


def test_distrust_ends_with_a_restart_that_keeps_no_link() -> None:
    for status in STANDINGS:
        distrusted = status.distrusting("found")
        assert distrusted.distrusted == "found"
        assert (distrusted.rows, distrusted.held) == (status.rows, status.held)
        events = [act for act, _ in (*OF_ROWS.values(), *OF_HELD.values())]
        assert {act(distrusted).distrusted for act in events} == {"found"}
        assert distrusted.restarted(keeps_links=False).distrusted is None


def test_what_each_standing_permits() -> None:
    for status in STANDINGS:
        trusted, held = status.distrusted is None, status.held
        assert status.answers == (trusted and held is CURRENT)
        assert status.goes_on == (trusted and held is not BEHIND)
        assert status.is_followed == (held is CURRENT)
        assert status.is_behind == (held is BEHIND)
        assert status.is_unread == (status.rows == Unread())
        assert status.is_ahead == (status.is_unread or isinstance(status.rows, Ahead))


@pytest.mark.parametrize("rows", ROWS)
def test_a_change_that_others_can_not_follow_has_all_rows_written_anew(rows: object) -> None:
    status = RecordStatus(rows)  # type: ignore[arg-type]
    assert status.lack(None, None) is EVERYTHING
    assert status.lack({"b"}, None) is EVERYTHING
    assert status.lack(None, []) is EVERYTHING


def test_a_server_begins_in_step_and_answers() -> None:
    assert (RecordStatus().answers, RecordStatus().rows) == (True, InStep())
