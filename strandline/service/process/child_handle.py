"""The driver's side of an embedded service: starts the child process, talks to it, stops it.

The protocol over the pipes is defined in ``strandline.service.process.child_main``.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import weakref
from collections import deque
from pathlib import Path
from typing import IO, Any, Final

import strandline
from strandline.service.process.options import Birth
from timeline.errors import ConfigError, ServiceUnreachableError

logger = logging.getLogger(__name__)

START_S: Final = 60.0
"""How long a child may take to start on a busy machine."""
KILL_AFTER_S: Final = 2.0
_STDERR_LINES: Final = 40


class ChildProcess:
    """A running child process.

    ``_lock`` is held for one exchange over the pipes.

    Attributes:
        url: Where the service answers.
    """

    def __init__(self, birth: Birth) -> None:
        """Start the child; returns once it serves.

        Raises:
            ConfigError: The child refused its options.
            ServiceUnreachableError: The child ended; the message has its last log lines.
        """
        line = birth.to_line()
        self._lock = threading.Lock()
        self._last_lines: deque[str] = deque(maxlen=_STDERR_LINES)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "strandline", "serve", "--child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=_environment(),
        )
        # Also stops the child when its owner is garbage-collected without ``stop``.
        self._finalizer = weakref.finalize(self, _end, self._process, os.getpid())
        self._listener = threading.Thread(
            target=_listen, args=(self._process.stderr, self._last_lines), daemon=True
        )
        self._listener.start()
        self.url = birth.server.url(self._begin(line))

    @property
    def is_running(self) -> bool:
        """Whether the child is alive."""
        return self._process.poll() is None

    def add_root(self, root: str) -> None:
        """Have the child serve the tables at and below ``root``; returns once it does."""
        answer = self._exchange(json.dumps({"add_root": root}).encode() + b"\n")
        if "error" in answer:
            raise ConfigError(f"root {root!r}: {answer['error']}")

    def stop(self) -> None:
        """Stop the child by closing its stdin; kill it after ``KILL_AFTER_S``."""
        self._finalizer()
        self._listener.join()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def abandon(self) -> None:
        """Close this process's copies of the pipes, after a fork.

        The child sees the end of its stdin only when the last copy is closed.
        """
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        self._finalizer.detach()
        # Not a child of this process: ``Popen.__del__`` would warn that it still runs.
        self._process.returncode = 0

    def _begin(self, line: bytes) -> int:
        timer = threading.Timer(START_S, self._process.kill)
        timer.daemon = True
        timer.start()
        try:
            answer = self._exchange(line)
        except BaseException:
            self.stop()
            raise
        finally:
            timer.cancel()
        if "error" in answer:
            self.stop()
            raise ConfigError(str(answer["error"]))
        return int(answer["port"])

    def _exchange(self, line: bytes) -> dict[str, Any]:
        """Write a line and read the answer."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with self._lock:
            try:
                stdin.write(line)
                answer = stdout.readline()
            except (OSError, ValueError):
                answer = b""
        if answer:
            decoded: dict[str, Any] = json.loads(answer)
            return decoded
        self._process.wait()
        self._listener.join()
        lines = "\n".join(self._last_lines) or "it logged nothing"
        raise ServiceUnreachableError(
            f"the timeline service's process ended with {self._process.returncode}:\n{lines}"
        )


def _listen(stderr: IO[bytes], last_lines: deque[str]) -> None:
    """Log what the child logs, and keep the last lines."""
    for line in stderr:
        text = line.decode("utf-8", "replace").rstrip()
        last_lines.append(text)
        logger.warning("%s", text)


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    """Stop a child process gracefully, or kill it."""
    if os.getpid() != owner:
        return
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    try:
        process.wait(KILL_AFTER_S)
    except subprocess.TimeoutExpired:
        logger.warning(
            "the timeline service's process %d did not stop in time and is killed", process.pid
        )
        process.kill()
        process.wait()
    process.stdout.close()


def _environment() -> dict[str, str]:
    """Return the child's environment, with the import path of this process."""
    paths = [path or os.getcwd() for path in sys.path]
    home = str(Path(strandline.__file__).parent.parent)
    if home not in paths:
        paths.append(home)
    # Without PYTHONSAFEPATH, ``-m`` would search the working directory first.
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
