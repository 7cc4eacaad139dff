"""A JVM with the jars that PySpark brings along, ZooKeeper's among them.

Whatever is missing for it is an error, never a skip.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from demo.spark import java_home

_OPTIONS: Final = ("-Xmx96m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def java_command() -> list[str]:
    """Return a command that runs the class that follows it."""
    return [_java(), *_OPTIONS, "-cp", str(_jars() / "*")]


def _java() -> str:
    return str(java_home(pyspark.__version__) / "bin" / "java")


def _jars() -> Path:
    jars = Path(pyspark.__file__).parent / "jars"
    if not any(jars.glob("zookeeper-[0-9]*.jar")):
        raise RuntimeError(f"no jar of ZooKeeper in {jars}, where PySpark has it")
    return jars


@contextmanager
def running_jvm() -> Iterator[Any]:
    """Run a JVM within the block; yield py4j's view of its classes."""
    jars = _jars()
    port, token = launch_gateway(
        jarpath=str(next(jars.glob("py4j-*.jar"))),
        classpath=str(jars / "*"),
        javaopts=list(_OPTIONS),
        java_path=_java(),
        die_on_exit=True,
        enable_auth=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
