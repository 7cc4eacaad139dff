"""``Supervisor``: the listening socket of a service, and the child process that serves it.

The driver binds the socket and keeps it open, so a child that died or hangs is replaced on the same
port, even in the middle of a job, with the same token and TLS files and the current roots.
Meanwhile connections wait in the socket's backlog. After ``RESTARTS`` restarts within
``RESTARTS_WITHIN_S`` the supervisor gives up and closes the socket, so that clients are refused at
once instead of waiting on a socket that is never served. ::

                         ┌──────────── a child serves ────────────┐
                         ▼                                        │
    STARTING ──▶ SERVING ── it died, or hangs ──▶ REPLACING ──────┘
        │           │ stop                            │ stop, too many restarts
        │           ▼                                 │
        └───────▶ ENDED ◀─────────────────────────────┘
    the first child failed, stop
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import select
import socket
import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

from strandline.server.http.server_options import bind
from strandline.server.process import at_fork
from strandline.server.process.child_handle import KILL_AFTER_S, ChildProcess
from strandline.server.process.options import Birth
from timeline.clock import Clock
from timeline.errors import ServiceTimeoutError, ServiceUnreachableError, StrandlineError

logger = logging.getLogger(__name__)

RESTARTS: Final = 3
RESTARTS_WITHIN_S: Final = 60.0
FIRST_PAUSE_S: Final = 1.0
"""After a start that failed; doubled with each."""


class Phase(Enum):
    """What a supervisor's child is doing."""

    STARTING = auto()
    SERVING = auto()
    REPLACING = auto()
    ENDED = auto()
    """The socket is closed, and no child will come; the last one may still be ending."""


@dataclass(slots=True)
class RestartLimit:
    """Allows at most ``RESTARTS`` restarts in any window of ``RESTARTS_WITHIN_S`` seconds."""

    _times: deque[float] = field(default_factory=lambda: deque(maxlen=RESTARTS))

    def allow(self, now: float) -> bool:
        """Count a restart at ``now``, in seconds; return whether it is allowed."""
        if len(self._times) == RESTARTS and now - self._times[0] < RESTARTS_WITHIN_S:
            return False
        self._times.append(now)
        return True


class Supervisor:
    """A service in a child process, which is replaced when it dies or hangs.

    One thread starts, watches, replaces and ends the children, and closes the listening socket.
    ``_roots_changing`` is held while a root is added or removed, before ``_changed``.
    ``_changed`` guards ``_birth``, ``_child`` and ``_phase``; it is held while a process is
    spawned, before ``at_fork.making``, but not until that serves. ``_stopping`` asks the thread to
    end.

    Attributes:
        port: The port that is bound.
        url: Where the service answers this process.
    """

    def __init__(self, birth: Birth, ping_timeout_s: float, clock: Clock) -> None:
        """Bind the socket and start a child; returns once it serves.

        Args:
            birth: The options of the service.
            ping_timeout_s: After which a child that doesn't answer is replaced.
            clock: For the number of restarts within a time.

        Raises:
            ConfigError: The address can't be bound, or the child refused its options.
            ServiceUnreachableError: The child ended; the message has its last log lines.
        """
        self._birth = birth
        self._ping_timeout_s = ping_timeout_s
        self._clock = clock
        self._pid = os.getpid()
        self._roots_changing = threading.Lock()
        self._changed = threading.Condition()
        self._child: ChildProcess | None = None
        self._phase = Phase.STARTING
        self._stopping = False
        self._limit = RestartLimit()
        self._first: Future[None] = Future()
        # A process forked in between would keep the port, as nothing in it closes the socket.
        with at_fork.making:
            self._listener = bind(birth.server.host, birth.server.port)
            self._wake, self._woken = socket.socketpair()
            at_fork.add(self)
        self.port = int(self._listener.getsockname()[1])
        self.url = birth.server.local_url(self.port)
        # A daemon: the interpreter joins other threads before ``stop`` is called at its exit.
        self._thread = threading.Thread(
            target=self._supervise, name="strandline-supervisor", daemon=True
        )
        atexit.register(self.stop)
        try:
            self._thread.start()
        except BaseException:
            # There is no thread that would close the sockets.
            self._close()
            raise
        try:
            self._first.result()
        except BaseException:
            # Also after an interrupt of this wait, while the thread is still starting a child.
            self.stop()
            raise

    @property
    def is_running(self) -> bool:
        """Whether a child serves or is being replaced: requests are answered, maybe later."""
        return self._phase is not Phase.ENDED

    @property
    def roots(self) -> tuple[str, ...]:
        """The roots with which a replacement would be started."""
        return self._birth.parts.roots

    def add_root(self, root: str) -> None:
        """Serve the tables at and below ``root``, too; returns once a child serves them.

        Raises:
            ConfigError: The child refused the root.
            ServiceTimeoutError: Storage hangs. The child is replaced, without the root.
            ServiceUnreachableError: The service has ended.
        """
        child = None
        with self._roots_changing:
            while True:
                child = self._successor(child)
                # It ended during the exchange, and its successor may have been born without the
                # root.
                if not child.add_root(root):
                    continue
                with self._changed:
                    # After the child took it: a root that is refused must not reach a successor.
                    self._birth = self._birth.with_roots((*self.roots, root))
                    # Otherwise the child has ended since, and another was born without the root.
                    if self._child is child:
                        return

    def remove_root(self, root: str) -> None:
        """Refuse the tables at and below ``root``; returns once no child serves them.

        Raises:
            ConfigError: The child could not close a table. It refuses the root's tables all the
                same.
            ServiceUnreachableError: The service has ended.
        """
        with self._roots_changing:
            with self._changed:
                # Before the child is told: one that is started from here on is born without the
                # root. One that was started before, and may not serve yet, is told below.
                self._birth = self._birth.with_roots(r for r in self.roots if r != root)
            # If it ends during the exchange, its successor is started after the change above.
            try:
                self._successor(None).remove_root(root)
            except ServiceTimeoutError as exc:
                # It is killed, so no child serves the root.
                logger.warning("%s", exc)

    def stop(self) -> None:
        """Close the socket and end the child; no effect in a forked process."""
        if os.getpid() != self._pid:
            return
        self.begin_stop()
        with self._changed:
            # The thread waits for a child that starts, up to ``START_S``. Under the lock ``_start``
            # has either set ``_child``, or will find ``_stopping``.
            # A child that has ended, or is ending by itself, keeps its grace period.
            if self._child is not None and self._phase in (Phase.STARTING, Phase.REPLACING):
                self._child.kill()
        self._thread.join()

    def begin_stop(self) -> None:
        """Stop without waiting.

        Takes no lock: the garbage collector calls it, in any thread, with any lock held.
        """
        if os.getpid() != self._pid:
            return
        # Before the wake-up: a thread that is replacing a child checks only this.
        self._stopping = True
        with contextlib.suppress(OSError):  # it has ended
            self._wake.send(b".")

    def abandon(self) -> None:
        """Close this process's copies of the descriptors, after a fork."""
        # Without ``_changed``: another thread may have held it when the process was forked.
        for owned in (self._listener, self._wake, self._woken):
            owned.close()
        if self._child is not None:
            self._child.abandon()

    def _successor(self, ended: ChildProcess | None) -> ChildProcess:
        """Wait until a child serves, other than one that has ended; return it."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._phase is Phase.ENDED
                    or (self._phase is Phase.SERVING and self._child is not ended)
                )
            )
            if self._phase is Phase.ENDED or self._child is None:
                raise ServiceUnreachableError(f"the timeline service on {self.url} has ended")
            return self._child

    def _supervise(self) -> None:
        """Start the first child, then replace it as often as necessary."""
        try:
            child: ChildProcess | None = self._start()
        except BaseException as exc:  # noqa: BLE001 - the constructor raises it
            self._close()
            with at_fork.making:
                at_fork.remove(self)
            self._first.set_exception(exc)
            return
        self._first.set_result(None)
        try:
            while child is not None:
                reason = child.watch(self._woken, self._ping_timeout_s)
                if reason is None:
                    break
                child = self._replacement(child.pid, reason)
        finally:
            # Before the child ends, so that no thread waits for its successor meanwhile.
            self._close()
            # A child that wasn't replaced was reaped by ``watch``.
            if child is not None:
                child.end(KILL_AFTER_S)
            # Until here a forked process closes its copies of the child's pipes.
            with at_fork.making:
                at_fork.remove(self)

    def _start(self) -> ChildProcess:
        """Return a child that serves."""
        with self._changed:
            if self._stopping:
                raise ServiceUnreachableError("the timeline service is being stopped")
            # Read in one step with setting ``_child``: a root that is recorded later finds another
            # child, and is sent to that (``add_root``).
            birth = self._birth
            # A forked process finds the pipes only once ``_child`` owns them.
            with at_fork.making:
                child = self._child = ChildProcess(self._listener)
        # Outside the lock: this takes up to ``START_S``, and ``stop`` must get the lock to kill it.
        child.serve(birth)
        with self._changed:
            self._phase = Phase.SERVING
            self._changed.notify_all()
        return child

    def _replacement(self, pid: int, reason: str) -> ChildProcess | None:
        """Return a replacement of a child that has ended; ``None`` after ``stop`` or giving up."""
        with self._changed:
            # From here on ``add_root`` waits for the successor.
            self._phase = Phase.REPLACING
        pause_s = FIRST_PAUSE_S
        while not self._stopping:
            if not self._limit.allow(self._clock.monotonic()):
                logger.warning(
                    "the timeline service's process %d %s; it is not replaced any more after"
                    " %d restarts within %g s, and %s is closed",
                    pid,
                    reason,
                    RESTARTS,
                    RESTARTS_WITHIN_S,
                    self.url,
                )
                return None
            with self._changed:
                parts = self._birth.parts
                parts = replace(parts, restarts=parts.restarts + 1)
                # Under the lock: ``add_root`` changes the options, too.
                self._birth = replace(self._birth, parts=parts)
            try:
                child = self._start()
            # OSError: no process or descriptor is left; RuntimeError: the interpreter exits.
            except (StrandlineError, OSError, RuntimeError) as exc:
                # ``stop`` kills a child that starts, which is no failure.
                if not self._stopping:
                    logger.warning("the timeline service's process can't be replaced: %s", exc)
                # A shortage, such as of descriptors, may be over by then.
                select.select([self._woken], [], [], pause_s)
                pause_s *= 2
            else:
                logger.warning(
                    "the timeline service's process %d %s; process %d replaces it on %s (restart"
                    " %d)",
                    pid,
                    reason,
                    child.pid,
                    self.url,
                    parts.restarts,
                )
                return child
        return None

    def _close(self) -> None:
        """Close the listening socket: from here on connections are refused."""
        with self._changed:
            self._phase = Phase.ENDED
            # A forked process finds the sockets open and owned, or closed.
            with at_fork.making:
                for owned in (self._listener, self._wake, self._woken):
                    owned.close()
            # Threads that wait in ``_successor`` must notice that no child will come.
            self._changed.notify_all()
        atexit.unregister(self.stop)
