"""``strandline serve`` as a process that can be killed and restarted on its port."""

from __future__ import annotations

import http.client
import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from click.testing import CliRunner, Result

from strandline.__main__ import main
from tests.kit.concurrency.patience import PATIENCE_S

REPOSITORY = Path(__file__).parents[3]


def environment() -> dict[str, str]:
    """Return this process's environment without Strandline's settings."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("STRANDLINE_")}
    return {**kept, "PYTHONPATH": str(REPOSITORY)}


def run_here(*arguments: str) -> Result:
    """Run the command in this process; for what is refused before anything is served."""
    with own_logging():
        ours = {name: None for name in os.environ if name.startswith("STRANDLINE_")}
        return CliRunner().invoke(main, ["serve", *arguments], env=ours, prog_name="strandline")


@contextmanager
def own_logging() -> Iterator[None]:
    """Restore what the command sets for its process: the root logger and the hooks."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    hooks = sys.excepthook, threading.excepthook, sys.unraisablehook
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        sys.excepthook, threading.excepthook, sys.unraisablehook = hooks
        logging.captureWarnings(False)


class ServeProcess:
    """Serves the tables below ``root`` without a token; a context manager.

    Args:
        root: The root; ``None``: none.
        inside: What runs the command that follows it where the server is to be.
        host: The address that it binds.

    Attributes:
        port: The port, kept over restarts.
        log: The file with the output of all its processes.
    """

    def __init__(
        self,
        root: Path | None,
        log: Path,
        *options: str,
        inside: tuple[str, ...] = (),
        host: str = "127.0.0.1",
    ) -> None:
        self.root, self.log, self.options = root, log, options
        self.inside, self.host = inside, host
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._logging: threading.Thread | None = None

    def __enter__(self) -> ServeProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            assert self._join() == 0

    def start(self, look: Callable[[bytes], object] = lambda _: None) -> None:
        """Start the process; return once it serves. Before, ``look`` gets each line of its log."""
        process = subprocess.Popen(
            [
                *(*self.inside, sys.executable, "-m", "strandline", "serve", "--no-token"),
                *(() if self.root is None else ("--root", str(self.root))),
                *("--host", self.host, "--port", str(self.port)),
                *self.options,
            ],
            stderr=subprocess.PIPE,
            env=environment(),
        )
        assert process.stderr is not None
        said = b""
        for line in process.stderr:
            said += line
            look(line)
            if found := re.search(rb"serving .* on http://[\d.]+:(\d+)", line):
                self.port = int(found[1])
                break
        else:
            raise AssertionError(f"it ended with {process.wait(PATIENCE_S)}: {said.decode()}")
        self._write(said)
        self._process = process
        self._logging = threading.Thread(target=self._log, args=(process.stderr,), daemon=True)
        self._logging.start()

    def _log(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                self._write(line)

    def _write(self, said: bytes) -> None:
        with self.log.open("ab") as log:
            log.write(said)

    def _join(self) -> int:
        """Wait for the end of the process and its output; return its exit code."""
        assert self._process is not None
        assert self._logging is not None
        code = self._process.wait(PATIENCE_S)
        self._logging.join()
        self._process = None
        return code

    def end(self) -> int:
        """Wait for the end of the process, which was sent a signal; return its exit code."""
        return self._join()

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._join()

    def status(self) -> dict[str, Any]:
        """Return the service's status document."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE_S)
        try:
            connection.request("GET", "/v1/strandline/status")
            told: dict[str, Any] = json.loads(connection.getresponse().read())
            return told
        finally:
            connection.close()
