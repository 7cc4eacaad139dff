"""``Readiness``: whether a service can serve, and if not, why; ``GET /healthz`` returns it.

A service is ready if every root can be listed, and it isn't stopping. What is wrong with its store,
without which tables are followed in memory, is told all the same.
A check may hang for ever (a mount whose server is down), and probes must be answered nevertheless.
So each check has a thread of its own, and a probe waits at most ``WAIT_S`` seconds for all of them
together. A check that doesn't end is reported as hanging and isn't started again: probes cost one
thread for each hanging check, however many come.

Results are reused for ``KEPT_S`` seconds.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Final

from fsview.view_manager import ViewManager
from strandline.server.http.reply import Reply, json_reply
from strandline.server.http.request import Request
from strandline.server.log_format import escaped
from timeline.clock import Clock
from timeline.errors import PathNotFoundError, RootNotAllowedError
from timeline.storage.base import Storage

logger = logging.getLogger(__name__)

WAIT_S: Final = 2.0
KEPT_S: Final = 1.0
STOPPING: Final = "the service is stopping"
_REASON_CHARACTERS: Final = 300
_DURATION: Final = re.compile(r" for \d+ s$")

ReadinessCheck = Callable[[], None]
"""Checks one thing; raises an error if something is wrong with it."""


class ServiceChecks:
    """The checks of a service: its roots, and the store of its views.

    The storage of a root is opened once: a driver may open a client for each thread, and every
    check has a new thread.

    Attributes:
        notes: What was wrong with the stores at the last look.
    """

    def __init__(self, views: ViewManager) -> None:
        self.notes: tuple[str, ...] = ()
        self._views = views
        self._storages: dict[str, Storage] = {}

    def __call__(self) -> dict[str, ReadinessCheck]:
        """Return the checks by name."""
        roots = self._views.roots()
        # A copy, made in one step: checks that run in their threads add storages.
        for gone in set(self._storages).difference(roots):
            self._storages.pop(gone, None)
        checks: dict[str, ReadinessCheck] = {
            f"root {r}": partial(self._check_root, r) for r in roots
        }
        return {**checks, "store": self._check_store}

    def _check_store(self) -> None:
        """Note what is wrong with the stores, without which tables are followed in memory."""
        self._views.save_rest()
        self.notes = tuple(f"store: {reason}" for reason in self._views.store_reasons())

    def _check_root(self, root: str) -> None:
        try:
            storage = self._storages.get(root)
            if storage is None:
                storage = self._views.storage_of(root)[1].for_cause("ready")
            storage.check_base()
        except PathNotFoundError:
            raise PathNotFoundError("it is not there, or no directory") from None
        except RootNotAllowedError:
            raise PathNotFoundError("it leads elsewhere than when the service began") from None
        self._storages[root] = storage


def _without_durations(reasons: tuple[str, ...]) -> tuple[str, ...]:
    """Return reasons in a form that stays the same while a check hangs."""
    return tuple(_DURATION.sub("", reason) for reason in reasons)


@dataclass(slots=True)
class _State:
    """State of one check.

    Attributes:
        running_since: When the running check began; ``None``: it isn't running.
        ended_at: When it last ended; ``None``: never.
        wrong: The error it ended with; ``None``: all is well.
    """

    running_since: float | None = None
    ended_at: float | None = None
    wrong: str | None = None


class Readiness:
    """Answers whether a service is ready; for any thread.

    ``_changed`` guards ``_states``, ``_last`` and ``_asked``, and is notified when a check ends.

    Attributes:
        stopping: Set when the service begins to stop.
    """

    def __init__(
        self,
        checks: Callable[[], Mapping[str, ReadinessCheck]],
        clock: Clock,
        *,
        wait_s: float = WAIT_S,
        kept_s: float = KEPT_S,
        notes: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        """Run no check yet.

        Args:
            checks: Returns the checks by name, with which reasons begin; there may be more later.
            clock: Measures time.
            wait_s: How long to wait for the checks.
            kept_s: How long results are reused.
            notes: Returns reasons for which the service is ready all the same; reads memory only.
        """
        self._notes = notes
        self.stopping = False
        self._checks = checks
        self._clock = clock
        self._wait_s, self._kept_s = wait_s, kept_s
        self._changed = threading.Condition()
        self._states: dict[str, _State] = {}
        self._last: tuple[float, tuple[str, ...]] | None = None
        self._asked: Future[tuple[str, ...]] | None = None

    def ask(self) -> Future[tuple[str, ...]]:
        """Ask why the service isn't ready; never blocks.

        Returns:
            One sentence for each reason, none if it is ready; complete after at most ``wait_s``
            seconds. Calls meanwhile return the same future.
        """
        now = self._clock.monotonic()
        with self._changed:
            # Once the service stops, no probe shares an answer that was begun before.
            if not self.stopping and self._asked is not None and not self._asked.done():
                return self._asked
            asked: Future[tuple[str, ...]] = Future()
            if self.stopping:
                asked.set_result((STOPPING,))
                return asked
            if self._last is not None and now - self._last[0] < self._kept_s:
                asked.set_result(self._last[1])
                return asked
            # Under the lock of these looks: one thread runs the checks for all probes that wait.
            self._asked = asked
        try:
            _start("readiness", self._answer, asked)
        except RuntimeError as exc:
            asked.set_result((f"no thread to look: {exc}",))
        return asked

    async def answer(self, _: Request) -> Reply:
        """Answer a probe, on the loop."""
        # Other probes wait for the same future; a client that leaves must not cancel it.
        reasons = await asyncio.shield(asyncio.wrap_future(self.ask()))
        notes = self._told_notes()
        if reasons:
            body = {"ok": False, "reasons": [*reasons, *notes]}
            return json_reply(body, HTTPStatus.SERVICE_UNAVAILABLE)
        return json_reply({"ok": True, **({"reasons": notes} if notes else {})})

    def status(self) -> dict[str, object]:
        """Return the last reasons, fit for JSON; runs no check."""
        with self._changed:
            last = self._last
        reasons = [] if last is None else [*last[1], *self._told_notes()]
        return {"reasons": reasons, "looked": last is not None}

    def _told_notes(self) -> list[str]:
        return [escaped(note)[:_REASON_CHARACTERS] for note in self._notes()]

    def _answer(self, asked: Future[tuple[str, ...]]) -> None:
        reasons = self._run_checks()
        with self._changed:
            before = None if self._last is None else self._last[1]
            # Before the answer: the next probe finds either the future unfinished, or this.
            self._last = (self._clock.monotonic(), reasons)
        asked.set_result(reasons)
        if reasons and _without_durations(reasons) != _without_durations(before or ()):
            logger.warning("not ready: %s", "; ".join(reasons))
        elif before and not reasons:
            logger.info("ready again")

    def _run_checks(self) -> tuple[str, ...]:
        """Start every check that isn't running, wait for all, and return the reasons."""
        checks = self._checks()
        with self._changed:
            # A check that still runs keeps its state for itself.
            self._states = {name: state for name, state in self._states.items() if name in checks}
        began = self._clock.monotonic()
        for name, check in checks.items():
            with self._changed:
                state = self._states.setdefault(name, _State())
                # Running since an earlier probe: another thread might hang as well.
                if state.running_since is not None:
                    continue
                state.running_since = self._clock.monotonic()
            try:
                _start(f"looks at {name}", self._run, state, check)
            except RuntimeError as exc:
                # Otherwise it would count as running for ever, and not be started again.
                self._end(state, f"no thread to look: {exc}")

        def ended(name: str) -> bool:
            at = self._states[name].ended_at
            # What ended before this probe began doesn't answer it.
            return at is not None and at >= began

        with self._changed:
            self._changed.wait_for(lambda: all(map(ended, checks)), self._wait_s)
            # Still under the lock, as a check may end while the reasons are collected.
            found = {
                name: state.wrong if ended(name) else self._hanging(state)
                for name in checks
                for state in [self._states[name]]
            }
        return tuple(f"{name}: {wrong}" for name, wrong in found.items() if wrong)

    def _hanging(self, state: _State) -> str:
        now = self._clock.monotonic()
        since = now if state.running_since is None else state.running_since
        return f"no answer for {now - since:.0f} s"

    def _run(self, state: _State, check: ReadinessCheck) -> None:
        wrong = None
        try:
            check()
        except Exception as exc:  # noqa: BLE001 - drivers may raise anything
            wrong = escaped(str(exc) or type(exc).__name__)[:_REASON_CHARACTERS]
        self._end(state, wrong)

    def _end(self, state: _State, wrong: str | None) -> None:
        with self._changed:
            state.running_since = None
            state.ended_at, state.wrong = self._clock.monotonic(), wrong
            self._changed.notify_all()


def _start(name: str, work: Callable[..., None], *args: object) -> None:
    """Run work on a thread of its own, which doesn't keep the process from ending."""
    threading.Thread(target=work, args=args, name=name, daemon=True).start()
