"""New files of ``FsspecStorage.create_stream``, which are completed only if their block succeeds.

fsspec completes an upload when its file is closed, and the file's finalizer closes it. So if the
block or the completion fails, the file is discarded, and marked as closed. The caller gets that
error; an error while discarding is logged and added to it as a note. A request that failed may have
taken effect nevertheless: a completed object is deleted, and a begun upload is found by its name.

fsspec makes requests on a separate thread, and an interrupt of the caller doesn't end them. If a
write ended before the request for a data file, it would be rolled back at once, and the file would
appear afterwards without any record of it. So the interrupt (Ctrl-C) is raised when the request has
ended, while the write's heartbeat is still active; the rollback then finds the file by its marker.
If a second interrupt ends this wait, the thread that makes the request deletes the file. If the
process is killed, its requests end with their connections: incomplete ones have no effect, and the
others take effect before a rollback can list the markers, unless the store is slower than that.

A remote storage may carry out a request that it didn't answer at any later time, even after the
file was looked for and deleted. ``CreateUnansweredError`` informs the caller.
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
from timeline.storage.base import Storage, meanwhile
from timeline.storage.client_error import mapped_client_errors
from timeline.storage.conditional_file import Create, protocols, s3_conditions
from timeline.storage.s3 import OBJECT_STORES, abort_uploads

if TYPE_CHECKING:
    from typing_extensions import Buffer

logger = logging.getLogger(__name__)

_REFUSALS: Final = (PermissionError, FileNotFoundError)
"""HTTP statuses by which a storage says that it created nothing."""
_UPLOAD: Final = "upload"
"""Key of the user metadata that identifies an upload."""


class NewFile(AbstractContextManager[IO[bytes]]):
    """A new file on any file system; its name must be free, which isn't checked.

    Args:
        storage: The storage; if it is remote, the file is completed on a thread.
        fs: The storage's fsspec file system.
        full: The file's path in it.
        mode: Mode in which the file is opened.
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
        """Complete the file; delete it if it has been given up meanwhile."""
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
        """Discard the file after an error; an error while discarding doesn't hide it."""
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
            # An upload isn't visible before it is completed.
            try:
                # S3 keeps and bills the parts of an upload that isn't aborted.
                with suppress(FileNotFoundError):  # it was completed
                    self._file.discard()
                if self._is_upload_in_parts():
                    abort_uploads(self._fs, self._full)
            finally:
                # Otherwise closing, which the finalizer repeats, would complete the upload.
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
        """Return whether this is an S3 multipart upload, whose id the client may not know."""
        is_s3 = not OBJECT_STORES.isdisjoint(protocols(self._fs))
        return is_s3 and bool(self._file.tell() >= self._file.blocksize)

    def _remove(self) -> None:
        with suppress(FileNotFoundError):  # a rollback has deleted it
            self._fs.rm_file(self._full)


class _MappedWriter:
    """The file that a block writes to: it turns fsspec's errors into Strandline's.

    Closing it doesn't complete the file; the end of the block does.
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
        """Write bytes; return their number. A full part is sent to an object store."""
        with mapped_client_errors(self._full):
            return int(self._file.write(data))

    def writelines(self, pieces: Iterable[Buffer], /) -> None:
        """Write pieces one after the other."""
        for piece in pieces:
            self.write(piece)

    def flush(self) -> None:
        """Write the buffer, if the file system can do so before the end."""
        with mapped_client_errors(self._full):
            self._file.flush()


class NewS3File(NewFile):
    """A new object on S3, created exclusively when the block ends.

    The client repeats a request that got no response, and is refused if the first one succeeded. So
    a random upload name in the object's metadata shows that this client created it.

    Args:
        storage: The storage.
        fs: Its file system of s3fs, at an endpoint that honours conditions.
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
