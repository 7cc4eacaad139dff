"""The child's side of an embedded service, which serves until its driver ends.

The protocol over stdin and stdout is one JSON object a line:

1. The driver writes a ``Birth``: all options and the token, which therefore appears neither in the
list of processes nor in an environment. It names the descriptors that the child inherited: the
listening socket and a socket for pings.
2. The child answers ``{"ok": true}`` once it serves, or ``{"error": "..."}`` and exits.
3. The driver may write ``{"add_root": PATH}`` and ``{"remove_root": PATH}``; the answer is
   ``{"ok": true}`` or an error.
4. At the end of stdin the child stops gracefully. The kernel closes the driver's end however the
   driver dies, so the child never outlives it.

Pings have a socket of their own, because ``add_root`` resolves a path and so may wait for storage.
The event loop echoes them, so that a hanging loop is detected.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import threading
from collections.abc import Mapping
from typing import IO, Any, Final

from strandline.server.http.limits import allow_open_files, collect_garbage_seldom, free_files
from strandline.server.http.server import ServiceServer
from strandline.server.log_format import CHILD, STDERR, LogWriter, log_to
from strandline.server.process.composition_root import Parts
from strandline.server.process.options import Birth
from strandline.server.process.span_export import CHILD_FLUSH_S, begin_export
from timeline.errors import ConfigError, StrandlineError
from timeline.malloc_trim import share_heap

logger = logging.getLogger(__name__)

GRACE_MORE_S: Final = 0.4
"""How long after the server's own grace period a child that still runs exits."""
_PING_BYTES: Final = 64


def run_child(stdin: IO[bytes], stdout: IO[bytes], environ: Mapping[str, str]) -> None:
    """Serve until the driver closes stdin; doesn't return.

    Args:
        stdin: What the driver writes.
        stdout: What the driver reads; nothing else may write to it.
        environ: The driver's environment, in which only ``begin_export`` looks.
    """
    # SIGINT and SIGHUP of the terminal reach driver and child alike; the driver decides what to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    share_heap()
    birth = Birth.of_line(stdin.readline())
    collect_garbage_seldom()
    log = log_to(STDERR, "WARNING", pattern=CHILD)
    export = None
    try:
        export = begin_export(environ)
    except ConfigError as error:
        # A write must not fail, nor list storage, because its trace is lost.
        logger.warning("no spans are exported: %s", error)
    assert birth.descriptors is not None
    listener, pings = map(_inherited, (birth.descriptors.listener, birth.descriptors.pings))
    try:
        parts = Parts(birth.parts)
        parts.log = log.status
        allow_open_files(birth.server.limits.connections, parts.table_files)
        free = free_files()
        if free is not None:
            parts.limit_table_files(free)
        server = ServiceServer(parts, birth.server, listener)
    except StrandlineError as exc:
        _answer(stdout, {"error": str(exc)})
        os._exit(1)
    control = threading.Thread(
        target=_follow, args=(stdin, stdout, server, log), name="driver", daemon=True
    )

    def started() -> None:
        asyncio.get_running_loop().add_reader(pings, _echo, pings)
        _answer(stdout, {"ok": True})
        # After the answer, as that thread also writes to stdout.
        control.start()

    signal.signal(signal.SIGTERM, lambda *_: server.stop())
    server.run(started)
    if export is not None:
        export.close(CHILD_FLUSH_S)
    _end(0, log)


def _inherited(descriptor: int) -> socket.socket:
    """Return an inherited socket, which no program that the child executes inherits in turn."""
    inherited = socket.socket(fileno=descriptor)
    inherited.set_inheritable(False)
    inherited.setblocking(False)
    return inherited


def _echo(pings: socket.socket) -> None:
    """Return the bytes of a ping; don't listen for more once the driver has closed its end."""
    try:
        received = pings.recv(_PING_BYTES)
        if received:
            pings.send(received)
            return
    except OSError:
        logger.debug("the driver has exited")
    # A socket whose other end is closed stays readable: the loop would spin.
    asyncio.get_running_loop().remove_reader(pings)


def _follow(stdin: IO[bytes], stdout: IO[bytes], server: ServiceServer, log: LogWriter) -> None:
    """Execute the driver's commands; stop the server when it closes stdin."""
    parts = server.parts
    commands = {"add_root": parts.add_root, "remove_root": parts.remove_root}
    while line := stdin.readline():
        try:
            ((name, root),) = json.loads(line).items()
            commands[name](str(root))
        except Exception as exc:  # noqa: BLE001 - the driver raises it
            _answer(stdout, {"error": str(exc)})
        else:
            _answer(stdout, {"ok": True})
    # The driver has closed stdin or died; commands can't come any more.
    server.stop()
    # The main thread may wait for storage that hangs, so this thread ends the process.
    if not server.wait(server.options.grace_s + GRACE_MORE_S):
        logger.warning("the service did not stop in time; exiting")
        _end(1, log)


def _answer(stdout: IO[bytes], answer: Mapping[str, Any]) -> None:
    try:
        stdout.write(json.dumps(answer).encode() + b"\n")
        stdout.flush()
    except BrokenPipeError:
        logger.debug("the driver has exited")


def _end(code: int, log: LogWriter) -> None:
    """Exit without joining threads: one that hangs in storage must not keep the process alive."""
    log.flush()
    os._exit(code)


def own_stdout() -> IO[bytes]:
    """Return the real stdout, and redirect everything else that is printed to stderr."""
    # The driver would take a library's output for an answer.
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return channel
