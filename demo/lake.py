"""Where the demo's tables are: ``LocalLake`` on the local disk, ``ObjectStoreLake`` on S3.

The object store is moto's S3 server, a process of its own, behind a proxy that delays each request,
another process. The job reaches it through the proxy. The readers that prove the tables take a
copy, fetched without the delay.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import fsspec

_BUCKET: Final = "demo"


@dataclass(frozen=True, slots=True)
class TableAddress:
    """How the job reaches a table.

    Attributes:
        base_path: A URL.
        storage_options: Options of fsspec.
    """

    base_path: str
    storage_options: Mapping[str, Any] = field(default_factory=dict)


class Lake(ABC):
    """The tables of the demo by name."""

    @abstractmethod
    def address(self, name: str) -> TableAddress:
        """Return how the job reaches a table."""

    @abstractmethod
    def files(self, name: str) -> Path:
        """Return a local folder with a table's current files."""


@dataclass(frozen=True, slots=True)
class LocalLake(Lake):
    """Tables in a local folder."""

    folder: Path

    def address(self, name: str) -> TableAddress:
        """Return the table's folder."""
        return TableAddress(self.files(name).resolve().as_uri())

    def files(self, name: str) -> Path:
        """Return the table's folder."""
        return self.folder / name


@dataclass(frozen=True, slots=True)
class ObjectStoreLake(Lake):
    """Tables in a bucket of an S3 server.

    Attributes:
        folder: For copies of tables.
        job: Options of fsspec for the job.
        direct: Options of fsspec without the delay.
    """

    folder: Path
    job: Mapping[str, Any]
    direct: Mapping[str, Any]

    def address(self, name: str) -> TableAddress:
        """Return the table's URL, through the proxy."""
        return TableAddress(f"s3://{_BUCKET}/{name}", self.job)

    def files(self, name: str) -> Path:
        """Copy the table's files to a new local folder and return that."""
        target = self.folder / name
        shutil.rmtree(target, ignore_errors=True)
        store = fsspec.filesystem("s3", **self.direct, skip_instance_cache=True)
        for key in store.find(f"{_BUCKET}/{name}"):
            path = target / key.removeprefix(f"{_BUCKET}/{name}/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(store.cat_file(key))
        return target

    @classmethod
    @contextmanager
    def running(cls, folder: Path, delay_s: float) -> Iterator[ObjectStoreLake]:
        """Run the S3 server and the proxy until the block ends.

        Args:
            folder: For copies of tables and the log of requests.
            delay_s: How long each request of the job waits.
        """
        # Only this storage needs the packages of an S3 client.
        from benchmarks.object_store.delay import delayed  # noqa: PLC0415
        from benchmarks.object_store.s3_server import s3_options, s3_process  # noqa: PLC0415

        with (
            s3_process() as endpoint,
            delayed(endpoint, delay_s, folder / "requests.jsonl") as slow,
        ):
            direct = s3_options(endpoint)
            fsspec.filesystem("s3", **direct, skip_instance_cache=True).mkdir(_BUCKET)
            yield cls(folder, s3_options(slow.endpoint), direct)
