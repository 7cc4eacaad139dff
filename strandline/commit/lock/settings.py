"""Settings of the table's lock; names and defaults are Hudi's.

Source: Hudi 1.2.0 ``HoodieLockConfig``, ``StorageBasedLockConfig``.
"""

from __future__ import annotations

from typing import Final

from strandline.settings.setting import ClientSetting

PROVIDER: Final = ClientSetting(
    "hoodie.write.lock.provider",
    "",
    "Full class name of Hudi's lock provider that all writers of the table use; empty: the table"
    " has one writer. Supported: `InProcessLockProvider`, `FileSystemBasedLockProvider`,"
    " `StorageBasedLockProvider`, `ZookeeperBasedLockProvider`,"
    " `ZookeeperBasedImplicitBasePathLockProvider` of `org.apache.hudi.client.transaction.lock`.",
)
WAIT_TIME: Final = ClientSetting(
    "hoodie.write.lock.wait_time_ms",
    60_000,
    "Time that one attempt waits for the lock.",
    minimum=0,
)
CLIENT_RETRIES: Final = ClientSetting(
    "hoodie.write.lock.client.num_retries",
    50,
    "Number of attempts after the first one.",
    minimum=0,
)
CLIENT_RETRY_WAIT: Final = ClientSetting(
    "hoodie.write.lock.client.wait_time_ms_between_retry",
    5_000,
    "Time between two attempts.",
    unit="ms",
    minimum=0,
)
RETRY_WAIT: Final = ClientSetting(
    "hoodie.write.lock.wait_time_ms_between_retry",
    1_000,
    "Time between two polls of the lock within an attempt; with ZooKeeper, the first pause before"
    " a request is repeated.",
    unit="ms",
    minimum=1,
)
RETRY_MAX_WAIT: Final = ClientSetting(
    "hoodie.write.lock.max_wait_time_ms_between_retry",
    16_000,
    "Longest pause before a request to ZooKeeper is repeated; pauses double up to it.",
    unit="ms",
    minimum=1,
)
RETRIES: Final = ClientSetting(
    "hoodie.write.lock.num_retries",
    15,
    "How often a request to ZooKeeper is repeated.",
    minimum=0,
)
FILE_SYSTEM_PATH: Final = ClientSetting(
    "hoodie.write.lock.filesystem.path",
    "",
    "Folder of the file `lock` of `FileSystemBasedLockProvider`, a local path; empty: the table's"
    " `.hoodie`.",
)
FILE_SYSTEM_EXPIRE: Final = ClientSetting(
    "hoodie.write.lock.filesystem.expire",
    0,
    "Age in minutes from which a lock file counts as abandoned and is deleted; 0: never.",
    minimum=0,
)
STORAGE_VALIDITY: Final = ClientSetting(
    "hoodie.write.lock.storage.validity.timeout.secs",
    300,
    "Length of a lease of `StorageBasedLockProvider`, at least ten times the renew interval: so"
    " long other writers wait for one that was killed.",
    minimum=10,
)
STORAGE_RENEW: Final = ClientSetting(
    "hoodie.write.lock.storage.renew.interval.secs",
    30,
    "Time between two extensions of the lease.",
    minimum=1,
)
ZOOKEEPER_URL: Final = ClientSetting(
    "hoodie.write.lock.zookeeper.url",
    "",
    "Servers as `host:port`, separated by commas; required with ZooKeeper.",
)
ZOOKEEPER_PORT: Final = ClientSetting(
    "hoodie.write.lock.zookeeper.port",
    "",
    "Hudi doesn't read it, so a port that isn't in the URL is refused.",
)
ZOOKEEPER_BASE_PATH: Final = ClientSetting(
    "hoodie.write.lock.zookeeper.base_path",
    "",
    "Node below which the lock's node is; required by `ZookeeperBasedLockProvider`.",
)
ZOOKEEPER_LOCK_KEY: Final = ClientSetting(
    "hoodie.write.lock.zookeeper.lock_key",
    "",
    "Name of the lock's node; empty: `hoodie.table.name`.",
)
ZOOKEEPER_SESSION_TIMEOUT: Final = ClientSetting(
    "hoodie.write.lock.zookeeper.session_timeout_ms",
    60_000,
    "Time after which the server takes a silent client, and its lock, for gone.",
    minimum=1,
)
ZOOKEEPER_CONNECTION_TIMEOUT: Final = ClientSetting(
    "hoodie.write.lock.zookeeper.connection_timeout_ms",
    15_000,
    "Time that connecting to ZooKeeper may take.",
    minimum=1,
)

LOCK_ALIASES: Final[dict[str, str]] = {
    "hoodie.write.lock.storage.heartbeat.poll.secs": STORAGE_RENEW.name,
}
"""Hudi's other name of a setting → its name here."""
