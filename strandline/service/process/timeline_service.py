"""``TimelineService``: the service that a driver owns, as a child process or in a thread.

The child is spawned, never forked, and runs the code of ``strandline serve`` with the driver's
import path. Beside a main thread that burns Python, a server in the same process answers in tens
of milliseconds; ``in_process=True`` is for tests and notebooks.

Several tables of a driver share one service: ``acquire`` returns the running one that serves
alike and counts its users, ``release`` ends it with the last.

After a fork (``multiprocessing``, a daemon) the copy in the forked process is unusable and
harmless: it refuses to be used, and its ends of the pipes and its listening socket are closed
there, so that the service still ends with its driver.

Source: Hudi 1.2.0 ``EmbeddedTimelineService``, ``EmbeddedTimelineServerHelper``.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
import threading
import weakref
from collections.abc import Collection, Hashable, Mapping
from importlib import import_module
from types import TracebackType
from typing import Any, ClassVar, Protocol

from executor_proxy.http import HttpSession
from fsview.store.stores import StoreOptions
from strandline.service.http.authorization import new_token
from strandline.service.http.server_options import ServerOptions
from strandline.service.process.child_handle import ChildProcess
from strandline.service.process.options import Birth, PartsOptions
from strandline.settings.service import EMBED_PORT, EMBED_REUSE, SERVICE_SETTINGS, TLS_CA
from strandline.settings.setting import Settings
from strandline.settings.view_store import STORE_SETTINGS, store_options
from timeline.errors import ConfigError, ServiceUnreachableError
from timeline.storage.table_id import TableId

logger = logging.getLogger(__name__)

STATUS: str = "/v1/strandline/status"


class Runner(Protocol):
    """Whatever a service runs in."""

    @property
    def url(self) -> str:
        """Where it answers."""

    @property
    def is_running(self) -> bool:
        """Whether it still does, as far as can be told without asking it."""

    def add_root(self, root: str) -> None:
        """Let it serve the tables at and below ``root``, from when this returns."""

    def stop(self) -> None:
        """End it: gracefully, within two seconds."""

    def abandon(self) -> None:
        """Close what a fork has copied."""


class TimelineService:
    """A timeline service that this process owns.

    Args:
        roots: Tables, or directories of tables, that it may serve; local paths or URLs.
        host: Address to bind.
        port: 0 takes a free one.
        storage: Where views are kept: ``"memory"``, ``"spillable"`` or ``"rocksdb"``; ``None``
            takes what ``settings`` say.
        token: Bearer token; ``None`` makes a random one, ``""`` admits everybody (Java clients).
        store_dir: Directory for the files of ``storage``; ``None`` takes what ``settings`` say.
        storage_options: For fsspec, when a root isn't local.
        in_process: Serve from a thread of this process instead of a child.
        settings: Values of ``strandline.settings.service.SERVICE_SETTINGS``; defaults otherwise.
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
        store_dir: str | None = None,
        token: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        in_process: bool = False,
        settings: Settings | None = None,
    ) -> None:
        if isinstance(roots, str) or not roots:
            raise ConfigError(f"roots is {roots!r}; it must be one or more base paths or parents")
        settings = settings or Settings({}, {})
        self._token = new_token() if token is None else token
        self._birth = Birth(
            PartsOptions.of(
                settings,
                tuple(map(_absolute, roots)),
                self._token or None,
                storage_options=storage_options,
                store=store_options(
                    settings,
                    storage=storage,
                    directory=store_dir,
                    rocksdb_default=_own_directory(),
                ),
                shown=settings.shown(SERVICE_SETTINGS),
            ),
            ServerOptions.of(settings, host, port),
        )
        encrypted = self._birth.server.tls_certificate is not None
        self._ca_file = (settings.get(TLS_CA) or None) if encrypted else None
        self._in_process = in_process
        self._runner: Runner | None = None
        self._pid = os.getpid()
        self._users = 0
        self._key: Hashable = None
        self._warned = False

    def __repr__(self) -> str:
        where = "stopped" if self._runner is None else self._runner.url
        return f"TimelineService({where}, roots={list(self._birth.parts.roots)})"

    def __enter__(self) -> TimelineService:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @classmethod
    def acquire(
        cls,
        root: str,
        settings: Settings | None = None,
        *,
        host: str = "127.0.0.1",
        storage_options: Mapping[str, Any] | None = None,
    ) -> TimelineService:
        """Return this driver's running service, a table added, or start it; ``release`` it then.

        A service bound to the same address, with the same storage options, is shared unless
        ``hoodie.embed.timeline.server.reuse.enabled`` is false. What it was started with holds:
        settings that a later caller brings don't change it.

        Raises:
            ConfigError: A service can't be made so.
            ServiceUnreachableError: It didn't start.
        """
        settings = settings or Settings({}, {})
        port = settings.get(EMBED_PORT)
        made = cls([root], host, port, storage_options=storage_options, settings=settings)
        key = (host, port, repr(sorted((storage_options or {}).items())))
        with cls._shared_lock:
            service = cls._shared.get(key)
            if service is not None and service.is_running and settings.get(EMBED_REUSE):
                if any(settings.is_set(setting) for setting in STORE_SETTINGS):
                    service._warn_of_another(made._birth.parts.store)
                service.add_root(root)
            else:
                service = made
                service.start()
                if settings.get(EMBED_REUSE):
                    service._key = key
                    cls._shared[key] = service
            service._users += 1
            return service

    def _warn_of_another(self, store: StoreOptions) -> None:
        """Say once that this service's store is what it was started with."""
        mine = self._birth.parts.store
        if store != mine and not self._warned:
            self._warned = True
            logger.warning(
                "a client asks for %s; the service it shares goes on with %s", store, mine
            )

    def release(self) -> None:
        """Give back what ``acquire`` returned; the last user's release stops the service."""
        if self._pid != os.getpid():
            return
        with self._shared_lock:
            self._users -= 1
            if self._users > 0:
                return
            if self._shared.get(self._key) is self:
                del self._shared[self._key]
        self.stop()

    def start(self) -> None:
        """Start it; returns once requests are answered.

        Raises:
            ConfigError: The port is taken or the host isn't an address of this machine.
            ServiceUnreachableError: The process ended before it served; the message has its last
                words.
        """
        self._check_fork()
        if self._runner is not None:
            raise ServiceUnreachableError("this timeline service was started already")
        if self._in_process:
            # Imported when needed: a driver with a child doesn't load a web server.
            module = import_module("strandline.service.process.thread_runner")
            runner: Runner = module.InProcess(self._birth)
        else:
            runner = ChildProcess(self._birth)
        self._runner = runner
        _running.add(runner)

    def stop(self) -> None:
        """Stop it; answers in flight have a moment. Harmless when it was stopped, or forked."""
        if self._runner is None or self._pid != os.getpid():
            return
        runner, self._runner = self._runner, None
        _running.discard(runner)
        runner.stop()

    @property
    def is_running(self) -> bool:
        """Whether it was started here and hasn't ended."""
        return self._runner is not None and self._pid == os.getpid() and self._runner.is_running

    @property
    def url(self) -> str:
        """``http://host:port``, or ``https://`` with a certificate among the settings."""
        return self._started().url

    @property
    def token(self) -> str | None:
        """The bearer token; ``None`` when it admits everybody."""
        return self._token or None

    @property
    def ca_file(self) -> str | None:
        """The authorities that its clients trust, if it speaks https; ``None``: the system's."""
        return self._ca_file

    def add_root(self, root: str) -> None:
        """Let it serve the tables at and below ``root``, from when this returns."""
        self._started().add_root(_absolute(root))

    def status(self) -> dict[str, Any]:
        """Return the service's own figures (``GET /v1/strandline/status``)."""
        answer = HttpSession(self.url, self.token, ca_file=self.ca_file).get(STATUS, {})
        status: dict[str, Any] = json.loads(answer)
        return status

    def _started(self) -> Runner:
        self._check_fork()
        if self._runner is None:
            raise ServiceUnreachableError("this timeline service isn't running")
        return self._runner

    def _check_fork(self) -> None:
        if self._pid != os.getpid():
            raise ServiceUnreachableError(
                f"this timeline service belongs to process {self._pid}, which was forked",
                hint="start one of your own",
            )


def _absolute(root: str) -> str:
    """Return a root that means the same whatever the working directory."""
    table_id = TableId.of(root)
    return table_id.path if table_id.family == "file" else root


_running: weakref.WeakSet[Runner] = weakref.WeakSet()
"""What this process runs; the only way for the hook below to find it."""


def _abandon_all() -> None:
    for runner in list(_running):
        runner.abandon()
    _running.clear()
    TimelineService._shared.clear()
    TimelineService._shared_lock = threading.RLock()


os.register_at_fork(after_in_child=_abandon_all)


def _own_directory() -> str:
    """Return where a user's services keep RocksDB's files if nothing says it."""
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return os.path.join(tempfile.gettempdir(), f"strandline-{user}")
