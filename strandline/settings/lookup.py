"""Settings of look-ups by executors: how long they wait for the service, and the fallback.

Source: Hudi 1.2.0 ``FileSystemViewStorageConfig``.
"""

from __future__ import annotations

from typing import Final

from strandline.settings.setting import ExecutorSetting

REMOTE_TIMEOUT: Final = ExecutorSetting(
    "hoodie.filesystem.view.remote.timeout.secs",
    30,
    "Time for one exchange of an executor with the service, from the start of the connection to"
    " the last byte of the answer.",
    minimum=1,
)
REMOTE_CONNECT_TIMEOUT: Final = ExecutorSetting(
    "strandline.remote.connect.timeout.secs",
    2.0,
    "Time for an executor to connect to the service.",
    minimum=0.01,
)
REMOTE_READ_TIMEOUT: Final = ExecutorSetting(
    "strandline.remote.read.timeout.secs",
    10.0,
    "Longest wait of an executor for the TLS handshake, and for the next packet of an answer.",
    minimum=0.01,
)
REMOTE_FIRST_ANSWER: Final = ExecutorSetting(
    "strandline.remote.first.answer.secs",
    2.8,
    "Time for all attempts of a request until the service has first answered this worker;"
    " then the worker lists storage.",
    minimum=0.01,
)
REMOTE_DEADLINE: Final = ExecutorSetting(
    "strandline.remote.deadline.secs",
    300.0,
    "Time for all attempts of a request to a service that is still loading.",
    minimum=1,
)
BACKUP_VIEW: Final = ExecutorSetting(
    "hoodie.filesystem.remote.backup.view.enable",
    True,
    "Whether executors list partitions themselves when the service can't be reached.",
)
