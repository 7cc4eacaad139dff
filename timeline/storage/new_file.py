"""New files of ``FsspecStorage.create_stream``, which are completed only if their block succeeds.

fsspec completes an upload when its file is closed, and its finalizer closes it. So a file whose
block or completion fails is discarded, and marked as closed. The error reaches the caller; one of
discarding is logged and noted on it.

fsspec makes requests on a thread of its own, and an interrupt of the caller doesn't end them. A
write that ended before the request for a data file would be rolled back at once, and the file would
appear afterwards, known to nobody. So the interrupt (Ctrl-C) is raised when the request has ended,
while the write still beats; the rollback then finds the file by its marker. If a second interrupt
ends this wait, the thread that makes the request deletes the file. The requests of a process that
is killed end with their connections: those that weren't sent completely have no effect, and others
take theirs before a rollback can list the markers, unless the store is slower than that.
"""

from __future__ import annotations

import logging
import sys
import uuid
from contextlib import AbstractContextManager, suppress
from typing import IO, Any, Final

from fsspec.spec import AbstractBufferedFile

from timeline.errors import AlreadyExistsError, StrandlineError
from timeline.storage.base import Storage, mapped_client_errors
from timeline.storage.conditional_file import s3_conditions
from timeline.storage.exclusive_create import Create
from timeline.storage.meanwhile import meanwhile

logger = logging.getLogger(__name__)

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
        self._is_complete = self._is_given_up = False
        self._file: Any = fs.open(full, mode, **options)

    def __enter__(self) -> IO[bytes]:
        opened: IO[bytes] = self._file
        return opened

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            self._give_up(error)
            return
        try:
            with mapped_client_errors(self._full), meanwhile(self._storage, self._finish):
                pass  # an interrupt of this wait is raised when the call has ended
        except BaseException as failure:
            self._give_up(failure)
            raise

    def _finish(self) -> None:
        """Complete the file; delete it if it was given up by then."""
        try:
            self._complete()
            # ``_give_up`` sets its flag and then reads this one: at least one sees the other.
            self._is_complete = True
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
                self._file.discard()
            finally:
                # Else closing, which the finalizer repeats, would complete the upload.
                self._file.closed = True
                self._file.close()  # adlfs closes its client here
            return
        # Files in memory and on disks are visible from the beginning.
        try:
            self._file.close()
        finally:
            self._remove()

    def _remove(self) -> None:
        with suppress(FileNotFoundError):  # a rollback has deleted it
            self._fs.rm_file(self._full)


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

    def _is_ours(self) -> bool:
        bucket, key, _ = self._fs.split_path(self._full)
        found = self._fs.call_s3("head_object", Bucket=bucket, Key=key)
        return bool(found.get("Metadata", {}).get(_UPLOAD) == self._upload)
