"""The server: a socket, a loop, the protocol with its ready answers, and a small pool behind it.

A request is answered from ready bytes where it is parsed
(``strandline.service.lookup.ready_answer``), or goes to the application
(``strandline.service.api.router``). What may wait for storage runs there on threads, which tables
share so that one whose storage hangs keeps none from another.

The socket is bound before the loop starts, so a port in use is an error of ``bind`` and port 0
has its number at once. ``run`` blocks until ``stop``: from then on nobody new is admitted, and
answers in flight have ``grace_s`` seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from strandline.service.http.connection import protocol_for
from strandline.service.http.connection_registry import HotAnswers, Reception
from strandline.service.http.handshake import TlsListener
from strandline.service.http.server_options import ServerOptions
from strandline.service.http.tls import server_context
from strandline.service.table_threads import TableThreads
from timeline.errors import ConfigError

if TYPE_CHECKING:
    from strandline.service.process.parts import Parts

logger = logging.getLogger(__name__)

BACKLOG: Final = 1024


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens on ``host:port`` once a server takes it.

    Raises:
        ConfigError: The host isn't an address of this machine, or the port is taken.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as exc:
        raise ConfigError(f"host {host!r} is no address of this machine: {exc.strerror}") from exc
    except UnicodeError as exc:
        raise ConfigError(
            f"host {host!r} is no address of this machine: no name of a host"
        ) from exc
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as exc:
        listener.close()
        raise ConfigError(f"can't listen on {host} port {port}: {exc.strerror}") from exc
    listener.setblocking(False)
    return listener


@dataclass(eq=False)
class ServiceServer:
    """One server; runs once, in the thread that calls ``run`` or in one of its own.

    ``_lock`` guards ``_loop``, ``_ending`` and ``_stopping``.

    Attributes:
        parts: What it serves.
        options: How.
        hot: Takes the place of the parts' hot path.
    """

    parts: Parts
    options: ServerOptions
    hot: HotAnswers | None = None
    _listener: socket.socket = field(init=False)
    # Re-entrant: a signal handler calls ``stop`` in the midst of whatever the main thread does.
    _lock: Any = field(init=False, default_factory=threading.RLock)
    _loop: asyncio.AbstractEventLoop | None = field(init=False, default=None)
    _ending: asyncio.Event | None = field(init=False, default=None)
    _tls: ssl.SSLContext | None = field(init=False)
    _stopping: bool = field(init=False, default=False)
    _ready: threading.Event = field(init=False, default_factory=threading.Event)
    _finished: threading.Event = field(init=False, default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._tls = server_context(self.options.tls_certificate, self.options.tls_key)
        self._listener = bind(self.options.host, self.options.port)

    @property
    def port(self) -> int:
        """The port that is bound."""
        return int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        """``http://host:port``, or ``https://``."""
        return self.options.url(self.port)

    def run(self, started: Callable[[], None] | None = None) -> None:
        """Serve until ``stop``; ``started`` is called once requests are answered."""
        loop = _new_loop()
        threads = TableThreads("requests", self.options.threads)
        try:
            loop.run_until_complete(self._serve(loop, threads, started or _nothing))
        finally:
            with self._lock:
                self._loop = None
            # A request that outlived the grace still has its thread; it must not hold the end up.
            threads.close()
            loop.run_until_complete(_cancel_all())
            self._listener.close()
            self.parts.close()
            loop.close()
            self._finished.set()

    async def _serve(
        self, loop: asyncio.AbstractEventLoop, threads: TableThreads, started: Callable[[], None]
    ) -> None:
        reception = Reception(
            self.parts.application(threads),
            threads,
            self.hot or self.parts.hot,
            self.parts.admission,
            self.options.limits,
            self.options.keep_alive_s,
            self.parts.refusals,
        )
        self.parts.connections = reception.status
        self.parts.threads = threads.status
        listener = (
            await loop.create_server(protocol_for(reception), sock=self._listener, backlog=BACKLOG)
            if self._tls is None
            else TlsListener(reception, self._listener, self._tls)
        )
        ending = asyncio.Event()
        with self._lock:
            self._loop, self._ending = loop, ending
            if self._stopping:
                ending.set()
        self.parts.start()
        self._ready.set()
        started()
        await ending.wait()
        listener.close()
        await reception.close(self.options.grace_s)

    def start_thread(self) -> threading.Thread:
        """Serve in a thread of its own; return once requests are answered."""
        thread = threading.Thread(target=self.run, name="strandline-service", daemon=True)
        thread.start()
        while not self._ready.wait(0.05):
            if not thread.is_alive():
                raise RuntimeError("the service's thread ended before it served; see its log")
        return thread

    def stop(self) -> None:
        """Begin the end, from any thread or from a signal handler; returns at once."""
        self.parts.readiness.stopping = True
        with self._lock:
            self._stopping = True
            loop, ending = self._loop, self._ending
        if loop is not None and ending is not None:
            # The loop may be closing: then there is nothing left to stop.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(ending.set)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until ``run`` is over; return whether it is."""
        return self._finished.wait(timeout_s)

    def close_after_fork(self) -> None:
        """Let go of the listening socket in a forked child; the parent's goes on."""
        self._listener.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's loop where there is one: it halves the cost of a request."""
    try:
        module: Any = import_module("uvloop")
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = module.new_event_loop()
    return loop


async def _cancel_all() -> None:
    """Cancel what is left on the loop, so that no thread waits for an answer from it."""
    await asyncio.sleep(0)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    # A transport that was closed in this turn tells its protocol, and lets go, in the next.
    await asyncio.sleep(0)


def _nothing() -> None:
    """Be called."""
