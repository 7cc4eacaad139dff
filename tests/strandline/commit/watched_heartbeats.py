"""Storage that lets a test wait for beats and fail them."""

from __future__ import annotations

import threading

from strandline.commit.others_heartbeats import HeartbeatSettings
from timeline.errors import AlreadyExistsError, StorageUnavailableError
from timeline.storage.local import LocalStorage

T = "20250101000000000"
HOUR = HeartbeatSettings(interval_ms=3_600_000)
FAST = HeartbeatSettings(interval_ms=1, tolerable_misses=600_000)


class Watched(LocalStorage):
    """Lets a test wait for beats, and fails those that it is told to fail."""

    def __init__(self, base_path):
        super().__init__(base_path)
        self.beats = threading.Semaphore(0)
        self.failing = threading.Event()
        self.error: Exception = StorageUnavailableError("injected")
        self.attempts = threading.Semaphore(0)
        self.on_replace: list = []
        self.lost_answers: list[str] = []

    def create(self, path, data=b""):
        if self.failing.is_set():
            raise self.error
        super().create(path, data)
        if path in self.lost_answers:
            raise AlreadyExistsError(path)
        self.beats.release()

    def replace(self, path, data):
        for act in self.on_replace:
            act(path)
        if self.failing.is_set():
            self.attempts.release()
            raise self.error
        super().replace(path, data)
        self.beats.release()
