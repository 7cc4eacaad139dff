"""The lock by a lease on Google Cloud Storage's conditions, by gcsfs."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from strandline.commit.lock.base import Wait
from strandline.commit.lock.storage_based import LOCK_PATH, StorageBasedLock
from tests.conformance.lock_suite import SharedLockSuite
from tests.kit.concurrency.manual_clock import ManualClock
from tests.kit.servers.gcs_server import GcsServer, gcs_server
from timeline.clock import Clock
from timeline.errors import AlreadyExistsError, StorageUnavailableError
from timeline.storage.fsspec_storage import FsspecStorage

pytestmark = [
    pytest.mark.property,
    # google.api_core warns of each Python that it is going to drop.
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@dataclass(frozen=True)
class Subject:
    base_path: str
    options: dict[str, Any] = field(hash=False)

    def open(self, clock: Clock | None = None, wait: Wait = time.sleep) -> StorageBasedLock:
        file = FsspecStorage(self.base_path, self.options).conditional_file(LOCK_PATH)
        return StorageBasedLock(file, 600.0, 60.0, 0.01, clock, wait)


@pytest.fixture(scope="module")
def server() -> Iterator[GcsServer]:
    with gcs_server() as running:
        yield running


@pytest.fixture
def subject(server: GcsServer) -> Subject:
    return Subject(f"gs://b/{uuid.uuid4()}/a table", server.options)


class TestGcsLease(SharedLockSuite):
    def expire(self, clock: ManualClock) -> None:
        clock.advance(700_000)


def test_conditions_are_generations(server: GcsServer) -> None:
    storage = FsspecStorage(f"gs://b/{uuid.uuid4()}", server.options)
    file = storage.conditional_file("dir/ü file")
    assert file.read() is None
    first = file.write(b"1", None)
    second = file.write(b"1", first)
    assert file.read() == (b"1", second)
    assert first != second
    for version in (None, first):
        with pytest.raises(AlreadyExistsError, match="written by another client"):
            file.write(b"2", version)
    assert storage.calls.snapshot() == {("read", "other"): 2, ("replace", "other"): 4}


def test_other_errors_are_those_of_a_storage(server: GcsServer) -> None:
    """gcsfs's errors aren't ``OSError``."""
    file = FsspecStorage("gs://b/t", server.options).conditional_file("refused")
    with pytest.raises(StorageUnavailableError, match="gs://b/t/refused"):
        file.read()
