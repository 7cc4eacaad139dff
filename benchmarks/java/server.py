"""Hudi's Java timeline server, for comparison.

It needs PySpark 3.5, whose jars include Hadoop and Ivy (which fetches Hudi's bundle from Maven
Central), and a JDK to compile this folder's sources. ``MeasuredServer.java`` runs Hudi's own
classes, counts file-system calls, and keeps the process alive.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.servers.server import Server, ServerError
from demo.spark import java_home

HUDI: Final = "1.2.0"
MAX_HEAP: Final = "4g"
IN_MEMORY: Final = "MEMORY"
MEMORY_BYTES: Final = 100 << 20
"""The default memory budget of Hudi's spillable view."""

_BUNDLE: Final = ("org.apache.hudi", "hudi-spark3.5-bundle_2.12", HUDI)
_SOURCES: Final = Path(__file__).parent
_OPENED: Final = ("java.lang", "java.lang.invoke", "java.nio", "java.util", "sun.nio.ch")
"""Packages that Spark opens to its drivers; otherwise Jackson can't generate its faster code."""


@dataclass(frozen=True, slots=True)
class JavaHudi:
    """Java, class path and folder for starting Hudi's server."""

    java: Path
    class_path: str
    folder: Path

    @classmethod
    def ready(cls, folder: Path) -> JavaHudi:
        """Fetch Hudi's bundle, unless Ivy has it already, and compile the server.

        Args:
            folder: For the compiled classes and the servers' files. Downloads go to
                ``STRANDLINE_IVY_DIR``, by default Ivy's own folder in the home directory.

        Raises:
            ServerError: There is no PySpark 3.5 or no JDK, or the download or compiler failed.
        """
        jars, version = _pyspark()
        home = java_home(version)
        compiler = _compiler(home)
        bundle = _fetched(home / "bin" / "java", jars, folder)
        classes = f"{bundle}{os.pathsep}{jars}/*"
        sources = sorted(_SOURCES.glob("*.java"))
        _run([compiler, "-nowarn", "-cp", classes, "-d", folder, *sources], "compiler")
        return cls(home / "bin" / "java", f"{folder}{os.pathsep}{classes}", folder)

    def command(self, main: str, *arguments: str) -> list[str]:
        """Return the command that runs a class of ``java/``."""
        opened = (f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED)
        java = [str(self.java), f"-Xmx{MAX_HEAP}", *opened, "-cp", self.class_path]
        return [*java, main, *arguments]

    def version(self) -> str:
        """Return the Java's version, in a line."""
        lines = subprocess.run(
            [self.java, "-version"], capture_output=True, text=True, check=True
        ).stderr.splitlines()
        return lines[1] if len(lines) > 1 else lines[0]


class JavaServer(Server):
    """Hudi's server with one of its storage types."""

    def __init__(
        self,
        hudi: JavaHudi,
        *,
        incremental: bool = False,
        kind: str = IN_MEMORY,
        memory_bytes: int = MEMORY_BYTES,
        request_s: float = 0.0,
    ) -> None:
        """Start the server.

        Args:
            hudi: The installation.
            incremental: ``hoodie.filesystem.view.incr.timeline.sync.enable``; off by default, in
                Hudi too.
            kind: ``hoodie.filesystem.view.type``.
            memory_bytes: ``hoodie.filesystem.view.spillable.mem``.
            request_s: Added to each file-system call, in seconds.
        """
        self._folder = tempfile.TemporaryDirectory(dir=hudi.folder)
        arguments = (str(incremental).lower(), kind, self._folder.name, str(memory_bytes))
        command = hudi.command("MeasuredServer", *arguments, str(round(request_s * 1000)))
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        ready = next((line for line in process.stdout if line.startswith("ready ")), None)
        if ready is None:
            raise ServerError(f"the Java server ended with {process.wait()}")
        port, self._figures_port = map(int, ready.split()[1:])
        super().__init__(process, port)

    def __exit__(self, *exc: object) -> None:
        self.process.kill()  # with RocksDB it hangs on SIGTERM
        super().__exit__(*exc)
        self._folder.cleanup()

    def calls(self) -> Mapping[str, int]:
        """Return the calls of Hadoop's file system so far, by kind."""
        calls: dict[str, int] = self._figures()["calls"]
        return calls

    def heap_bytes(self) -> int:
        """Return the live heap after a collection, in bytes."""
        self._figures()  # objects behind cleared references need a second collection
        heap: int = self._figures()["heap_bytes"]
        return heap

    def _figures(self) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._figures_port, timeout=120)
        try:
            connection.request("GET", "/figures")
            figures: dict[str, Any] = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        return figures


def _pyspark() -> tuple[Path, str]:
    """Return the folder of PySpark's jars and its version."""
    try:
        import pyspark  # noqa: PLC0415 - only the Java side needs it
    except ImportError as exc:
        raise ServerError("Hudi's server needs PySpark 3.5, which isn't installed") from exc
    if not pyspark.__version__.startswith("3.5."):
        raise ServerError(f"Hudi's server needs PySpark 3.5, here is {pyspark.__version__}")
    return Path(pyspark.__file__).parent / "jars", pyspark.__version__


def _compiler(home: Path) -> Path:
    """Return ``javac`` beside a Java, or on the ``PATH``."""
    if os.access(home / "bin" / "javac", os.X_OK):
        return home / "bin" / "javac"
    found = shutil.which("javac")
    if found is None:
        raise ServerError(f"{home} is no JDK: it has no javac, nor has the PATH")
    return Path(found)


def _fetched(java: Path, jars: Path, folder: Path) -> str:
    """Return the path of Hudi's bundle, fetched by PySpark's Ivy."""
    ivy = next(jars.glob("ivy-*.jar"))
    paths = folder / "bundle.txt"
    command: list[str | Path] = [java, "-cp", ivy, "org.apache.ivy.Main", "-warn", "-notransitive"]
    if cache := os.environ.get("STRANDLINE_IVY_DIR"):
        command += ["-cache", f"{cache}/cache"]
    _run([*command, "-dependency", *_BUNDLE, "-confs", "default", "-cachepath", paths], "download")
    return paths.read_text("utf-8").strip()


def _run(command: list[str | Path], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServerError(f"the {what} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
