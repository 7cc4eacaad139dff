"""``TimelineService``: the service that a driver owns, as a child process or in a thread.

The child is spawned, never forked, and runs ``strandline serve`` with the driver's import path. It
is the default because a server in the driver's process shares its interpreter lock: beside a busy
main thread it answers in tens of milliseconds. ``in_process=True`` is for tests and notebooks.

A child that dies or hangs is replaced on the same port (``strandline.service.process.supervisor``).

Several tables of a driver share one service by reference counting: ``acquire`` starts or returns
it, the last ``release`` stops it, after ``strandline.embed.timeline.server.linger.secs``. At most
one service lingers: it ends when another one is to start or to linger.

After a fork (``multiprocessing``, a daemon) the forked process's copy refuses to be used, and its
descriptors are closed (``strandline.service.process.at_fork``).

Source: Hudi 1.2.0 ``EmbeddedTimelineService``, ``EmbeddedTimelineServerHelper``.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import weakref
from collections.abc import Collection, Hashable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from executor_proxy.http import HttpSession
from fsview.store.stores import StoreOptions
from strandline.service.http.authorization import new_token
from strandline.service.process.linger_timer import LingerTimer
from strandline.service.process.options import Birth
from strandline.service.process.supervisor import Supervisor
from strandline.settings import service as config
from strandline.settings.setting import Settings
from strandline.settings.view_store import STORE_SETTINGS, own_directory, store_options
from timeline.clock import Clock, SystemClock
from timeline.errors import ConfigError, ServiceUnreachableError
from timeline.storage.table_id import absolute

if TYPE_CHECKING:
    from strandline.service.process.thread_runner import InProcess

logger = logging.getLogger(__name__)

STATUS: str = "/v1/strandline/status"


class TimelineService:
    """A timeline service that this process owns.

    ``_shared_lock`` guards the services that tables share, how many users each has, and its timer;
    nothing is started under it. ``_starting`` is held while this service starts for its first user,
    and while it stops after its last: a user that comes meanwhile waits, then starts it again.

    Attributes:
        token: The bearer token; ``None`` if everybody is admitted.
        ca_file: File of the authorities that clients should trust; ``None``: the system's.

    Args:
        roots: Tables, or directories of tables, that may be served; local paths or URLs.
        host: Address to bind.
        port: 0 takes a free one.
        advertised: Host name or address at which executors reach it; ``None``: ``host``.
        storage: Where views are kept: ``"memory"``, ``"spillable"`` or ``"rocksdb"``; ``None``
            uses ``settings``.
        token: Bearer token; ``None`` makes a random one, ``""`` admits everybody (Java clients).
        store_dir: Directory for the files of ``storage``; ``None`` uses ``settings``.
        storage_options: For fsspec, if a root isn't local.
        in_process: Whether to serve from a thread of this process instead of a child.
        settings: Values of ``strandline.settings.service.SERVICE_SETTINGS``; ``None``: defaults.
        clock: Limits how often a child is replaced within a time.
    """

    _shared: ClassVar[dict[Hashable, TimelineService]] = {}
    _shared_lock: ClassVar[threading.RLock] = threading.RLock()

    def __init__(
        self,
        roots: Collection[str],
        host: str = "127.0.0.1",
        port: int = 0,
        storage: str | None = None,
        *,
        advertised: str | None = None,
        store_dir: str | None = None,
        token: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        in_process: bool = False,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        if isinstance(roots, str) or not roots:
            raise ConfigError(f"roots is {roots!r}; it must be one or more base paths or parents")
        settings = settings or Settings({}, {})
        self.token = (new_token() if token is None else token) or None
        self._birth = Birth.of(
            settings,
            tuple(map(absolute, roots)),
            self.token,
            (host, port),
            storage_options=storage_options,
            store=store_options(
                settings, storage=storage, directory=store_dir, rocksdb_default=own_directory()
            ),
        )
        encrypted = self._birth.server.tls_certificate is not None
        self.ca_file = (settings.get(config.TLS_CA) or None) if encrypted else None
        self._advertised = advertised
        self._in_process = in_process
        self._linger_s = settings.get(config.EMBED_LINGER)
        self._ping_timeout_s = settings.get(config.EMBED_PING_TIMEOUT)
        self._clock = clock or SystemClock()
        self._runner: Supervisor | InProcess | None = None
        self._finalizer: weakref.finalize[..., TimelineService] | None = None
        self._starting = threading.Lock()
        self._pid = os.getpid()
        self._users = 0
        self._timer = LingerTimer()
        self._key: Hashable = None
        self._warned = False

    def __repr__(self) -> str:
        runner = self._runner
        where = "stopped" if runner is None else runner.url
        return f"TimelineService({where}, roots={list(self._birth.parts.roots)})"

    def __enter__(self) -> TimelineService:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @classmethod
    def acquire(
        cls,
        root: str,
        settings: Settings | None = None,
        *,
        host: str = "127.0.0.1",
        advertised: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> TimelineService:
        """Return a running service that serves ``root``; call ``release`` when done with it.

        A service on the same address with the same storage options is shared unless
        ``hoodie.embed.timeline.server.reuse.enabled`` is false. It keeps the settings of the first
        caller.

        Raises:
            ConfigError: The settings are refused.
            ServiceUnreachableError: The service didn't start.
        """
        settings = settings or Settings({}, {})
        port = settings.get(config.EMBED_PORT)
        made = cls(
            [root],
            host,
            port,
            advertised=advertised,
            storage_options=storage_options,
            settings=settings,
        )
        key = (host, port, advertised, repr(sorted((storage_options or {}).items())))
        shares = settings.get(config.EMBED_REUSE)
        with cls._shared_lock:
            service = cls._shared.get(key) if shares else None
            # A service that gave up replacing its child stays here until it is looked up.
            if service is None or service._has_ended:
                service = made
                if shares:
                    service._key = key
                    cls._shared[key] = service
            # Before it is started: the release of another user must not stop it meanwhile.
            service._users += 1
            service._timer.cancel()
            unused = cls._unused() if service is made else []
        try:
            # They may hold the fixed port that this one binds.
            for other in unused:
                other._stop_unused()
            # Outside ``_shared_lock``: users of other services don't wait for this start.
            with service._starting:
                if service._runner is None:
                    service.start()
            if service is not made:
                if any(settings.is_set(setting) for setting in STORE_SETTINGS):
                    service._warn_store_ignored(made._birth.parts.store)
                service.add_root(root)
        except BaseException:
            # The caller gets no service that it could release.
            service.release()
            raise
        return service

    def _warn_store_ignored(self, requested: StoreOptions) -> None:
        """Warn once if a later caller's store options differ from those in use."""
        used = self._birth.parts.store
        if requested != used and not self._warned:
            self._warned = True
            logger.warning("ignoring %s: the shared service was started with %s", requested, used)

    def release(self) -> None:
        """Drop a reference that ``acquire`` gave; the last one stops the service, maybe later."""
        # After a fork, service and users are those of the other process.
        if self._pid != os.getpid():
            return
        with self._shared_lock:
            self._users -= 1
            if self._users > 0:
                return
            stopped = self._unused(but=self) if self._linger() else [self]
        for service in stopped:
            service._stop_unused()

    @classmethod
    def _unused(cls, but: TimelineService | None = None) -> list[TimelineService]:
        """Return the shared services without users, which linger no longer, except ``but``."""
        unused = [each for each in cls._shared.values() if each._users == 0 and each is not but]
        for each in unused:
            each._timer.cancel()
        return unused

    def _linger(self) -> bool:
        """Set the timer that stops the unused service; return whether it is set."""
        # A service that isn't shared, or has ended, can't be acquired again.
        if not self._linger_s or self._shared.get(self._key) is not self or not self.is_running:
            return False
        return self._timer.start(self._linger_s, self._end_lingering)

    def _end_lingering(self) -> None:
        with self._shared_lock:
            # It was acquired since, and maybe released again, before this thread got the lock.
            if not self._timer.take():
                return
        self._stop_unused()

    def _stop_unused(self) -> None:
        """Stop the service unless it is used again."""
        with self._starting:
            # A user that comes after this waits for ``_starting``. The service is still shared
            # meanwhile: another one couldn't bind its port yet.
            if self._users == 0:
                self.stop()
        with self._shared_lock:
            # Its place may be another's if it ended.
            if self._users == 0 and self._shared.get(self._key) is self:
                del self._shared[self._key]

    def start(self) -> None:
        """Start the service; returns once requests are answered.

        Raises:
            ConfigError: The port is taken or the host isn't an address of this machine.
            ServiceUnreachableError: The process ended before it served; the message has its last
                log lines.
        """
        self._check_fork()
        if self._runner is not None:
            raise ServiceUnreachableError("this timeline service was started already")
        if self._in_process:
            # Imported here so that a driver with a child doesn't load a web server.
            module = import_module("strandline.service.process.thread_runner")
            self._runner = module.InProcess(self._birth)
        else:
            runner = Supervisor(self._birth, self._ping_timeout_s, self._clock)
            # It refers to the runner only: a reference to the service would keep that alive.
            self._finalizer = weakref.finalize(self, runner.begin_stop)
            self._runner = runner

    def stop(self) -> None:
        """Stop the service after a short grace; no effect if it isn't running, or after a fork."""
        if self._runner is None or self._pid != os.getpid():
            return
        if self._finalizer is not None:
            self._finalizer.detach()
        runner, self._runner = self._runner, None
        runner.stop()

    @property
    def is_running(self) -> bool:
        """Whether this process started the service and it hasn't ended.

        A service whose child is being replaced is running: requests wait for the replacement.
        """
        # Read once, as another thread's ``stop`` may clear it.
        runner = self._runner
        return runner is not None and self._pid == os.getpid() and runner.is_running

    @property
    def _has_ended(self) -> bool:
        """Whether it was started, and ended without ``stop``."""
        runner = self._runner
        return runner is not None and not runner.is_running

    @property
    def url(self) -> str:
        """Where executors reach it: ``http://host:port``, or ``https://`` with a certificate."""
        runner = self._started()
        if self._advertised is None:
            return runner.url
        return self._birth.server.url(runner.port, self._advertised)

    @property
    def local_url(self) -> str:
        """Where this process reaches it, which may not be where executors do.

        With a certificate it is ``url``, whose host the certificate names.
        """
        runner = self._started()
        return runner.url if self._birth.server.tls_certificate is None else self.url

    def add_root(self, root: str) -> None:
        """Serve the tables at and below ``root``, too; returns once they are served."""
        self._started().add_root(absolute(root))

    def status(self) -> dict[str, Any]:
        """Return the service's own figures (``GET /v1/strandline/status``)."""
        answer = HttpSession(self.local_url, self.token, ca_file=self.ca_file).get(STATUS, {})
        status: dict[str, Any] = json.loads(answer)
        return status

    def _started(self) -> Supervisor | InProcess:
        self._check_fork()
        runner = self._runner
        if runner is None:
            raise ServiceUnreachableError("this timeline service isn't running")
        return runner

    def _check_fork(self) -> None:
        if self._pid != os.getpid():
            raise ServiceUnreachableError(
                f"this timeline service belongs to process {self._pid}, which was forked",
                hint="start one of your own",
            )


def _forget_shared() -> None:
    """Begin a forked process without services."""
    TimelineService._shared.clear()
    # A thread that held the old one doesn't exist in this process.
    TimelineService._shared_lock = threading.RLock()


os.register_at_fork(after_in_child=_forget_shared)
