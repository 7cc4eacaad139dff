"""S3Proxy, an S3-compatible server with files for objects, in a JVM: for ``tox -e s3``.

It checks signatures. A create with ``If-None-Match`` is one step: a hard link. An overwrite with
``If-Match`` compares and then writes, where S3 does both in one step, so the relay in front of it
passes these on one at a time.

Ivy, which PySpark brings along, fetches it (``STRANDLINE_IVY_DIR`` says where downloads are kept).
Whatever is missing for that is an error, never a skip.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from demo.spark import java_home
from tests.kit.servers.s3_server import CREDENTIALS, S3Endpoint
from tests.s3.relay import relay_to

S3PROXY = ("org.gaul", "s3proxy", "4.1.0")
_LOGGING = Path(__file__).with_name("logback.xml")
_PORT = re.compile(r"Started .*ServerConnector.*\{127\.0\.0\.1:(\d+)\}")
_JAVA = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@contextmanager
def s3_server(*, watch: Callable[[], None] = lambda: None) -> Iterator[S3Endpoint]:
    """Run a server within the block.

    Args:
        watch: Called before each request is carried out, and again before it is answered.
    """
    with (
        tempfile.TemporaryDirectory(prefix="s3proxy-") as folder,
        _running(Path(folder)) as port,
        relay_to(port, watch) as relay,
    ):
        yield S3Endpoint(relay.endpoint)


@contextmanager
def _running(folder: Path) -> Iterator[int]:
    """Run S3Proxy within the block; yield its port."""
    objects = folder / "objects"
    objects.mkdir()
    settings = {
        "s3proxy.endpoint": "http://127.0.0.1:0",
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": CREDENTIALS["key"],
        "s3proxy.credential": CREDENTIALS["secret"],
        "jclouds.provider": "filesystem-nio2",
        "jclouds.filesystem.basedir": objects,
    }
    properties = folder / "s3proxy.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = [_java(), *_JAVA, f"-Dlogback.configurationFile={_LOGGING}", "-cp", class_path()]
    command += ["org.gaul.s3proxy.Main", "--properties", str(properties)]
    log = folder / "s3proxy.log"
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if started := _PORT.search(line):
                    yield int(started[1])
                    break
            else:
                raise RuntimeError(f"S3Proxy ended with {process.wait()}: {log.read_text()}")
        finally:
            process.kill()
            process.communicate()


def class_path() -> str:
    """Return the class path of S3Proxy, whose jars Ivy fetches unless it has done so before.

    ``python -m tests.s3.s3proxy`` does only this, so that no two processes fetch at once.

    Raises:
        RuntimeError: The download failed.
    """
    cache = Path(os.environ.get("STRANDLINE_IVY_DIR") or Path.home() / ".ivy2")
    paths = cache / "{}-{}-{}.paths".format(*S3PROXY)
    # Even if it has all jars, Ivy takes half a minute to find them.
    if not paths.exists() or not all(map(os.path.exists, _jars(paths))):
        ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
        command = [_java(), "-cp", str(ivy), "org.apache.ivy.Main", "-warn"]
        command += ["-cache", str(cache / "cache"), "-confs", "default"]
        command += ["-cachepath", str(paths), "-dependency", *S3PROXY]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not paths.exists():
            raise RuntimeError(f"Ivy didn't fetch S3Proxy: {done.stdout[-2000:]}{done.stderr}")
    return os.pathsep.join(_jars(paths))


def _jars(paths: Path) -> list[str]:
    return paths.read_text("utf-8").strip().split(os.pathsep)


def _java() -> str:
    return str(java_home(pyspark.__version__) / "bin" / "java")


if __name__ == "__main__":
    class_path()
