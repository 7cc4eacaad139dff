"""The driver's side of an embedded service: it starts the child, talks to it, and ends it.

What is said over the pipes is written in ``strandline.service.process.child_main``.
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
"""How long a child may take to start, on a machine however busy."""
KILL_AFTER_S: Final = 2.0
_STDERR_LINES: Final = 40


class ChildProcess:
    """The child, started; a ``Runner`` of ``strandline.service.process.timeline_service``.

    ``_lock`` is held for one exchange over the pipes.
    """

    def __init__(self, birth: Birth) -> None:
        line = birth.to_line()
        self._lock = threading.Lock()
        self._last_words: deque[str] = deque(maxlen=_STDERR_LINES)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "strandline", "serve", "--child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=_environment(),
        )
        # Ends the child too when its owner is forgotten without being stopped.
        self._finalizer = weakref.finalize(self, _end, self._process, os.getpid())
        self._listener = threading.Thread(
            target=_listen, args=(self._process.stderr, self._last_words), daemon=True
        )
        self._listener.start()
        self.url = birth.server.url(self._begin(line))

    @property
    def is_running(self) -> bool:
        """Whether the child lives."""
        return self._process.poll() is None

    def add_root(self, root: str) -> None:
        """Tell the child, and wait until it has heard."""
        answer = self._exchange(json.dumps({"add_root": root}).encode() + b"\n")
        if "error" in answer:
            raise ConfigError(f"root {root!r}: {answer['error']}")

    def stop(self) -> None:
        """End the child: the end of its stdin asks it to."""
        self._finalizer()
        self._listener.join()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def abandon(self) -> None:
        """Close the copies of the pipes: the child must see its stdin end with its owner."""
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        self._finalizer.detach()
        # Nobody's child here: without this its garbage collection would warn about a zombie.
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
        """Write a line and read the answer.

        Raises:
            ServiceUnreachableError: The child ended; the message has its last words.
        """
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
            said: dict[str, Any] = json.loads(answer)
            return said
        self._process.wait()
        self._listener.join()
        words = "\n".join(self._last_words) or "it said nothing"
        raise ServiceUnreachableError(
            f"the timeline service's process ended with {self._process.returncode}:\n{words}"
        )


def _listen(stderr: IO[bytes], last_words: deque[str]) -> None:
    """Pass on what the child logs, and remember the end of it."""
    for line in stderr:
        text = line.decode("utf-8", "replace").rstrip()
        last_words.append(text)
        logger.warning("%s", text)


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    """End a child of this process: kindly, then not."""
    if os.getpid() != owner:
        return
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    try:
        process.wait(KILL_AFTER_S)
    except subprocess.TimeoutExpired:
        logger.warning("the timeline service's process %d had to be killed", process.pid)
        process.kill()
        process.wait()
    process.stdout.close()


def _environment() -> dict[str, str]:
    """Return the child's environment: it imports what its driver imports."""
    paths = [path or os.getcwd() for path in sys.path]
    home = str(Path(strandline.__file__).parent.parent)
    if home not in paths:
        paths.append(home)
    # Without the second, ``-m`` would look into the working directory before all of these.
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
