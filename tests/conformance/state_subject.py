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


class WithState:
    """A suite whose tests have one client open."""

    @pytest.fixture
    def state(self, subject: StateSubject) -> Iterator[StateStore]:
        with closing(subject.open()) as opened:
            yield opened
