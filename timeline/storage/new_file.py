"""New files of ``FsspecStorage.create_stream``, which are completed only if their block succeeds.

fsspec completes an upload when its file is closed, and its finalizer closes it. So a file whose
block or completion fails is discarded, and marked as closed. The error reaches the caller; one of
discarding is logged and noted on it. A request that failed may have taken effect all the same: an
object that was completed is deleted, and an upload that was begun is found by its name.

fsspec makes requests on a thread of its own, and an interrupt of the caller doesn't end them. A
write that ended before the request for a data file would be rolled back at once, and the file would
appear afterwards, known to nobody. So the interrupt (Ctrl-C) is raised when the request has ended,
while the write still beats; the rollback then finds the file by its marker. If a second interrupt
ends this wait, the thread that makes the request deletes the file. The requests of a process that
is killed end with their connections: those that weren't sent completely have no effect, and others
take theirs before a rollback can list the markers, unless the store is slower than that.

A request to a remote storage that got no answer may be carried out at any later time, after the
file was looked for and deleted. ``CreateUnansweredError`` tells the caller.
"""

from __future__ import annotations

import logging
import sys
import uuid
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from typing import IO, TYPE_CHECKING, Any, Final, cast

from fsspec.spec import AbstractBufferedFile

from timeline.errors import (
    AlreadyExistsError,
    CreateUnansweredError,
    StorageUnavailableError,
    StrandlineError,
)
from timeline.storage.base import Storage, mapped_client_errors
from timeline.storage.conditional_file import s3_conditions
from timeline.storage.exclusive_create import Create
from timeline.storage.meanwhile import meanwhile
from timeline.storage.protocol import protocols
from timeline.storage.s3 import OBJECT_STORES, abort_uploads

if TYPE_CHECKING:
    from typing_extensions import Buffer

logger = logging.getLogger(__name__)

_REFUSALS: Final = (PermissionError, FileNotFoundError)
"""Answers by which a storage says that it creates nothing."""
_UPLOAD: Final = "upload"
"""Key of the user metadata that identifies an upload."""


class NewFile(AbstractContextManager[IO[bytes]]):
    """A new file of any file system; its name must not be taken, which isn't checked.

    Args:
        storage: The storage; if it is remote, the file is completed on a thread.
        fs: Its file system of fsspec.
        full: The file's path in it.
        mode: Mode that the file is opened with.
        options: Passed to the file system.
    """

    def __init__(
        self, storage: Storage, fs: Any, full: str, mode: str = "wb", **options: object
    ) -> None:
        self._storage = storage
        self._fs = fs
        self._full = full
        self._is_complete = self._is_given_up = self._is_in_doubt = False
        self._is_refused = False
        self._file: Any = fs.open(full, mode, **options)

    def __enter__(self) -> IO[bytes]:
        return cast("IO[bytes]", _MappedWriter(self._file, self._full))

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            self._give_up(error)
            return
        try:
            with mapped_client_errors(self._full), meanwhile(self._storage, self._finish):
                pass  # an interrupt of this wait is raised when the call has ended
        except BaseException as failure:
            self._give_up(failure)
            if self._may_appear and isinstance(failure, StorageUnavailableError):
                raise CreateUnansweredError(failure.message) from failure
            raise

    @property
    def _may_appear(self) -> bool:
        """Whether a request that created the file may still be carried out."""
        return self._storage.is_remote and self._is_in_doubt and not self._is_refused

    def _finish(self) -> None:
        """Complete the file; delete it if it was given up by then."""
        try:
            self._complete()
            # ``_give_up`` sets its flag and then reads this one: at least one sees the other.
            self._is_complete = True
        except (FileExistsError, AlreadyExistsError):
            raise
        except Exception as error:
            self._is_in_doubt = True
            self._is_refused = isinstance(error, _REFUSALS)
            raise
        finally:
            # The request may have taken effect, whatever its answer.
            if self._is_given_up:
                logger.info("deleting %s, whose writer was interrupted twice", self._full)
                self._remove()

    def _complete(self) -> None:
        self._file.close()

    def _give_up(self, error: BaseException) -> None:
        """Discard the file after an error, which one of discarding doesn't hide."""
        self._is_given_up = True
        if self._is_complete:
            return  # interrupted, and found by its marker
        try:
            with mapped_client_errors(self._full):
                self._discard()
                if self._is_in_doubt:
                    self._remove()
        except StrandlineError as failure:
            text = f"what was written to {self._full} can't be discarded: {failure}"
            logger.warning("%s", text)
            if sys.version_info >= (3, 11):
                error.add_note(text)

    def _discard(self) -> None:
        """Discard what was written; nothing may be visible under the name afterwards."""
        if isinstance(self._file, AbstractBufferedFile):
            # An upload, of which nothing is visible before it is completed.
            try:
                # S3 keeps and bills the parts of an upload that isn't aborted.
                with suppress(FileNotFoundError):  # it was completed
                    self._file.discard()
                if self._is_upload_in_parts():
                    abort_uploads(self._fs, self._full)
            finally:
                # Else closing, which the finalizer repeats, would complete the upload.
                self._file.closed = True
                self._file.close()  # adlfs closes its client here
            return
        # Files in memory and on disks are visible from the beginning. Closing writes what is
        # buffered, which fails again on a full disk.
        try:
            with suppress(Exception):
                self._file.close()
        finally:
            self._remove()

    def _is_upload_in_parts(self) -> bool:
        """Return whether this is an upload of S3, of which the client may not know the name."""
        is_s3 = not OBJECT_STORES.isdisjoint(protocols(self._fs))
        return is_s3 and bool(self._file.tell() >= self._file.blocksize)

    def _remove(self) -> None:
        with suppress(FileNotFoundError):  # a rollback has deleted it
            self._fs.rm_file(self._full)


class _MappedWriter:
    """What a block writes to: a file of fsspec whose errors are Strandline's, whoever writes.

    It doesn't complete the file: that is the block's end.
    """

    def __init__(self, file: Any, full: str) -> None:
        self._file = file
        self._full = full

    @property
    def closed(self) -> bool:
        """Whether the file was completed or discarded."""
        return bool(self._file.closed)

    def writable(self) -> bool:
        """Return true."""
        return True

    def tell(self) -> int:
        """Return the number of bytes written."""
        return int(self._file.tell())

    def write(self, data: Buffer, /) -> int:
        """Write bytes; return their number. An object store is sent a part when it is full."""
        with mapped_client_errors(self._full):
            return int(self._file.write(data))

    def writelines(self, pieces: Iterable[Buffer], /) -> None:
        """Write pieces one after the other."""
        for piece in pieces:
            self.write(piece)

    def flush(self) -> None:
        """Write what is buffered, as far as the file system does that before the end."""
        with mapped_client_errors(self._full):
            self._file.flush()


class NewS3File(NewFile):
    """A new object of S3, which is created exclusively when the block ends.

    The client repeats a request without an answer, and is refused if the first one succeeded. So
    the object carries a random name of its upload, by which it is recognised.

    Args:
        storage: The storage.
        fs: Its file system of s3fs, at an endpoint that heeds conditions.
        full: The object's path in it.
        create: Creates an empty object, which s3fs would do unconditionally.
    """

    def __init__(self, storage: Storage, fs: Any, full: str, create: Create) -> None:
        self._create = create
        self._upload = uuid.uuid4().hex
        super().__init__(storage, fs, full, "xb", Metadata={_UPLOAD: self._upload})

    def _complete(self) -> None:
        if self._file.tell() == 0:
            self._discard()
            self._create(self._full, b"")
            return
        try:
            with s3_conditions(self._full):
                self._file.close()
        except AlreadyExistsError:
            if not self._is_ours():
                raise

    def _remove(self) -> None:
        with suppress(FileNotFoundError):
            if self._is_ours():
                super()._remove()

    def _is_ours(self) -> bool:
        bucket, key, _ = self._fs.split_path(self._full)
        found = self._fs.call_s3("head_object", Bucket=bucket, Key=key)
        return bool(found.get("Metadata", {}).get(_UPLOAD) == self._upload)
