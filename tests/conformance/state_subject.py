"""What a suite of state stores is given: a store that several clients can open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Protocol

import pytest

from strandline.fleet.state.base import StateStore
from timeline.clock import Clock

TTL_S = 10.0


class StateSubject(Protocol):
    """A store; crosses process borders if ``clock`` isn't passed."""

    def open(self, clock: Clock | None = None) -> StateStore:
        """Return another client of the same store."""


def children(state: StateStore, key: str) -> tuple[str, ...]:
    """Return the names that follow a key in longer ones, sorted; ``""`` is above all keys."""
    begin = f"{key}/" if key else ""
    below = (name[len(begin) :] for name in state.read() if name.startswith(begin))
    return tuple(sorted({name.partition("/")[0] for name in below}))


class WithState:
    """A suite whose tests have one client open."""

    @pytest.fixture
    def state(self, subject: StateSubject) -> Iterator[StateStore]:
        with closing(subject.open()) as opened:
            yield opened
