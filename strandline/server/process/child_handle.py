"""The driver's side of one child process: spawns it, talks to it, watches it, ends it.

The protocol is defined in ``strandline.server.process.child_main``.
"""

from __future__ import annotations

import json
import logging
import os
import select
import socket
import subprocess
import sys
import threading
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Final

import strandline
from strandline.server.process.options import Birth, Descriptors
from timeline.errors import ConfigError, ServiceTimeoutError, ServiceUnreachableError

logger = logging.getLogger(__name__)

START_S: Final = 60.0
"""How long a child may take to start on a busy machine."""
COMMAND_S: Final = 60.0
"""How long a command may take; adding a root resolves it, which may wait for storage."""
KILL_AFTER_S: Final = 2.0
PING_EVERY_S: Final = 1.0
_WAITS: Final = 10
"""Number of equal waits in which the answer to a ping is awaited."""
STDERR_S: Final = 1.0
"""Longest wait for the end of the child's stderr after the child has ended."""
_STDERR_LINES: Final = 40
_ANSWER_BYTES: Final = 64


class ChildProcess:
    """A child process, from spawning to reaping.

    ``_exchanging`` is held for one exchange over the pipes, and while stdout is closed;
    ``_writing`` while stdin is written or closed; in this order.

    Attributes:
        pid: Of the process.
    """

    def __init__(self, listener: socket.socket) -> None:
        """Spawn the process, which waits for its options.

        Args:
            listener: The listening socket. The child inherits it, its end of the socket for pings,
                and its pipes; nothing else.
        """
        self._exchanging, self._writing = threading.Lock(), threading.Lock()
        self._last_lines: deque[str] = deque(maxlen=_STDERR_LINES)
        self._pings, ping_end = socket.socketpair()
        self._descriptors = Descriptors(listener.fileno(), ping_end.fileno())
        # The child has its own copy; while this one is open, the child's end isn't noticed.
        with ping_end:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "strandline", "serve", "--child"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    bufsize=0,
                    pass_fds=(listener.fileno(), ping_end.fileno()),
                    env=_environment(),
                )
            except BaseException:
                # The constructor fails, so ``end`` is never called.
                self._pings.close()
                raise
        self.pid = self._process.pid
        self._stderr_reader = threading.Thread(
            target=_read_log, args=(self._process.stderr, self._last_lines), daemon=True
        )

    def serve(self, birth: Birth) -> None:
        """Send the options; returns once the child serves. After an error the child has ended.

        Raises:
            ConfigError: The child refused its options.
            ServiceUnreachableError: The child ended or was killed; the message has its last log
                lines.
        """
        try:
            # While the interpreter exits, no thread can be started.
            self._stderr_reader.start()
            line = replace(birth, descriptors=self._descriptors).to_line()
            answer = self._exchange(line, START_S)
        except ServiceTimeoutError:
            answer = None
        except BaseException:
            # After an error the caller has no child to reap.
            self.end()
            raise
        if answer is None:
            # This joins the reader of the log, so the last lines are complete.
            ended = self.end()
            lines = "\n".join(self._last_lines) or "it logged nothing"
            raise ServiceUnreachableError(f"the timeline service's process {ended}:\n{lines}")
        if "error" in answer:
            self.end()
            raise ConfigError(str(answer["error"]))

    def add_root(self, root: str) -> bool:
        """Have the child serve the tables at and below ``root``.

        Returns:
            Whether it serves them now; ``False`` if it has ended.

        Raises:
            ConfigError: The child refused the root.
            ServiceTimeoutError: It took longer than ``COMMAND_S``, and the child was killed.
        """
        return self._command("add_root", root)

    def remove_root(self, root: str) -> bool:
        """Have the child refuse the tables at and below ``root``; as ``add_root`` otherwise."""
        return self._command("remove_root", root)

    def _command(self, name: str, root: str) -> bool:
        """Have the child execute a command; return whether it has, ``False`` if it has ended."""
        try:
            answer = self._exchange(json.dumps({name: root}).encode() + b"\n", COMMAND_S)
        except ServiceTimeoutError as exc:
            raise ServiceTimeoutError(f"root {root!r}: {exc}") from exc
        if answer is not None and "error" in answer:
            raise ConfigError(f"root {root!r}: {answer['error']}")
        return answer is not None

    def watch(self, wake: socket.socket, ping_timeout_s: float) -> str | None:
        """Ping the child until it ends, hangs, or ``wake`` is readable.

        The child's event loop answers. A child that doesn't answer is killed.

        Returns:
            What happened to the child; ``None``: ``wake`` is readable.
        """
        poll = select.poll()
        poll.register(wake, select.POLLIN)
        poll.register(self._pings, select.POLLIN)
        wait_ms = max(1, round(ping_timeout_s * 1000 / _WAITS))
        while True:
            # Between two pings only the end of the child makes its socket readable.
            ready = poll.poll(PING_EVERY_S * 1000)
            if not ready:
                if not self._ping():
                    return self.end()
                # Waits are counted, and not the clock read: while the driver is stopped (SIGSTOP,
                # a suspended machine) at most one wait passes, and the child may be stopped, too.
                for _ in range(_WAITS):
                    if ready := poll.poll(wait_ms):
                        break
                else:
                    self.kill()
                    self.end()
                    return f"did not answer for {ping_timeout_s:g} s and was killed"
            # Checked first: a service that stops replaces no child, even if it has ended as well.
            if wake.fileno() in dict(ready):
                return None
            if not self._pong():
                return self.end()

    def kill(self) -> None:
        """Kill the child; for any thread, and without effect on a child that has ended."""
        self._process.kill()

    def end(self, grace_s: float = 0) -> str:
        """End the child and reap it; called once.

        Args:
            grace_s: How long the child may take to end by itself, from the end of its stdin.

        Returns:
            How it ended.
        """
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        # Without ``_exchanging``, which an exchange holds until the child answers or has ended.
        with self._writing:
            process.stdin.close()
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            if grace_s > 0:
                logger.warning(
                    "the timeline service's process %d did not stop in time and is killed", self.pid
                )
            process.kill()
            process.wait()
        # A thread that couldn't be started can't be joined.
        if self._stderr_reader.ident is not None:
            # A process that the child started, and that outlives it, keeps its stderr open.
            self._stderr_reader.join(STDERR_S)
        else:
            process.stderr.close()
        # The process has ended, so an exchange in another thread reads the end of its stdout.
        with self._exchanging:
            process.stdout.close()
        self._pings.close()
        return f"ended with {process.returncode}"

    def abandon(self) -> None:
        """Close this process's copies of the descriptors, after a fork."""
        process = self._process
        for owned in (process.stdin, process.stdout, process.stderr, self._pings):
            if owned is not None:
                owned.close()
        # Not a child of this process: ``Popen.__del__`` would warn that it still runs.
        process.returncode = 0

    def _ping(self) -> bool:
        """Send a ping; return whether the child is alive."""
        try:
            self._pings.send(b".")
        except OSError:
            return False
        return True

    def _pong(self) -> bool:
        """Read an answer; return whether the child is alive."""
        try:
            return bool(self._pings.recv(_ANSWER_BYTES))
        except OSError:
            return False

    def _exchange(self, line: bytes, timeout_s: float) -> dict[str, Any] | None:
        """Write a line and return the answer; ``None`` if the child has ended.

        A child whose answer isn't read, because of the timeout or an interrupt, is killed: the next
        command would take that answer for its own, or wait behind one that hangs. Pings don't
        detect that, as the event loop answers them.

        Raises:
            ServiceTimeoutError: There was no answer in time.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        # Answers have no number: the next line belongs to the line written last.
        with self._exchanging:
            try:
                # Released before the answer is awaited, so that ``end`` can close stdin meanwhile.
                with self._writing:
                    stdin.write(line)
                answer = _read_answer(stdout, timeout_s)
            # ValueError: ``end`` has closed the pipe in another thread.
            except (OSError, ValueError):
                return None
            except BaseException:
                self.kill()
                raise
        if not answer:
            return None
        decoded: dict[str, Any] = json.loads(answer)
        return decoded


def _read_answer(stdout: IO[bytes], timeout_s: float) -> bytes:
    """Return the next line of a pipe, which must begin in time; empty at its end."""
    poll = select.poll()
    poll.register(stdout, select.POLLIN)
    if not poll.poll(timeout_s * 1000):
        raise ServiceTimeoutError(
            f"the timeline service's process did not answer within {timeout_s:g} s and is killed"
        )
    # The child writes an answer at once.
    return stdout.readline()


def _read_log(stderr: IO[bytes], last_lines: deque[str]) -> None:
    """Log what the child logs, and keep the last lines."""
    with stderr:
        for line in stderr:
            text = line.decode("utf-8", "replace").rstrip()
            last_lines.append(text)
            logger.warning("%s", text)


def _environment() -> dict[str, str]:
    """Return the child's environment, with the import path of this process."""
    paths = [path or os.getcwd() for path in sys.path]
    home = str(Path(strandline.__file__).parent.parent)
    if home not in paths:
        paths.append(home)
    # Without PYTHONSAFEPATH, ``-m`` would search the working directory first.
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
