"""``TimelineService``: the service that a driver owns, as a child process or in a thread.

The child is spawned, never forked, and runs ``strandline serve`` with the driver's import path. It
is the default because a server in the driver's process shares its interpreter lock: beside a busy
main thread it answers in tens of milliseconds. ``in_process=True`` is for tests and notebooks.

A child that dies or hangs is replaced on the same port (``strandline.server.process.supervisor``).

The write clients of a driver share one (``strandline.server.process.shared_service``).

After a fork (``multiprocessing``, a daemon) the forked process's copy refuses to be used, and its
descriptors are closed (``strandline.server.process.at_fork``).

Source: Hudi 1.2.0 ``EmbeddedTimelineService``.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from executor_proxy.http import HttpSession
from strandline.server.http.authorization import new_token
from strandline.server.http.server_options import ServerOptions
from strandline.server.http.tls import own_certificate
from strandline.server.process import at_fork
from strandline.server.process.options import Birth, PartsOptions
from strandline.server.process.supervisor import Supervisor
from strandline.settings import service as config
from strandline.settings.setting import Settings
from strandline.settings.view_store import own_directory, store_options
from timeline.clock import Clock, SystemClock
from timeline.errors import ConfigError, ServiceUnreachableError
from timeline.storage.open import path_text
from timeline.storage.table_id import absolute, canonical_base_path

STATUS: str = "/v1/strandline/status"


class InProcess:
    """A running service thread, with the interface of ``Supervisor``; for tests and notebooks.

    Attributes:
        port: The port that is bound.
        url: Where the service answers this process.
    """

    def __init__(self, birth: Birth) -> None:
        """Start the thread; returns once it serves."""
        # Only here, so that a driver with a child doesn't load a web server.
        from strandline.server.http.server import ServiceServer  # noqa: PLC0415
        from strandline.server.process.composition_root import Parts  # noqa: PLC0415

        self._server = ServiceServer(Parts(birth.parts), birth.server)
        at_fork.add(self)
        self._thread = self._server.start_thread()
        self.port = self._server.port
        self.url = birth.server.local_url(self.port)

    @property
    def is_running(self) -> bool:
        """Whether the thread is alive."""
        return self._thread.is_alive()

    @property
    def roots(self) -> tuple[str, ...]:
        """The roots that are served."""
        return self._server.parts.views.roots()

    def add_root(self, root: str) -> None:
        """Serve the tables at and below ``root``, too."""
        self._server.parts.add_root(root)

    def remove_root(self, root: str) -> None:
        """Refuse the tables at and below ``root``; see ``Parts.remove_root``."""
        self._server.parts.remove_root(root)

    def stop(self) -> None:
        """Stop the service and join its thread."""
        at_fork.remove(self)
        self._server.stop()
        self._thread.join()

    def abandon(self) -> None:
        """Close this process's copy of the listening socket, after a fork.

        The port is free only when the last copy is closed.
        """
        self._server.close_after_fork()


class TimelineService:
    """A timeline service that this process owns.

    Attributes:
        token: The bearer token; ``None`` if everybody is admitted.
        ca_file: File of the authorities that clients should trust, or the fingerprint of the one
            certificate (``executor_proxy.exchange``); ``None``: the system's authorities.

    Args:
        roots: Tables, or directories of tables, that may be served; paths or URLs.
        host: Address to bind.
        port: 0 takes a free one.
        advertised: Host name or address at which executors reach it; ``None``: ``host``.
        storage: Where views are kept: ``"memory"``, ``"spillable"``, ``"rocksdb"`` or ``"sql"``,
            whose database ``settings`` name; ``None`` uses ``settings``.
        token: Bearer token; ``None`` makes a random one, ``""`` admits everybody (Java clients).
        store_dir: Directory for the files of ``storage``; ``None`` uses ``settings``.
        storage_options: For fsspec, if a root isn't local.
        in_process: Whether to serve from a thread of this process instead of a child.
        settings: Values of ``strandline.settings.service.SERVICE_SETTINGS``; ``None``: defaults.
        clock: Measures how often a child is replaced within a time.
    """

    def __init__(
        self,
        roots: Collection[str | os.PathLike[str]],
        host: str = "127.0.0.1",
        port: int = 0,
        storage: str | None = None,
        *,
        advertised: str | None = None,
        store_dir: str | os.PathLike[str] | None = None,
        token: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        in_process: bool = False,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        if isinstance(roots, str | os.PathLike) or not roots:
            raise ConfigError(f"roots is {roots!r}; it must be one or more base paths or parents")
        settings = settings or Settings({}, {})
        self.token = (new_token() if token is None else token) or None
        parts = PartsOptions.of(
            settings,
            tuple(map(spelled, roots)),
            self.token,
            storage_options=storage_options,
            store=store_options(
                settings,
                storage=storage,
                directory=None if store_dir is None else os.fspath(store_dir),
                rocksdb_default=own_directory(),
            ),
            shown=settings.shown(config.SERVICE_SETTINGS),
        )
        self._birth = Birth(parts, ServerOptions.of(settings, host, port))
        self._clock = clock or SystemClock()
        has_file = self._birth.server.tls_certificate is not None
        self.ca_file = (settings.get(config.TLS_CA) or None) if has_file else None
        if settings.get(config.TLS) == "auto":
            self._make_certificate(settings)
        self._advertised = advertised
        self._in_process = in_process
        self._ping_timeout_s = settings.get(config.EMBED_PING_TIMEOUT)
        self._runner: Supervisor | InProcess | None = None
        self._finalizer: weakref.finalize[..., TimelineService] | None = None
        self._pid = os.getpid()

    def _make_certificate(self, settings: Settings) -> None:
        for given in (config.TLS_CERTIFICATE, config.TLS_KEY, config.TLS_CA):
            if settings.get(given):
                raise ConfigError(
                    f"{config.TLS.name} is auto, and {given.name} is given; allowed: one of both"
                )
        made = own_certificate(self._clock)
        server = replace(self._birth.server, tls_own=made.pem)
        self._birth, self.ca_file = replace(self._birth, server=server), made.trust

    def __repr__(self) -> str:
        runner = self._runner
        where = "stopped" if runner is None else runner.url
        roots = self._birth.parts.roots if runner is None else runner.roots
        return f"{type(self).__name__}({where}, roots={list(roots)})"

    def __enter__(self) -> TimelineService:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

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
            self._runner = InProcess(self._birth)
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

    def _begin_stop(self) -> None:
        """Have a child process end, without waiting; ``stop`` is to be called later."""
        runner = self._runner
        if isinstance(runner, Supervisor):
            runner.begin_stop()

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

        With a certificate from files it is ``url``, whose host the certificate names.
        """
        runner = self._started()
        return runner.url if self._birth.server.tls_certificate is None else self.url

    def add_root(self, root: str | os.PathLike[str]) -> None:
        """Serve the tables at and below ``root``, too; returns once they are served.

        Raises:
            ConfigError: The root is refused.
            ServiceTimeoutError: Its storage hangs. The process is replaced, without the root.
            ServiceUnreachableError: The service has ended.
        """
        self._started().add_root(spelled(root))

    def remove_root(self, root: str | os.PathLike[str]) -> None:
        """Refuse the tables at and below ``root``, unless another root has them; drop their views.

        Returns once they are refused. Requests under way are refused, too, or answered. No effect
        if it isn't a root.
        """
        self._started().remove_root(spelled(root))

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


def spelled(root: str | os.PathLike[str]) -> str:
    """Return the one spelling of a root by which it is added and removed; reads nothing.

    Raises:
        ConfigError: It is empty, or neither text nor a ``pathlib.Path``.
    """
    return canonical_base_path(absolute(path_text(root)))
