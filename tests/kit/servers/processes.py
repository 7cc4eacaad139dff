"""Processes: forked with all imported that they need; whether others live, and their end."""

from __future__ import annotations

import multiprocessing
import os
import select
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Final

from tests.kit.concurrency.patience import PATIENCE_S

FORKS: Final = multiprocessing.get_context("forkserver")
"""Forks processes from one without threads, which imports the packages once."""
FORKS.set_forkserver_preload(
    [
        "fsview.local_view",
        "fsview.store.rocksdb.engine",
        "fsview.store.sql.sqlite.database",
        "rocksdict",
        "strandline.write.client",
        "strandline.write.engine.local",
        "tests.kit.servers.stores",
    ]
)


class Forked:
    """A process that calls a function of a module, used as a ``subprocess.Popen`` with two pipes.

    For tests that need a process, but no new interpreter: to start one and import all takes a
    second of a core.

    Args:
        call: The function; it may use ``sys.stdin`` and ``sys.stdout``.
        arguments: Its arguments, which are pickled.
    """

    def __init__(self, call: Callable[..., object], *arguments: object) -> None:
        (their_orders, orders), (answers, their_answers) = os.pipe(), os.pipe()
        self.stdin = os.fdopen(orders, "w")
        self.stdout = os.fdopen(answers)
        with (
            Connection(their_orders, writable=False) as stdin,
            Connection(their_answers, readable=False) as stdout,
            Connection(os.dup(2)) as stderr,
        ):
            pipes = (stdin, stdout, stderr)
            self._process = FORKS.Process(target=_run, args=(pipes, call, arguments), daemon=True)
            self._process.start()
        assert self._process.pid is not None
        self.pid: Final = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code once the process has ended; of one that was killed minus a signal."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return the exit code, or ``None`` while the process lives."""
        return self._process.exitcode

    def send_signal(self, how: int) -> None:
        """Send a signal to the process unless it has ended."""
        if self._process.is_alive():
            os.kill(self.pid, how)

    def kill(self) -> None:
        """Kill the process unless it has ended."""
        self._process.kill()

    def wait(self, timeout: float = PATIENCE_S) -> int:
        """Wait for the end; return the exit code."""
        self._process.join(timeout)
        assert self._process.exitcode is not None, f"process {self.pid} lives on"
        return self._process.exitcode

    def communicate(self, timeout: float = PATIENCE_S) -> tuple[str, None]:
        """End what the process reads; return all that it still says, when it has ended."""
        with suppress(BrokenPipeError):
            self.stdin.close()
        said = "" if self.stdout.closed else self.stdout.read()
        self.stdout.close()
        self.wait(timeout)
        return said, None

    def __enter__(self) -> Forked:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.communicate()


def _run(
    pipes: tuple[Connection, ...], call: Callable[..., object], arguments: tuple[Any, ...]
) -> None:
    """Call a function in the process that was forked, with standard streams of its own."""
    for number, pipe in enumerate(pipes):
        os.dup2(pipe.fileno(), number)
        pipe.close()
    # The one of ``multiprocessing`` reads nothing.
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - closed by the end of the process
    call(*arguments)


def is_alive(pid: int) -> bool:
    """Return whether a process exists; one that has ended exists until it is reaped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for_end(pid: int) -> None:
    """Wait until a process that isn't ours has ended, without looking at the clock."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with os.fdopen(descriptor) as handle:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        assert poll.poll(PATIENCE_S * 1000), f"process {pid} lives on"
