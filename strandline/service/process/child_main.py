"""The child's side of an embedded service: settings in, the port out, an end with the driver.

One JSON object a line, both ways:

1. the driver writes a ``Birth``: what to serve, how, and the token (which so appears in no list of
   processes and no environment);
2. the child answers ``{"port": N}`` once it serves, or ``{"error": "..."}`` and exits;
3. the driver may write ``{"add_root": PATH}``; each is answered ``{"ok": true}`` or an error;
4. at the end of stdin the child stops gracefully. The kernel closes the driver's end however the
   driver dies, so nothing outlives it.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping
from typing import IO, Any, Final

from fsview.store.spill.malloc_trim import share_heap
from strandline.service.http.limits import allow_open_files, collect_garbage_seldom
from strandline.service.http.server import ServiceServer
from strandline.service.log_format import CHILD, log_to
from strandline.service.process.options import Birth
from strandline.service.process.parts import Parts
from timeline.errors import StrandlineError

logger = logging.getLogger(__name__)

GRACE_MORE_S: Final = 0.4
"""Beyond the server's own grace, before a child that doesn't end is ended."""


def run_child(stdin: IO[bytes], stdout: IO[bytes]) -> None:
    """Serve as a driver's child until stdin ends; doesn't return.

    Args:
        stdin: Where the driver writes.
        stdout: Where it reads; nothing else may write there.
    """
    share_heap()
    birth = Birth.of_line(stdin.readline())
    collect_garbage_seldom()
    allow_open_files(birth.server.limits.connections)
    log_to(sys.stderr, birth.log_level, pattern=CHILD)
    try:
        server = ServiceServer(Parts(birth.parts), birth.server)
    except StrandlineError as exc:
        _say(stdout, {"error": str(exc)})
        os._exit(1)
    control = threading.Thread(
        target=_follow, args=(stdin, stdout, server), name="driver", daemon=True
    )

    def started() -> None:
        _say(stdout, {"port": server.port})
        control.start()

    # An interrupt from the terminal goes to driver and child alike; the driver decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: server.stop())
    server.run(started)
    _end(0)


def _follow(stdin: IO[bytes], stdout: IO[bytes], server: ServiceServer) -> None:
    """Do what the driver says; end with it."""
    while line := stdin.readline():
        try:
            server.parts.views.add_root(str(json.loads(line)["add_root"]))
        except Exception as exc:  # noqa: BLE001 - said to the driver, which raises it
            _say(stdout, {"error": str(exc)})
        else:
            _say(stdout, {"ok": True})
    server.stop()
    if not server.wait(server.options.grace_s + GRACE_MORE_S):
        logger.warning("the service did not end in time and is ended")
        _end(1)


def _say(stdout: IO[bytes], answer: Mapping[str, Any]) -> None:
    try:
        stdout.write(json.dumps(answer).encode() + b"\n")
        stdout.flush()
    except BrokenPipeError:
        logger.debug("the driver is gone")


def _end(code: int) -> None:
    """Leave without waiting for threads: a request stuck in storage must not keep the child."""
    sys.stderr.flush()
    os._exit(code)


def own_stdout() -> IO[bytes]:
    """Return the real stdout, and let whatever prints print to stderr from now on."""
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return channel
