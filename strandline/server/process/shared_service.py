"""``SharedService``: the service that the write clients of a driver share, by reference counting.

``acquire`` starts or returns it for a client of one root; ``release`` ends that use. The service
keeps exactly the roots that it may still be asked for:

* a root with a client is served, however many other clients come and go;
* a root that its last client has released is kept for
  ``strandline.embed.timeline.server.linger.secs``, and then removed with its tables' views;
* the service stops with its last root. At most one service without clients lingers: it ends when
  another one is to start or to linger.

So a driver that writes thousands of tables over its life serves only those in use and those
released within the linger time.

Source: Hudi 1.2.0 ``EmbeddedTimelineServerHelper``.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import Any, ClassVar

from fsview.store.stores import StoreOptions
from strandline.server.marker.conflict import ConflictOptions
from strandline.server.process.timeline_service import TimelineService, spelled
from strandline.settings import service as config
from strandline.settings.setting import Settings
from strandline.settings.view_store import STORE_SETTINGS
from timeline.errors import ConfigError, ServiceUnreachableError

logger = logging.getLogger(__name__)


class SharedService(TimelineService):
    """A service whose roots have clients; made by ``acquire``.

    ``_shared_lock`` guards the services that clients share, the uses of their roots, and their
    timers; nothing is waited for under it. ``_changing`` is held while this service starts for its
    first client, stops after its last, and while a root is added or removed; before
    ``_shared_lock``. So a client that comes while its root is being removed has it added again
    afterwards, and one that comes while the service stops starts it again.

    A service without clients begins to stop before ``_changing`` is waited for, as the thread that
    holds it may be waiting for a process that hangs. Between that and the end of the stop,
    ``_is_ending`` is set.
    """

    _shared: ClassVar[dict[Hashable, SharedService]] = {}
    _shared_lock: ClassVar[threading.RLock] = threading.RLock()

    def __init__(
        self,
        root: str,
        settings: Settings,
        *,
        host: str,
        advertised: str | None,
        storage_options: Mapping[str, Any] | None,
    ) -> None:
        port = settings.get(config.EMBED_PORT)
        super().__init__(
            [root],
            host,
            port,
            advertised=advertised,
            storage_options=storage_options,
            settings=settings,
        )
        self._is_shared = settings.get(config.EMBED_REUSE)
        self._linger_s = settings.get(config.EMBED_LINGER)
        options = repr(sorted((storage_options or {}).items()))
        # Else writes would get another conflict detection than they asked for.
        self._key = (host, port, advertised, options, ConflictOptions.of(settings))
        self._changing = threading.Lock()
        self._uses = RootUses()
        self._timer = LingerTimer()
        self._warned = False
        self._is_ending = False

    @classmethod
    def acquire(
        cls,
        root: str,
        settings: Settings | None = None,
        *,
        host: str = "127.0.0.1",
        advertised: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> SharedService:
        """Return a running service that serves ``root``; ``release`` the root when done with it.

        A service on the same address with the same storage options and the same detection of early
        conflicts is shared unless ``hoodie.embed.timeline.server.reuse.enabled`` is false. It keeps
        the other settings of its first caller.

        Raises:
            ConfigError: The settings are refused.
            ServiceUnreachableError: The service didn't start.
        """
        settings, root = settings or Settings({}, {}), spelled(root)
        made = cls(
            root, settings, host=host, advertised=advertised, storage_options=storage_options
        )
        with cls._shared_lock:
            service = cls._shared.get(made._key) if made._is_shared else None
            # A service that gave up replacing its child stays here until it is looked up. One that
            # is stopping may still have the port, so ``_serve`` starts it again.
            if service is None or (service._has_ended and not service._is_ending):
                service = made
                if made._is_shared:
                    cls._shared[made._key] = made
            # Before it is started: the release of another client must not stop it meanwhile.
            service._uses.begin(root)
            unused = cls._end_unused() if service is made else []
        try:
            # They may hold the fixed port that this one binds.
            for other in unused:
                other._remove_due(math.inf)
            # Outside ``_shared_lock``: clients of other services don't wait for this start.
            with service._changing:
                service._serve(root)
            if service is not made and any(map(settings.is_set, STORE_SETTINGS)):
                service._warn_store_ignored(made._birth.parts.store)
        except BaseException:
            # The caller gets no service that it could release.
            service.release(root)
            raise
        return service

    def _serve(self, root: str) -> None:
        """Start the service, or add the root if it runs; ``_changing`` is held."""
        if self._is_ending:
            # This client came after its stop began, and before that was completed.
            self.stop()
        if self._runner is not None:
            self.add_root(root)
            return
        # It may have run before, for clients of other roots.
        self._birth = self._birth.with_roots([root])
        self.start()

    def _warn_store_ignored(self, requested: StoreOptions) -> None:
        """Warn once if a later caller's store options differ from those in use."""
        used = self._birth.parts.store
        if requested != used and not self._warned:
            self._warned = True
            logger.warning("ignoring %s: the shared service was started with %s", requested, used)

    def release(self, root: str) -> None:
        """End a use of ``root`` begun by ``acquire``; never waits unless the service stops.

        The last use of a root has it removed, and the last of all has the service stopped, after
        the linger time.

        Raises:
            ValueError: The root isn't in use.
        """
        # After a fork, service and clients are those of the other process.
        if self._pid != os.getpid():
            return
        with self._shared_lock:
            kept_s = self._linger_s if self._may_linger else 0.0
            if not self._uses.end(spelled(root), self._clock.monotonic() + kept_s):
                return
            # A thread removes it, without delay if ``kept_s`` is 0: the child may be busy with
            # another root on storage that hangs, and a client must not wait for that to close.
            is_set = (kept_s > 0 or self._uses.clients > 0) and self._set_timer()
            if self._uses.clients:
                return
            stopped = self._end_unused(but=self) if is_set else [self]
            if not is_set:
                self._begin_stop()
        for service in stopped:
            service._remove_due(math.inf)

    @property
    def _may_linger(self) -> bool:
        """Whether the service can be acquired again: it is shared, and hasn't ended."""
        return self._shared.get(self._key) is self and self.is_running

    @classmethod
    def _end_unused(cls, but: SharedService | None = None) -> list[SharedService]:
        """Begin to stop the shared services without clients, except ``but``; return them."""
        unused = [s for s in cls._shared.values() if not s._uses.clients and s is not but]
        for each in unused:
            each._timer.cancel()
            # All at once: if the caller is interrupted, no process is left.
            each._begin_stop()
        return unused

    def _begin_stop(self) -> None:
        self._is_ending = self._runner is not None
        super()._begin_stop()

    def stop(self) -> None:
        """See ``TimelineService``."""
        super().stop()
        self._is_ending = False

    def _set_timer(self) -> bool:
        """Set the timer for the next root to be removed, if any; return whether it is set."""
        due_s = self._uses.next_due_s
        # A timer that is set is for a root released earlier; this root's timer follows it.
        if self._timer.thread is None and due_s is not None:
            self._timer.start(max(0.0, due_s - self._clock.monotonic()), self._end_lingering)
        return self._timer.thread is not None

    def _end_lingering(self) -> None:
        with self._shared_lock:
            # It was cancelled, and maybe set again, before this thread got the lock.
            if not self._timer.take():
                return
        self._remove_due(self._clock.monotonic())

    def _remove_due(self, now_s: float) -> None:
        """Remove the unused roots that are kept no longer than ``now_s``, infinity for all.

        The service stops with its last root.
        """
        with self._changing:
            with self._shared_lock:
                due = self._uses.take_due(now_s)
                is_unused = self._uses.is_empty
            # A client that comes from here on waits for ``_changing``. The service is still shared
            # meanwhile: another one couldn't bind its port yet.
            if is_unused:
                self.stop()
            else:
                for root in due:
                    self._remove(root)
        with self._shared_lock:
            if not (is_unused and self._uses.is_empty):
                self._set_timer()
            # If it has ended, another service may have taken its place.
            elif self._shared.get(self._key) is self:
                del self._shared[self._key]

    def _remove(self, root: str) -> None:
        try:
            self.remove_root(root)
        except ServiceUnreachableError:
            logger.debug("the timeline service ended before root %s was removed", root)
        except ConfigError as exc:
            logger.warning("the timeline service can't close a table: %s", exc)


def _forget_shared() -> None:
    """Reset the shared services in a forked process."""
    SharedService._shared.clear()
    # A thread that held the old one doesn't exist in this process.
    SharedService._shared_lock = threading.RLock()


os.register_at_fork(after_in_child=_forget_shared)


class LingerTimer:
    """At most one timer; all methods are called under a lock of the owner's.

    Attributes:
        thread: The timer that is set, or ``None``.
    """

    def __init__(self) -> None:
        self.thread: threading.Timer | None = None

    def start(self, seconds: float, function: Callable[[], None]) -> bool:
        """Set the timer; return whether it is set."""
        self.thread = threading.Timer(seconds, function)
        # The interpreter would wait for another thread; at its exit the child ends at once.
        self.thread.daemon = True
        try:
            self.thread.start()
        except RuntimeError:  # the interpreter exits, or has no more threads
            self.thread = None
        return self.thread is not None

    def cancel(self) -> None:
        """Cancel the timer, if one is set; its function may be waiting for the lock already."""
        thread, self.thread = self.thread, None
        if thread is not None:
            thread.cancel()

    def take(self) -> bool:
        """Return whether the calling thread is the timer that is set; if so, unset it."""
        if self.thread is not threading.current_thread():
            return False
        self.thread = None
        return True


class RootUses:
    """The roots of one service: those in use, and those that are kept for the next client.

    Roots are texts; the caller spells each in one way. Times are seconds of the caller's clock. Not
    thread-safe.
    """

    def __init__(self) -> None:
        self._clients: Counter[str] = Counter()
        self._kept_until_s: dict[str, float] = {}

    @property
    def clients(self) -> int:
        """Number of clients of all roots."""
        return self._clients.total()

    @property
    def is_empty(self) -> bool:
        """Whether no root is in use, and none is kept."""
        return not self._clients and not self._kept_until_s

    @property
    def next_due_s(self) -> float | None:
        """When the next root is to be removed; ``None`` if all are in use."""
        return min(self._kept_until_s.values(), default=None)

    def begin(self, root: str) -> None:
        """Count another client of a root, which is in use from now on."""
        self._clients[root] += 1
        self._kept_until_s.pop(root, None)

    def end(self, root: str, kept_until_s: float) -> bool:
        """Count a client less; return whether the root is unused now, and kept until a time.

        Raises:
            ValueError: The root has no client.
        """
        if root not in self._clients:
            raise ValueError(f"root {root!r} has no client; it was released more often than taken")
        self._clients[root] -= 1
        if self._clients[root]:
            return False
        del self._clients[root]
        self._kept_until_s[root] = kept_until_s
        return True

    def take_due(self, now_s: float) -> tuple[str, ...]:
        """Forget and return the unused roots that are kept no longer than ``now_s``."""
        due = tuple(root for root, until_s in self._kept_until_s.items() if until_s <= now_s)
        for root in due:
            del self._kept_until_s[root]
        return due
