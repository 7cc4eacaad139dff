"""``open_lock`` opens the lock provider that the settings name; ``InProcessLock`` is the default.

Source: Hudi 1.2.0 ``LockManager``, ``HoodieLockConfig``, ``InProcessLockProvider``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from strandline.commit.lock import settings
from strandline.commit.lock.base import LockProvider, LockRetries, PollingProvider, TableLock, Wait
from strandline.commit.lock.file_system import FileSystemLock
from strandline.commit.lock.storage_based import LOCK_PATH, StorageBasedLock
from strandline.commit.lock.zookeeper import (
    ImplicitZookeeperLock,
    ZookeeperAddress,
    ZookeeperLock,
    implicit_path,
)
from strandline.settings.setting import Settings, shortened
from timeline.clock import Clock, SystemClock
from timeline.errors import ConfigError
from timeline.storage.base import Storage
from timeline.storage.fsspec_storage import FsspecStorage
from timeline.storage.table_id import TableId, local_path
from timeline.table.config import META_FOLDER

_POLL_S: Final = 0.01
_HOLDERS: Final[dict[str, InProcessLock]] = {}
"""The holder of each table's lock; ``setdefault`` and ``pop`` with a ``str`` are atomic."""


class InProcessLock(PollingProvider):
    """The lock of a table among the threads of this process.

    It excludes no other process, so Hudi's writers, which run in a JVM, aren't excluded either.

    An interrupt (``KeyboardInterrupt`` from a signal handler) may come between any two steps of
    Python code, such as the return of ``threading.Lock.acquire`` and the assignment that records
    it. So the lock is an entry of a dictionary, whose value is the holder: acquiring it is one
    atomic step.

    Args:
        base_path: The table's base path.
        clock: Measures time-outs.
        wait: Waits between two polls of the lock.
    """

    name: ClassVar[str] = "InProcessLockProvider"
    is_shared: ClassVar[bool] = False

    def __init__(self, base_path: str, clock: Clock | None = None, wait: Wait = time.sleep) -> None:
        super().__init__(_POLL_S, clock, wait)
        self._base_path = base_path
        self._table = str(TableId.of(base_path).normal())

    def _attempt(self) -> bool:
        return _HOLDERS.setdefault(self._table, self) is self

    def unlock(self) -> None:
        """Release the lock if this instance holds it."""
        if self.is_held():
            # Only the holder removes itself, and one thread at a time uses it.
            _HOLDERS.pop(self._table, None)

    def is_held(self) -> bool:
        """Return whether this instance holds the lock; it can't be lost."""
        return _HOLDERS.get(self._table) is self

    def describe(self) -> str:
        """Return the table's base path."""
        return self._base_path


_PACKAGE: Final = "org.apache.hudi.client.transaction.lock."
IN_PROCESS: Final = _PACKAGE + InProcessLock.name
"""The provider for the threads of one process, by its class name in Hudi."""


def open_lock(
    values: Settings,
    storage: Storage,
    *,
    table_name: str = "",
    clock: Clock | None = None,
    wait: Wait = time.sleep,
    among_threads: bool = False,
) -> TableLock:
    """Return the table's lock as the settings describe it; nothing is locked yet.

    Args:
        values: The writer's settings.
        storage: The table's storage.
        table_name: The table's name, ZooKeeper's default for the key of the lock.
        clock: Measures time-outs and leases.
        wait: Waits between attempts.
        among_threads: Whether several threads of this process change the table, so that they need
            a lock even if the settings name none. Then it is Hudi's ``InProcessLockProvider``.

    Raises:
        ConfigError: The provider isn't supported, or lacks a setting.
    """
    named = values.get(settings.PROVIDER)
    if not named:
        if not among_threads:
            return TableLock(None)
        named = IN_PROCESS
    opener = ProviderOpener(values, storage, table_name, clock or SystemClock(), wait)
    opens = PROVIDERS.get(named)
    if opens is None:
        short = [name.removeprefix(_PACKAGE) for name in PROVIDERS]
        # Not accepted by the short name: Hudi's jobs with the same options would fail.
        full = f"{_PACKAGE}{named.rpartition('.')[2]}"
        raise ConfigError(
            f"{settings.PROVIDER.name} is {named}; allowed: {', '.join(short)} of {_PACKAGE[:-1]}",
            hint=f"did you mean {full}?" if full in PROVIDERS else None,
        )
    return TableLock(opens(opener), values.read(LockRetries), wait)


class ProviderOpener:
    """Opens providers, one method for each.

    Args:
        values: The writer's settings.
        storage: The table's storage.
        table_name: The table's name, or empty.
        clock: Measures time-outs and leases.
        wait: Waits between attempts.
    """

    def __init__(
        self, values: Settings, storage: Storage, table_name: str, clock: Clock, wait: Wait
    ) -> None:
        self._values = values
        self._storage = storage
        self._table_name = table_name
        self._clock = clock
        self._wait = wait

    def in_process(self) -> LockProvider:
        """Open the lock within this process."""
        return InProcessLock(self._storage.base_path, self._clock, self._wait)

    def file_system(self) -> LockProvider:
        """Open the lock by a file."""
        folder = self._values.get(settings.FILE_SYSTEM_PATH)
        name = settings.FILE_SYSTEM_PATH.name if folder else "the table's base path"
        place = folder or self._storage.base_path
        # Hudi also takes hdfs, viewfs, dfs and hopsfs, where fsspec can't create exclusively.
        if TableId.of(place).family != "file":
            raise ConfigError(
                f"{name} is {shortened(place, 80)}, where FileSystemBasedLockProvider can't create"
                " a file exclusively; allowed: a local path",
                hint="StorageBasedLockProvider and ZookeeperBasedLockProvider lock other tables",
            )
        return FileSystemLock(
            local_path(folder) if folder else f"{local_path(place)}/{META_FOLDER}",
            # In the table's folder its calls are counted with the table's other calls.
            storage=None if folder else self._storage,
            within="" if folder else META_FOLDER,
            expire_s=60.0 * self._values.get(settings.FILE_SYSTEM_EXPIRE),
            interval_s=self._values.get(settings.RETRY_WAIT) / 1000,
            clock=self._clock,
            wait=self._wait,
        )

    def storage_based(self) -> LockProvider:
        """Open the lock by a lease."""
        validity_s = self._values.get(settings.STORAGE_VALIDITY)
        renew_s = self._values.get(settings.STORAGE_RENEW)
        if validity_s < 10 * renew_s:
            raise ConfigError(
                f"{settings.STORAGE_VALIDITY.name} is {validity_s}; allowed: {10 * renew_s} or"
                f" more, ten times {settings.STORAGE_RENEW.name}"
            )
        if not isinstance(self._storage, FsspecStorage):
            raise ConfigError(
                f"StorageBasedLockProvider can't lock {self._storage.base_path};"
                " allowed: a table on s3 or gs",
                hint="FileSystemBasedLockProvider locks tables on local paths",
            )
        return StorageBasedLock(
            self._storage.for_cause("lock").conditional_file(LOCK_PATH),
            validity_s=float(validity_s),
            renew_s=float(renew_s),
            clock=self._clock,
            wait=self._wait,
        )

    def zookeeper(self) -> LockProvider:
        """Open the lock by a node that the settings name."""
        values = self._values
        key = values.get(settings.ZOOKEEPER_LOCK_KEY) or self._table_name
        required = {
            settings.ZOOKEEPER_URL.name: values.get(settings.ZOOKEEPER_URL),
            settings.ZOOKEEPER_BASE_PATH.name: values.get(settings.ZOOKEEPER_BASE_PATH),
            f"{settings.ZOOKEEPER_LOCK_KEY.name} (or hoodie.table.name)": key,
        }
        _require(ZookeeperLock.name, required)
        base = values.get(settings.ZOOKEEPER_BASE_PATH)
        return ZookeeperLock(self._address(f"{base}/{key}"), self._clock)

    def implicit_zookeeper(self) -> LockProvider:
        """Open the lock by a node that the base path names."""
        hosts = self._values.get(settings.ZOOKEEPER_URL)
        _require(ImplicitZookeeperLock.name, {settings.ZOOKEEPER_URL.name: hosts})
        address = self._address(implicit_path(self._storage.base_path))
        return ImplicitZookeeperLock(address, self._clock)

    def _address(self, path: str) -> ZookeeperAddress:
        values = self._values
        hosts = values.get(settings.ZOOKEEPER_URL)
        port = values.get(settings.ZOOKEEPER_PORT)
        ports = {
            server.partition(":")[2] or "2181" for server in hosts.partition("/")[0].split(",")
        }
        if port and ports != {port}:
            raise ConfigError(
                f"{settings.ZOOKEEPER_PORT.name} is {port} and {settings.ZOOKEEPER_URL.name} is"
                f" {shortened(hosts, 80)}; allowed: ports in the URL, the only ones Hudi uses"
            )
        # Hudi creates the nodes between the slashes, and a node's path has no empty ones.
        node = "/" + "/".join(part for part in path.split("/") if part)
        return values.read(ZookeeperAddress, hosts=hosts, path=node)


def _require(provider: str, values: Mapping[str, str]) -> None:
    """Refuse empty values, all at once, by the names of their settings."""
    missing = [name for name, value in values.items() if not value]
    if missing:
        raise ConfigError(f"{provider} needs {', '.join(missing)}; not set")


PROVIDERS: Final[dict[str, Callable[[ProviderOpener], LockProvider]]] = {
    IN_PROCESS: ProviderOpener.in_process,
    _PACKAGE + "FileSystemBasedLockProvider": ProviderOpener.file_system,
    _PACKAGE + "StorageBasedLockProvider": ProviderOpener.storage_based,
    _PACKAGE + "ZookeeperBasedLockProvider": ProviderOpener.zookeeper,
    _PACKAGE + "ZookeeperBasedImplicitBasePathLockProvider": ProviderOpener.implicit_zookeeper,
}
"""Class name in Hudi → the method that opens the provider."""
