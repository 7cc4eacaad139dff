"""How a server stands to a shared record: every event in every state."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from fsview.state.standing import (
    EVERYTHING,
    Ahead,
    Blank,
    Held,
    InStep,
    Lack,
    Standing,
    Unread,
)

LACK = Lack(frozenset({"a"}), ({"new": 1},))
MORE = Lack(frozenset({"a", "b"}), ({"new": 1}, {"new": 2}))
ROWS = [InStep(), Blank(), Ahead(LACK), Ahead(EVERYTHING), Unread()]
CAUSES = [None, "cause"]
STANDINGS = [Standing(*parts) for parts in product(ROWS, Held, CAUSES)]


def kept(standing: Standing) -> Standing:
    return standing.kept_in_memory(standing.lack({"b"}, [{"new": 2}]))


Event = Callable[[Standing], Standing]
OF_ROWS: dict[str, tuple[Event, list[object]]] = {
    "a read begins": (Standing.reading, [Unread()] * 5),
    "read": (lambda s: s.read(is_usable=True), [InStep()] * 5),
    "read, not usable": (lambda s: s.read(is_usable=False), [Blank()] * 5),
    "saved": (Standing.saved, [InStep()] * 5),
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
CURRENT, CATCHING_UP, BEHIND = Held
OF_HELD: dict[str, tuple[Event, list[Held]]] = {
    "fell behind": (Standing.fell_behind, [BEHIND, BEHIND, BEHIND]),
    "resumed": (Standing.resumed, [CURRENT, CATCHING_UP, CATCHING_UP]),
    "restarted": (
        lambda s: s.restarted(keeps_links=True),
        [CURRENT, CATCHING_UP, CATCHING_UP],
    ),
    "caught up": (Standing.caught_up, [CURRENT, CURRENT, BEHIND]),
}
"""Event → what holds after it, for each of ``Held``."""


@pytest.mark.parametrize("event", OF_ROWS)
def test_what_changes_the_rows_changes_nothing_else(event: str) -> None:
    act, wanted = OF_ROWS[event]
    for standing in STANDINGS:
        after = act(standing)
        assert after.rows == wanted[ROWS.index(standing.rows)], standing
        assert (after.held, after.distrusted) == (standing.held, standing.distrusted)


@pytest.mark.parametrize("event", OF_HELD)
def test_what_changes_whether_it_answers_changes_nothing_else(event: str) -> None:
    act, wanted = OF_HELD[event]
    for standing in STANDINGS:
        after = act(standing)
        assert after.held is wanted[list(Held).index(standing.held)], standing
        assert (after.rows, after.distrusted) == (standing.rows, standing.distrusted)


def test_distrust_ends_with_a_restart_that_keeps_no_link() -> None:
    for standing in STANDINGS:
        distrusted = standing.distrusting("found")
        assert distrusted.distrusted == "found"
        assert (distrusted.rows, distrusted.held) == (standing.rows, standing.held)
        events = [act for act, _ in (*OF_ROWS.values(), *OF_HELD.values())]
        assert {act(distrusted).distrusted for act in events} == {"found"}
        assert distrusted.restarted(keeps_links=False).distrusted is None


def test_what_each_standing_permits() -> None:
    for standing in STANDINGS:
        trusted, held = standing.distrusted is None, standing.held
        assert standing.answers == (trusted and held is CURRENT)
        assert standing.goes_on == (trusted and held is not BEHIND)
        assert standing.is_followed == (held is CURRENT)
        assert standing.is_behind == (held is BEHIND)
        assert standing.is_unread == (standing.rows == Unread())
        assert standing.is_ahead == (standing.is_unread or isinstance(standing.rows, Ahead))


@pytest.mark.parametrize("rows", ROWS)
def test_a_change_that_others_can_not_follow_has_all_rows_written_anew(rows: object) -> None:
    standing = Standing(rows)  # type: ignore[arg-type]
    assert standing.lack(None, None) is EVERYTHING
    assert standing.lack({"b"}, None) is EVERYTHING
    assert standing.lack(None, []) is EVERYTHING


def test_a_server_begins_in_step_and_answers() -> None:
    assert (Standing().answers, Standing().rows) == (True, InStep())
