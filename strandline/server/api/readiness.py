"""``Readiness``: whether a service can serve, and if not, why.

``GET /healthz`` answers for the whole service: it is ready as long as one of its roots can be
listed and it isn't stopping. The answer also names roots that can't be listed, and errors of the
store, without which views are kept in memory. ``GET /readyz`` answers for all roots,
``GET /readyz?root=R`` for one.

A check may hang forever (a mount whose server is down), but probes must be answered. So checks run
on a few threads of their own; more are added while those are stuck. A probe waits at most
``WAIT_S`` seconds for all its checks together. A check that doesn't end is reported as hanging; it
isn't awaited or started again: each hanging check costs one thread, however many probes come.

Results are reused for ``KEPT_S`` seconds.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Final, NamedTuple

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
RETRY_S: Final = 5.0
"""Between two searches for roots that were missing at the start, if no probe comes."""
STOPPING: Final = "the service is stopping"
ROOT: Final = "root"
"""Parameter of ``/readyz``."""
LANES: Final = 8
"""Threads on which checks run as long as they end."""
_QUERY_BYTES: Final = 16 << 10
"""Longest query string of ``/readyz``: that of the longest path, each character escaped."""
_STEPS: Final = 40
"""Parts of the wait for checks; after each in which no check ended, the threads are doubled."""
_REASON_CHARACTERS: Final = 300
_DURATION: Final = re.compile(r" for \d+ s$")


class ReadinessCheck(NamedTuple):
    """One thing that a service needs.

    Attributes:
        run: Raises an error if something is wrong with it.
        root: The root that it checks; ``None``: something that all requests need.
    """

    run: Callable[[], None]
    root: str | None = None


class Health(NamedTuple):
    """The answer to a probe.

    Attributes:
        is_ready: Whether the root, or the service, can serve.
        reasons: A sentence for each check that failed.
        notes: Sentences about problems that leave it ready.
    """

    is_ready: bool
    reasons: tuple[str, ...]
    notes: tuple[str, ...] = ()


class ServiceChecks:
    """The checks of a service: its roots, and the store of its views.

    The storage of a root is opened once: a driver may open a client for each thread, and checks run
    on any thread.

    Attributes:
        notes: Errors of the stores at the last check.
    """

    def __init__(self, views: ViewManager) -> None:
        self.notes: tuple[str, ...] = ()
        self._views = views
        self._storages: dict[str, Storage] = {}

    def __call__(self) -> dict[str, ReadinessCheck]:
        """Return the checks by name."""
        roots, awaited = self._views.roots(), self._views.awaited_roots()
        # A copy, made in one step: checks that run in their threads add storages.
        for gone in set(self._storages).difference(roots):
            self._storages.pop(gone, None)
        checks = {name_of(r): ReadinessCheck(partial(self._check_root, r), r) for r in roots}
        for root in awaited:
            look = partial(self._views.find_root, root)
            checks[name_of(root)] = ReadinessCheck(look, root)
        return {**checks, "store": ReadinessCheck(self._check_store)}

    def _check_store(self) -> None:
        """Record errors of the stores, without which views are kept in memory."""
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


def name_of(root: str) -> str:
    """Return the name of a root's check."""
    return f"root {root}"


def _without_durations(reasons: tuple[str, ...]) -> tuple[str, ...]:
    """Return reasons in a form that stays the same while a check hangs."""
    return tuple(_DURATION.sub("", reason) for reason in reasons)


@dataclass(slots=True, eq=False)
class _Probe:
    """A probe that waits for checks; ``left``: how many haven't ended."""

    left: int = 0


@dataclass(slots=True, eq=False)
class _State:
    """State of one check.

    Attributes:
        running_since: When the running check was begun; ``None``: it isn't running.
        ended_at: When it last ended; ``None``: never.
        wrong: The error it ended with; ``None``: all is well.
        probes: The probes that wait for its end.
    """

    running_since: float | None = None
    ended_at: float | None = None
    wrong: str | None = None
    probes: list[_Probe] = field(default_factory=list)


class Readiness:
    """Answers whether a service is ready; for any thread.

    ``_changed`` guards the states, the queue, the last answer and the probes under way, and is
    notified when the last check that a probe waits for has ended.

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
        requires_roots: bool = False,
        root_named: Callable[[str], str | None] = lambda named: named,
    ) -> None:
        """Run no check yet.

        Args:
            checks: Returns the checks by name, with which reasons begin; there may be more later.
            clock: Measures time.
            wait_s: How long to wait for the checks.
            kept_s: How long results are reused.
            notes: Returns problems that leave the service ready; reads memory only.
            requires_roots: Whether the service is ready only if all of its roots are.
            root_named: Returns the root that a client means, ``None`` if there is none.
        """
        self._notes = notes
        self.stopping = False
        self._checks = checks
        self._clock = clock
        self._wait_s, self._kept_s = wait_s, kept_s
        self._requires_roots = requires_roots
        self._root_named = root_named
        self._changed = threading.Condition()
        self._states: dict[str, _State] = {}
        self._queue: deque[tuple[_State, ReadinessCheck]] = deque()
        self._ends = 0
        self._last: tuple[str, ...] | None = None
        self._asked: dict[str | None, Future[Health]] = {}

    def ask(self, root: str | None = None) -> Future[Health]:
        """Ask whether the service is ready; never blocks.

        Args:
            root: Check only this root, as ``ViewManager.roots`` returns it, and what all requests
                need; ``None``: check everything.

        Returns:
            Complete after about ``wait_s`` seconds at most. Equal calls meanwhile return the same
            future.
        """
        with self._changed:
            # Once the service stops, no probe shares an answer begun before.
            known = self._asked.get(root)
            if not self.stopping and known is not None and not known.done():
                return known
            asked: Future[Health] = Future()
            if self.stopping:
                asked.set_result(Health(is_ready=False, reasons=(STOPPING,)))
                return asked
            # Under the same lock: one thread runs the checks for all waiting probes.
            self._asked[root] = asked
        try:
            _start("readiness", self._answer, root, asked)
        except RuntimeError as exc:
            asked.set_result(Health(is_ready=False, reasons=(f"no thread to look: {exc}",)))
        return asked

    async def answer(self, _: Request) -> Reply:
        """Answer a probe of the service, on the loop."""
        return _reply(await self._health(None))

    async def answer_strictly(self, request: Request) -> Reply:
        """Answer a probe of one root, or of all: ready means that all of them are."""
        # Any client may send this, and it is parsed on the loop.
        short = len(request.query) <= _QUERY_BYTES
        named = request.parameters().get(ROOT) if short else request.query.decode("ascii")
        root = None if named is None else self._root_named(named)
        if named is not None and root is None:
            reason = f"no root {escaped(named)[:_REASON_CHARACTERS]} is served"
            return json_reply({"ok": False, "reasons": [reason]}, HTTPStatus.NOT_FOUND)
        health = await self._health(root)
        return _reply(health._replace(is_ready=not health.reasons))

    async def _health(self, root: str | None) -> Health:
        # Other probes wait for the same future; a client that disconnects must not cancel it.
        return await asyncio.shield(asyncio.wrap_future(self.ask(root)))

    def status(self) -> dict[str, object]:
        """Return the last reasons, or that the service stops, fit for JSON; runs no check."""
        with self._changed:
            last = self._last
        if self.stopping:
            return {"reasons": [STOPPING], "looked": last is not None}
        reasons = [] if last is None else [*last, *self._told_notes()]
        return {"reasons": reasons, "looked": last is not None}

    def _told_notes(self) -> tuple[str, ...]:
        return tuple(escaped(note)[:_REASON_CHARACTERS] for note in self._notes())

    def _answer(self, root: str | None, asked: Future[Health]) -> None:
        checks = self._checks()
        if root is not None:
            checks = {name: c for name, c in checks.items() if c.root in (None, root)}
        wrong = self._run_checks(checks, all_of_them=root is None)
        reasons = tuple(f"{name}: {why}" for name, why in wrong.items())
        health = Health(self._is_ready(checks, wrong), reasons, self._told_notes())
        with self._changed:
            before = self._last or ()
            if root is None:
                self._last = reasons
            # Before the answer: the next probe finds none under way.
            self._asked.pop(root, None)
        if root is None:
            self._log(before, health)
        asked.set_result(health)

    def _log(self, before: tuple[str, ...], health: Health) -> None:
        """Log what has changed since the last answer for all roots."""
        reasons = health.reasons
        if reasons and _without_durations(reasons) != _without_durations(before):
            said = "ready, except: %s" if health.is_ready else "not ready: %s"
            logger.warning(said, "; ".join(reasons))
        elif before and not reasons:
            logger.info("ready again")

    def _is_ready(self, checks: Mapping[str, ReadinessCheck], wrong: Mapping[str, str]) -> bool:
        roots = [name for name, check in checks.items() if check.root is not None]
        away = sum(name in wrong for name in roots)
        if away < len(wrong):  # something that all requests need
            return False
        return not away if self._requires_roots else away < max(1, len(roots))

    def _run_checks(
        self, checks: Mapping[str, ReadinessCheck], *, all_of_them: bool
    ) -> dict[str, str]:
        """Run the checks that have no fresh result, and wait; return what is wrong by name."""
        probe, now = _Probe(), self._clock.monotonic()
        with self._changed:
            if all_of_them:
                # Only the running check itself changes its state.
                self._states = {n: state for n, state in self._states.items() if n in checks}
            for name, check in checks.items():
                state = self._states.setdefault(name, _State())
                if state.running_since is None:
                    if state.ended_at is not None and now - state.ended_at < self._kept_s:
                        continue
                    state.running_since = now
                    self._queue.append((state, check))
                elif now - state.running_since > self._wait_s:
                    continue  # it hangs, and an earlier probe has waited for it
                state.probes.append(probe)
                probe.left += 1
            lanes = min(LANES, len(self._queue))
        self._wait(probe, lanes)
        with self._changed:
            # Still under the lock, as a check may end while the reasons are collected.
            states = {name: self._states.get(name, _State()) for name in checks}
            for state in states.values():
                if state.running_since is not None:
                    state.probes = [other for other in state.probes if other is not probe]
            wrong = {name: self._wrong(state) for name, state in states.items()}
        return {name: why for name, why in wrong.items() if why}

    def _wait(self, probe: _Probe, lanes: int) -> None:
        """Have queued checks run until a probe's have ended, for ``wait_s`` at most."""
        step_s, started = self._wait_s / _STEPS, 0
        for _ in range(_STEPS):
            self._start_lanes(lanes)
            started += lanes
            with self._changed:
                ends = self._ends
                if self._changed.wait_for(lambda: not probe.left, step_s):
                    return
                # If none has ended, the running checks are stuck; the others must not wait for
                # them.
                lanes = min(started, len(self._queue)) if self._ends == ends else 0

    def _start_lanes(self, count: int) -> None:
        for number in range(count):
            try:
                _start("readiness-check", self._run_queued)
            except RuntimeError as exc:
                if number == 0:
                    # Otherwise they would count as running forever, and never be started again.
                    for state in self._taken_all():
                        self._end(state, f"no thread to look: {exc}")
                return

    def _taken_all(self) -> Iterable[_State]:
        with self._changed:
            taken = [state for state, _ in self._queue]
            self._queue.clear()
        return taken

    def _run_queued(self) -> None:
        """Run queued checks until there are none; this is what a thread of the checks does."""
        while True:
            with self._changed:
                if not self._queue:
                    return
                state, check = self._queue.popleft()
            wrong = None
            try:
                check.run()
            except Exception as exc:  # noqa: BLE001 - drivers may raise anything
                wrong = escaped(str(exc) or type(exc).__name__)[:_REASON_CHARACTERS]
            self._end(state, wrong)

    def _wrong(self, state: _State) -> str | None:
        if state.running_since is None:
            return state.wrong
        return f"no answer for {self._clock.monotonic() - state.running_since:.0f} s"

    def _end(self, state: _State, wrong: str | None) -> None:
        with self._changed:
            state.running_since = None
            state.ended_at, state.wrong = self._clock.monotonic(), wrong
            self._ends += 1
            probes, state.probes = state.probes, []
            for probe in probes:
                probe.left -= 1
            if not all(probe.left for probe in probes):
                self._changed.notify_all()


def _reply(health: Health) -> Reply:
    reasons = [*health.reasons, *health.notes]
    told = {"reasons": reasons} if reasons else {}
    status = HTTPStatus.OK if health.is_ready else HTTPStatus.SERVICE_UNAVAILABLE
    return json_reply({"ok": health.is_ready, **told}, status)


def _start(name: str, work: Callable[..., None], *args: object) -> None:
    """Run work on a thread of its own, which doesn't keep the process from ending."""
    threading.Thread(target=work, args=args, name=name, daemon=True).start()
