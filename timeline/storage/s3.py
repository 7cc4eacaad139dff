"""Requests to S3 for which ``s3fs`` has no call, or sends more requests than needed.

s3fs also lists the parent of an empty prefix, and requests an object's size before it opens it. The
functions here send one request each.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from timeline.storage.base import FileInfo
from timeline.storage.client_error import ReadFile

OBJECT_STORES: Final = frozenset({"s3", "s3a"})
"""Protocols of s3fs, for which this module makes some requests itself."""

KEYS_A_REQUEST: Final = 1000
"""Most keys that a page of a listing or a ``DeleteObjects`` request has."""

TAIL_BYTES: Final = 1 << 20
"""Bytes at the end of a file that are read when it is opened: a small file, or a large one's
footer.

More would delay the first read of a large file (10 ms per MiB at 100 MB/s); less would cost base
files below this size a second request each.
"""


def listed(fs: Any, full: str, *, flat: bool, count: Callable[[int], None]) -> Iterator[FileInfo]:
    """Yield what is below a prefix, by name; nothing if there is no such prefix or bucket.

    Args:
        fs: The file system of s3fs.
        full: The path of the directory in it.
        flat: Whether all files below are listed, with their paths below the directory as names,
            instead of its direct children.
        count: Called with the number of requests beyond the first.

    Raises:
        FileNotFoundError: The bucket was deleted between two pages.
    """
    bucket, key, _ = fs.split_path(f"{full}/")
    prefix = key if key.endswith("/") or not key else f"{key}/"
    request = {"Bucket": bucket, "Prefix": prefix, **({} if flat else {"Delimiter": "/"})}
    while True:
        try:
            page = fs.call_s3("list_objects_v2", **request)
        except FileNotFoundError:
            if "ContinuationToken" in request:
                raise  # the bucket has been deleted: the pages so far are no whole list
            return
        for each in page.get("CommonPrefixes", ()):
            name = each["Prefix"][len(prefix) : -1]
            if name:
                yield FileInfo(name, 0, 0, is_dir=True)
        for each in page.get("Contents", ()):
            name = each["Key"][len(prefix) :]
            if name and not name.endswith("/"):  # else a placeholder of a directory
                modified = each["LastModified"].timestamp()
                yield FileInfo(name, int(each["Size"]), int(modified * 1000))
        if not page.get("IsTruncated"):
            return
        request["ContinuationToken"] = page["NextContinuationToken"]
        count(1)


def delete_keys(fs: Any, fulls: Sequence[str]) -> dict[str, str]:
    """Delete at most ``KEYS_A_REQUEST`` objects of a bucket; return why others weren't, by name.

    It doesn't use the file system's ``rm``, which ignores errors of single keys.
    """
    # Not the first segment: the ARN of an access point has a slash.
    bucket = fs.split_path(fulls[0])[0]
    keys = [{"Key": full[len(bucket) + 1 :]} for full in fulls]
    answer = fs.call_s3("delete_objects", Bucket=bucket, Delete={"Objects": keys, "Quiet": True})
    for parent in {full.rpartition("/")[0] for full in fulls}:
        fs.invalidate_cache(parent)
    return {
        f"{bucket}/{each.get('Key')}": f"{each.get('Code')} {each.get('Message', '')}"
        for each in answer.get("Errors", ())
    }


def abort_uploads(fs: Any, full: str) -> None:
    """Abort all multipart uploads to a name that nobody else uploads to.

    The client doesn't know the ids of uploads whose start got an error, or was repeated after a
    lost response. They never become visible, but S3 keeps and bills them.
    """
    bucket, key, _ = fs.split_path(full)
    answer = fs.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=key)
    for upload in answer.get("Uploads", ()):
        if upload["Key"] == key:
            fs.abort_mpu(bucket, key, upload["UploadId"])


class KeptTails:
    """A cache of the last bytes of immutable files, limited by total size.

    When it is full, nothing is added and nothing evicted: every file in it is soon opened again.
    Thread-safe without a lock, as each change is one atomic call.
    """

    def __init__(self, max_bytes: int = 64 << 20) -> None:
        self._left = max_bytes
        self._tails: dict[str, bytes] = {}

    def get(self, full: str) -> bytes | None:
        """Return the end of a file; ``None`` if it isn't kept."""
        return self._tails.get(full)

    def keep(self, full: str, tail: bytes) -> None:
        """Keep the end of a file if there is room; a race may exceed the limit by a few files."""
        if len(tail) <= self._left:
            self._left -= len(tail)
            self._tails[full] = tail


class TailedFile(ReadFile):
    """A file of fsspec whose last bytes are in memory already; for ``pyarrow.PythonFile``."""

    def __init__(self, file: Any, full: str, tail: bytes) -> None:
        """Wrap a file as ``ReadFile``; ``tail`` is its end."""
        super().__init__(file, full)
        self._tail = tail
        self._at = 0

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Change the position; return it."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        self._at = start + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes; fewer only at the end of the file."""
        end = self.size if size < 0 else min(self._at + size, self.size)
        start, self._at = self._at, max(self._at, end)
        tail_start = self.size - len(self._tail)
        if start >= tail_start:
            return self._tail[start - tail_start : max(end - tail_start, 0)]
        super().seek(start)
        head = super().read(min(end, tail_start) - start)
        return head + self._tail[: max(end - tail_start, 0)]
