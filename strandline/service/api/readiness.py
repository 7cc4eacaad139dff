"""Whether a service can serve, and if not, why: what ``GET /healthz`` says.

It is ready when every root is there and can be listed, its store can be written to, and it isn't
stopping. Looking may take for ever (a mount whose server is gone), and whoever asks must have an
answer all the same. So each thing is looked at in a thread of its own, one at a time; who asks
waits for all of them together, at most ``WAIT_S`` seconds, and what hasn't answered by then is said
to hang. Its thread is left alone, and no second one is started after it: a probe every few seconds
costs one thread for each thing that hangs, not one a probe.

What was found holds for ``KEPT_S`` seconds, so many may ask.
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
from strandline.service.http.reply import Reply, json_reply
from strandline.service.http.request import Request
from strandline.service.log_format import escaped
from timeline.clock import Clock
from timeline.errors import PathNotFoundError, RootNotAllowedError
from timeline.storage.base import Storage

logger = logging.getLogger(__name__)

WAIT_S: Final = 2.0
KEPT_S: Final = 1.0
STOPPING: Final = "the service is stopping"
_LONGEST: Final = 300
_FOR_HOW_LONG: Final = re.compile(r" for \d+ s$")

Look = Callable[[], None]
"""Looks at one thing; raises what is wrong with it."""


class Looks:
    """What a service depends on: each root, and the store of its views.

    The storage of a root is opened once and kept: a driver may make a client for each thread that
    opens it, and every look has a thread of its own.
    """

    def __init__(self, views: ViewManager) -> None:
        self._views = views
        self._storages: dict[str, Storage] = {}

    def __call__(self) -> dict[str, Look]:
        """Return the looks by what they are at."""
        looks: dict[str, Look] = {
            f"root {root}": partial(self._look_at_root, root) for root in self._views.roots()
        }
        looks["store"] = self._views.stores.check
        return looks

    def _look_at_root(self, root: str) -> None:
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


def _gist(reasons: tuple[str, ...]) -> tuple[str, ...]:
    """Return the reasons without for how long, so that a probe every second isn't a line each."""
    return tuple(_FOR_HOW_LONG.sub("", reason) for reason in reasons)


@dataclass(slots=True)
class _Found:
    """What is known of one thing.

    Attributes:
        running_since: When the look that runs began; ``None``: none does.
        at: When the last look ended; ``None``: none has.
        wrong: What it found; ``None``: all is well.
    """

    running_since: float | None = None
    at: float | None = None
    wrong: str | None = None


class Readiness:
    """Answers whether a service is ready; for any thread.

    ``_changed`` guards ``_found``, ``_last`` and ``_asked``, and is told when a look ends.

    Attributes:
        stopping: Set when the service begins to end.
    """

    def __init__(
        self,
        looks: Callable[[], Mapping[str, Look]],
        clock: Clock,
        *,
        wait_s: float = WAIT_S,
        kept_s: float = KEPT_S,
    ) -> None:
        """Look at nothing yet.

        Args:
            looks: What to look at, by the name that a reason begins with; it may grow.
            clock: To time by.
            wait_s: How long who asks waits.
            kept_s: How long an answer holds.
        """
        self.stopping = False
        self._looks = looks
        self._clock = clock
        self._wait_s, self._kept_s = wait_s, kept_s
        self._changed = threading.Condition()
        self._found: dict[str, _Found] = {}
        self._last: tuple[float, tuple[str, ...]] | None = None
        self._asked: Future[tuple[str, ...]] | None = None

    def ask(self) -> Future[tuple[str, ...]]:
        """Ask why the service isn't ready; never waits.

        Returns:
            A sentence for each reason, none if it is ready, after at most ``wait_s`` seconds. All
            who ask meanwhile share it.
        """
        now = self._clock.monotonic()
        with self._changed:
            if not self.stopping and self._asked is not None and not self._asked.done():
                return self._asked
            asked: Future[tuple[str, ...]] = Future()
            if self.stopping:
                asked.set_result((STOPPING,))
                return asked
            if self._last is not None and now - self._last[0] < self._kept_s:
                asked.set_result(self._last[1])
                return asked
            self._asked = asked
        try:
            threading.Thread(
                target=self._answer, args=(asked,), name="readiness", daemon=True
            ).start()
        except RuntimeError as exc:
            asked.set_result((f"no thread to look: {exc}",))
        return asked

    async def answer(self, _: Request) -> Reply:
        """Answer a probe, on the loop."""
        if reasons := await asyncio.shield(asyncio.wrap_future(self.ask())):
            shape = {"ok": False, "reasons": list(reasons)}
            return json_reply(shape, HTTPStatus.SERVICE_UNAVAILABLE)
        return json_reply({"ok": True})

    def status(self) -> dict[str, object]:
        """Return what was last found, fit for JSON; looks at nothing."""
        with self._changed:
            last = self._last
        return {"reasons": [] if last is None else list(last[1]), "looked": last is not None}

    def _answer(self, asked: Future[tuple[str, ...]]) -> None:
        reasons = self._look()
        with self._changed:
            before = None if self._last is None else self._last[1]
            self._last = (self._clock.monotonic(), reasons)
        asked.set_result(reasons)
        if reasons and (before is None or _gist(reasons) != _gist(before)):
            logger.warning("not ready: %s", "; ".join(reasons))
        elif before and not reasons:
            logger.info("ready again")

    def _look(self) -> tuple[str, ...]:
        """Look at everything that nobody looks at already; wait; return what is wrong."""
        looks = self._looks()
        began = self._clock.monotonic()
        for name, look in looks.items():
            with self._changed:
                found = self._found.setdefault(name, _Found())
                if found.running_since is not None:
                    continue
                found.running_since = self._clock.monotonic()
            try:
                threading.Thread(
                    target=self._run, args=(found, look), name=f"looks at {name}", daemon=True
                ).start()
            except RuntimeError as exc:
                self._note(found, f"no thread to look: {exc}")

        def fresh(name: str) -> bool:
            at = self._found[name].at
            return at is not None and at >= began

        with self._changed:
            self._changed.wait_for(lambda: all(map(fresh, looks)), self._wait_s)
            return tuple(
                f"{name}: {wrong}"
                for name in looks
                if (wrong := self._wrong(self._found[name], fresh(name)))
            )

    def _wrong(self, found: _Found, is_fresh: bool) -> str | None:
        if is_fresh:
            return found.wrong
        since = self._clock.monotonic() if found.running_since is None else found.running_since
        return f"no answer for {self._clock.monotonic() - since:.0f} s"

    def _run(self, found: _Found, look: Look) -> None:
        wrong = None
        try:
            look()
        except Exception as exc:  # noqa: BLE001 - whatever a driver raises is what is wrong
            wrong = escaped(str(exc) or type(exc).__name__)[:_LONGEST]
        self._note(found, wrong)

    def _note(self, found: _Found, wrong: str | None) -> None:
        with self._changed:
            found.running_since = None
            found.at, found.wrong = self._clock.monotonic(), wrong
            self._changed.notify_all()
