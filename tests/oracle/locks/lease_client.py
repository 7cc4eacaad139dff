"""Hudi's ``StorageBasedLockProvider``, whose requests to the object store are made here.

Its clients of the stores are in bundles that Maven's repository doesn't have for Hudi 1.x, so this
is a ``StorageLockClient`` in Python, called by the JVM. The lease's form, its end, the drift of
clocks and its renewal are Hudi's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started

from tests.oracle.hudi import Hudi
from tests.oracle.locks.lock_providers import HudiLock
from timeline.errors import AlreadyExistsError
from timeline.storage.conditional_file import ConditionalFile

LOCK = "org.apache.hudi.client.transaction.lock"


class LeaseClient:
    """Hudi's interface to the store of one lock."""

    class Java:
        implements = (f"{LOCK}.StorageLockClient",)

    def __init__(self, jvm: Any, file: ConditionalFile) -> None:
        self._models = jvm.org.apache.hudi.client.transaction.lock.models
        self._pair = jvm.org.apache.hudi.common.util.collection.Pair
        self._option = jvm.org.apache.hudi.common.util.Option
        self._stream = jvm.java.io.ByteArrayInputStream
        self._file = file

    def readCurrentLockFile(self) -> Any:  # noqa: N802 - Hudi's name
        found = self._file.read()
        if found is None:
            return self._pair.of(self._models.LockGetResult.NOT_EXISTS, self._option.empty())
        stored = self._models.StorageLockFile.createFromStream(self._stream(found[0]), found[1])
        return self._pair.of(self._models.LockGetResult.SUCCESS, self._option.of(stored))

    def tryUpsertLockFile(self, data: Any, previous: Any) -> Any:  # noqa: N802 - Hudi's name
        version = previous.get().getVersionId() if previous.isPresent() else None
        content = self._models.StorageLockFile.toByteArray(data)
        results = self._models.LockUpsertResult
        try:
            written = self._file.write(bytes(content), version)
        except AlreadyExistsError:
            return self._pair.of(results.ACQUIRED_BY_OTHERS, self._option.empty())
        stored = self._models.StorageLockFile(data, written)
        return self._pair.of(results.SUCCESS, self._option.of(stored))

    def readObject(self, path: str, check_first: bool) -> Any:  # noqa: N802
        return self._option.empty()

    def writeObject(self, path: str, content: str) -> bool:  # noqa: N802 - Hudi's name
        return False

    def close(self) -> None:
        pass


class Function3:
    """A function of three arguments for Java."""

    class Java:
        implements = ("org.apache.hudi.common.util.Functions$Function3",)

    def __init__(self, function: Callable[[Any, Any, Any], Any]) -> None:
        self._function = function

    def apply(self, one: Any, two: Any, three: Any) -> Any:
        return self._function(one, two, three)


class HudiLease(HudiLock):
    """Hudi's provider of a lock by a lease."""

    def __init__(self, hudi: Hudi, base_path: str, file: ConditionalFile, **seconds: int) -> None:
        jvm = hudi.jvm
        ensure_callback_server_started(hudi.spark.sparkContext._gateway)
        properties = jvm.org.apache.hudi.common.config.TypedProperties()
        properties.setProperty("hoodie.base.path", base_path)
        for name, value in seconds.items():
            properties.setProperty(f"hoodie.write.lock.storage.{name}", str(value))
        locks = jvm.org.apache.hudi.client.transaction.lock
        beat = locks.models.LockProviderHeartbeatManager
        name = f"{LOCK}.StorageBasedLockProvider"
        kind = jvm.org.apache.hudi.common.util.ReflectionUtils.getClass(name)
        (made,) = (one for one in kind.getDeclaredConstructors() if one.getParameterCount() == 6)
        made.setAccessible(True)
        arguments = jvm.java.util.ArrayList()
        arguments.add(str(jvm.java.util.UUID.randomUUID()))
        arguments.add(properties)
        arguments.add(Function3(lambda owner, ms, renew: beat(owner, ms, renew)))
        arguments.add(Function3(lambda owner, path, options: LeaseClient(jvm, file)))
        arguments.add(jvm.org.slf4j.LoggerFactory.getLogger(name))
        arguments.add(None)
        self._provider = made.newInstance(arguments.toArray())
        self._ms = jvm.java.util.concurrent.TimeUnit.MILLISECONDS
