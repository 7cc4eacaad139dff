"""``ServiceServer``: a socket, an event loop, and threads for what may block.

A request is answered from ready bytes where it is parsed
(``strandline.server.lookup.ready_answer``), or goes to the application
(``strandline.server.api.dispatcher``). What may wait for storage runs there on threads, shared so
that a table whose storage hangs blocks no other.

The socket is bound before the loop starts, here or by the driver of a child process. ``run`` blocks
until ``stop``. Then no connection is accepted any more, and requests in flight have ``grace_s``
seconds. Another port may serve metrics, by the same loop and threads.

asyncio's server doesn't show a TLS connection before its handshake is done, so clients that never
finish theirs could take every file descriptor of the process: ``TlsListener`` registers them when
they are accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import os
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from strandline.server.http.connection import ServiceProtocol
from strandline.server.http.connection_registry import ConnectionRegistry, HotAnswers
from strandline.server.http.limits import Limits
from strandline.server.http.request import Application, Fields
from strandline.server.http.server_options import BACKLOG, ServerOptions, bind
from strandline.server.http.tls import own_context, server_context
from strandline.server.table_threads import TableThreads
from timeline.errors import ConfigError

if TYPE_CHECKING:
    from strandline.server.process.composition_root import Parts

logger = logging.getLogger(__name__)

ACCEPT_AGAIN_S: Final = 1.0
"""Pause after the system had no file descriptor or no memory for a connection."""
_OF_ONE_CONNECTION: Final = frozenset(
    {
        errno.ECONNABORTED,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENOPROTOOPT,
        errno.EPERM,
        errno.EPROTO,
    }
)
"""Linux's errors for a connection that ended before it was accepted; others may be waiting."""


class NothingReady:
    """Hot answers of a server that has none."""

    def respond(self, _target: bytes, _fields: Fields) -> bytes | None:
        """Leave every request to the application."""
        return None


@dataclass(eq=False)
class ServiceServer:
    """One server; it runs once, in the thread that calls ``run`` or in one of its own.

    ``_lock`` guards ``_loop``, ``_ending``, ``_stopping`` and ``_draining``.

    Attributes:
        parts: The parts of the service.
        options: Of the server.

    Args:
        listener: A listening socket, which the server closes when it stops; ``None`` binds the
            address in the options.
    """

    parts: Parts
    options: ServerOptions
    listener: InitVar[socket.socket | None] = None
    _listener: socket.socket = field(init=False)
    _metrics_listener: socket.socket | None = field(init=False, default=None)
    # Re-entrant: a signal handler that calls ``stop`` may interrupt the main thread in ``run``.
    _lock: Any = field(init=False, default_factory=threading.RLock)
    _loop: asyncio.AbstractEventLoop | None = field(init=False, default=None)
    _ending: asyncio.Event | None = field(init=False, default=None)
    _tls: ssl.SSLContext | None = field(init=False)
    _tls_listeners: list[TlsListener] = field(init=False, default_factory=list)
    _stopping: bool = field(init=False, default=False)
    _draining: bool = field(init=False, default=False)
    _registries: list[ConnectionRegistry] = field(init=False, default_factory=list)
    _ready: threading.Event = field(init=False, default_factory=threading.Event)
    _finished: threading.Event = field(init=False, default_factory=threading.Event)

    def __post_init__(self, listener: socket.socket | None) -> None:
        options = self.options
        if options.tls_own is None:
            self._tls = server_context(options.tls_certificate, options.tls_key)
        else:
            self._tls = own_context(options.tls_own)
        self._listener = listener or bind(options.host, options.port)
        if options.metrics_port >= 0:
            try:
                self._metrics_listener = bind(options.host, options.metrics_port)
            except ConfigError:
                self._listener.close()
                raise

    @property
    def port(self) -> int:
        """The port that is bound."""
        return int(self._listener.getsockname()[1])

    @property
    def metrics_port(self) -> int | None:
        """The port for metrics that is bound; ``None``: there is none."""
        listener = self._metrics_listener
        return None if listener is None else int(listener.getsockname()[1])

    @property
    def url(self) -> str:
        """``http://host:port``, or ``https://``."""
        return self.options.url(self.port)

    def run(self, started: Callable[[], None] | None = None) -> None:
        """Serve until ``stop``; ``started`` is called once requests are answered."""
        loop = _new_loop()
        threads = TableThreads("requests", self.options.threads)
        try:
            loop.run_until_complete(self._serve(loop, threads, started))
        finally:
            with self._lock:
                # ``stop`` must not use a loop that is being closed.
                self._loop = None
            # A request that exceeded the grace period keeps its thread; nobody waits for it.
            threads.close()
            loop.run_until_complete(_cancel_all())
            self._listener.close()
            if self._metrics_listener is not None:
                self._metrics_listener.close()
            self.parts.close()
            loop.close()
            self._finished.set()

    async def _serve(
        self,
        loop: asyncio.AbstractEventLoop,
        threads: TableThreads,
        started: Callable[[], None] | None,
    ) -> None:
        parts = self.parts
        app, hangs_s = parts.application(threads), self.options.hangs_s
        registry = self._registry(app, threads, parts.hot, hangs_s)
        parts.connections, parts.threads = registry.status, threads.status
        parts.hanging = registry.hanging.status
        parts.spans.scheme = "http" if self._tls is None else "https"
        ends = [(await self._listen(registry, self._listener), registry)]
        if self._metrics_listener is not None:
            app = parts.metrics_application(threads)
            # Its requests never hang, and the threads are those of the other registry.
            own = self._registry(app, threads, NothingReady(), math.inf)
            ends.append((await self._listen(own, self._metrics_listener), own))
        ending = asyncio.Event()
        with self._lock:
            self._loop, self._ending = loop, ending
            # ``stop`` was called before there was a loop to notify.
            if self._stopping:
                ending.set()
        self.parts.start()
        self._ready.set()
        if started is not None:
            started()
        await ending.wait()
        parts.end_watches()
        # Before the registry ends its connections, so that clients open no new ones meanwhile.
        for listener, _ in ends:
            listener.close()
        await asyncio.gather(*(each.close(self.options.grace_s) for _, each in ends))
        self.parts.hang_up()

    def _registry(
        self, app: Application, threads: TableThreads, hot: HotAnswers, hangs_s: float
    ) -> ConnectionRegistry:
        registry = ConnectionRegistry(
            app,
            threads,
            hot,
            self.parts.admission,
            self.options.limits,
            self.options.keep_alive_s,
            self.parts.refusals,
            latencies=self.parts.latencies,
            table_files=self.parts.table_files,
            calls=self.parts.calls_under_way_of,
            hangs_s=hangs_s,
        )
        self._registries.append(registry)
        return registry

    async def _listen(
        self, registry: ConnectionRegistry, listener: socket.socket
    ) -> asyncio.Server | TlsListener:
        """Accept connections from now on."""
        if self._tls is None:
            return await registry.loop.create_server(
                lambda: ServiceProtocol(registry), sock=listener, backlog=BACKLOG
            )
        found = TlsListener(registry, listener, self._tls)
        self._tls_listeners.append(found)
        return found

    def use_certificate(self, certificate: str, key: str) -> None:
        """Begin further handshakes with another certificate; for any thread.

        Raises:
            ConfigError: It can't be used, and the former stays; or the server has no TLS.
        """
        if self._tls is None or not self._tls_listeners:
            raise ConfigError("a server that began without TLS takes no certificate")
        context = server_context(certificate, key)
        assert context is not None
        self._tls = context
        for listener in self._tls_listeners:
            listener.context = context

    def start_thread(self) -> threading.Thread:
        """Serve in a thread of its own; return once requests are answered."""
        thread = threading.Thread(target=self.run, name="strandline-service", daemon=True)
        thread.start()
        # A thread that fails never sets the event, so its liveness is checked.
        while not self._ready.wait(0.05):
            if not thread.is_alive():
                raise RuntimeError("the service's thread ended before it served; see its log")
        return thread

    def stop(self) -> None:
        """Begin to stop, and return at once; for any thread or a signal handler."""
        self.parts.readiness.stopping = True
        with self._lock:
            self._stopping = True
            loop, ending = self._loop, self._ending
        if loop is not None and ending is not None:
            # Only the loop may set its event. RuntimeError: the loop is closed already.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(ending.set)

    def drain(self, seconds: float) -> None:
        """Have probes fail from now on, and stop after ``seconds``; as ``stop``.

        A second call stops at once. So does a call before requests are answered.
        """
        with self._lock:
            loop, is_first = self._loop, not self._draining
            self._draining = True
        if loop is None or not is_first or not seconds:
            self.stop()
            return
        self.parts.readiness.stopping = True
        # RuntimeError: the loop is closed already.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(loop.call_later, seconds, self.stop)

    def use_limits(self, limits: Limits, keep_alive_s: float) -> None:
        """Apply other limits to what clients send from now on, and to connections as they are.

        For any thread, once requests are answered. A request that comes after it is under them.
        """
        for registry in self._registries:
            registry.use_limits(limits, keep_alive_s)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until ``run`` has returned; return whether it has."""
        return self._finished.wait(timeout_s)

    def close_after_fork(self) -> None:
        """Close a forked process's copy of the listening socket."""
        # ``close`` would wait for uvloop, which counts its own use of the socket.
        for listener in (self._listener, self._metrics_listener):
            if listener is not None and listener.fileno() >= 0:
                os.close(listener.detach())


def _new_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's loop if it is installed: it halves the cost of a request."""
    try:
        module: Any = import_module("uvloop")
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = module.new_event_loop()
    return loop


async def _cancel_all() -> None:
    """Cancel the tasks left on the loop, so that no thread waits for one."""
    await asyncio.sleep(0)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    # Transports that were closed in this iteration of the loop release their sockets in the next.
    await asyncio.sleep(0)


class TlsListener:
    """Accepts the connections of a socket and begins their handshakes; of one loop.

    Attributes:
        context: Of the next handshake; another one may take its place at any time.
    """

    def __init__(
        self, registry: ConnectionRegistry, listener: socket.socket, context: ssl.SSLContext
    ) -> None:
        self._registry = registry
        self._listener = listener
        self.context = context
        self._accepting = registry.loop.create_task(self._accept())

    def close(self) -> None:
        """Stop accepting."""
        self._accepting.cancel()
        self._listener.close()

    async def _accept(self) -> None:
        while True:
            try:
                accepted, _ = await self._registry.loop.sock_accept(self._listener)
            except OSError as exc:
                if exc.errno in _OF_ONE_CONNECTION:
                    self._registry.counts["no_handshake"] += 1
                    await asyncio.sleep(0)
                else:
                    logger.warning("a connection can't be accepted: %s", exc.strerror)
                    await asyncio.sleep(ACCEPT_AGAIN_S)
            else:
                self._take_in(accepted)

    def _take_in(self, accepted: socket.socket) -> None:
        """Begin a handshake; an error doesn't stop the listener."""
        try:
            Handshake(self._registry, accepted, self.context)
        except Exception:
            logger.exception("a connection can't be taken in")
            accepted.close()


class Handshake:
    """A registered connection during its handshake; afterwards its protocol takes its place."""

    __slots__ = ("_accepted", "_registry", "_since", "_task")

    def __init__(
        self, registry: ConnectionRegistry, accepted: socket.socket, context: ssl.SSLContext
    ) -> None:
        self._registry = registry
        self._accepted = accepted
        # Before ``add``, which aborts this connection at once if the server has stopped.
        self._task = registry.loop.create_task(self._shake_hands(context))
        self._task.add_done_callback(self._over)
        try:
            registry.add(self)
        except BaseException:
            self._task.cancel()
            raise
        self._since = registry.now

    async def _shake_hands(self, context: ssl.SSLContext) -> None:
        registry = self._registry
        join = partial(registry.replace, self)
        try:
            await registry.loop.connect_accepted_socket(
                lambda: ServiceProtocol(registry, join),
                self._accepted,
                ssl=context,
                ssl_handshake_timeout=registry.limits.handshake_s,
            )
        except OSError:  # the client's fault, or a timeout
            registry.counts["no_handshake"] += 1

    def _over(self, task: asyncio.Task[None]) -> None:
        """Unregister, unless the protocol has taken this place."""
        if task.cancelled():
            self._accepted.close()  # the transport may not own the socket yet
        self._registry.remove(self)

    @property
    def idle_since(self) -> float | None:
        """When it was accepted."""
        return self._since

    def check(self, now: float) -> None:
        """Do nothing: the handshake has a timeout of its own."""

    def shutdown(self) -> None:
        """End now: there is no request."""
        self._task.cancel()

    def abort(self) -> None:
        """End now."""
        self._task.cancel()
