"""Base files whose storage fails in the middle of a read: not taken for damaged ones."""

from __future__ import annotations

import errno
import io
import os
from itertools import product

import pyarrow as pa
import pytest

from strandline.records.file.base_file import read_base_file
from strandline.records.meta_fields import with_meta_fields
from tests.kit.formats.base_files import write_base_file
from tests.kit.storage.memory_storage import MemoryStorage
from tests.strandline.read.logs.log_table import AVRO, BASE, SCHEMA
from timeline.errors import PathNotFoundError, StorageUnavailableError, TableError


class Failing(io.BytesIO):
    """A file of which one read fails."""

    def __init__(self, data: bytes, left: int, error: OSError) -> None:
        super().__init__(data)
        self.left, self.error = left, error

    def read(self, size=-1):
        self.left -= 1
        if self.left == 0:
            raise self.error
        return super().read(size)


class FailingStorage(MemoryStorage):
    """A storage of whose opened files the nth read fails."""

    nth, error = 0, OSError()

    def open_input(self, path, *about):
        return pa.PythonFile(Failing(self.read(path), self.nth, self.error), mode="r")


def test_a_read_that_fails(subtests):
    for (number, expected), nth in product(
        [
            (errno.EIO, StorageUnavailableError),
            (errno.ESTALE, StorageUnavailableError),
            (errno.ENOENT, PathNotFoundError),
            (errno.EINVAL, TableError),
        ],
        [1, 2],
    ):
        with subtests.test(number=number, expected=expected, nth=nth):
            storage = FailingStorage()
            write_base_file(
                storage, "f", pa.Table.from_pylist(BASE, with_meta_fields(SCHEMA)), AVRO
            )
            storage.nth, storage.error = nth, OSError(number, os.strerror(number))
            with pytest.raises(expected, match="f under /memory/t"):
                read_base_file(storage, "f")
            storage.nth = 99
            assert read_base_file(storage, "f").num_rows == len(BASE)
