"""Hudi's own lock providers, in Spark's JVM."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from py4j.protocol import Py4JJavaError

from tests.oracle.hudi import Hudi

PACKAGE = "org.apache.hudi.client.transaction.lock."


class HudiLock:
    """One of Hudi's lock providers."""

    def __init__(self, hudi: Hudi, name: str, options: Mapping[str, str]) -> None:
        jvm = hudi.jvm
        properties = jvm.java.util.Properties()
        for key, value in options.items():
            properties.setProperty(key, value)
        configured = jvm.org.apache.hudi.common.config.LockConfiguration(properties)
        made = getattr(jvm.org.apache.hudi.client.transaction.lock, name)
        self._provider = made(configured, hudi.storage_conf)
        self._ms = jvm.java.util.concurrent.TimeUnit.MILLISECONDS

    def try_lock(self, timeout_ms: int = 0) -> bool:
        """Return whether the lock was acquired; ZooKeeper's provider raises where others don't."""
        try:
            return bool(self._provider.tryLock(timeout_ms, self._ms))
        except Py4JJavaError as error:
            if "HoodieLockException" not in str(error.java_exception.getClass().getName()):
                raise
            return False

    def unlock(self) -> None:
        self._provider.unlock()

    def close(self) -> None:
        self._provider.close()

    @property
    def current_owner(self) -> str:
        """What the provider found out about the holder."""
        return str(self._provider.getCurrentOwnerLockInfo())


@contextlib.contextmanager
def hudi_lock(hudi: Hudi, name: str, options: Mapping[str, Any]) -> Iterator[HudiLock]:
    """Open one of Hudi's providers within the block."""
    lock = HudiLock(hudi, name, options)
    try:
        yield lock
    finally:
        lock.close()
