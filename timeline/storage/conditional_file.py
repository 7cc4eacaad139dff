"""Files that are written on a condition, which the store checks: ``ConditionalFile``, creation.

``ConditionalFile`` is a small object with compare-and-set writes. S3 compares the object's ETag
(``If-Match``, ``If-None-Match``), Google Cloud Storage its generation (``ifGenerationMatch``, 0 for
an object that must not exist).

A timeline is safe only if exactly one of several writers creates an instant's file
(``exclusive_create``). Object stores compare and write in one step on the server; each S3 endpoint
is probed once, because some ignore the condition. For other file systems fsspec's ``create`` mode
checks first and then writes, which doesn't exclude other writers, so they are refused unless the
caller is the only creator of files.
"""

from __future__ import annotations

import os
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from fsspec.asyn import sync

from timeline.errors import AlreadyExistsError, ConfigError
from timeline.storage import local_files
from timeline.storage.client_error import mapped_client_errors, s3_response

if TYPE_CHECKING:
    from collections.abc import Iterator

_CONDITION_FAILED: Final = 412


class ConditionalFile(ABC):
    """An object whose version the store compares on each write; safe to use from several threads.

    Attributes:
        url: Its URL, for messages.
    """

    def __init__(self, fs: Any, full: str, url: str, count: Callable[[str], None]) -> None:
        """Arguments as of ``open_conditional_file``."""
        self.url = url
        self._count = count
        self._fs = fs
        self._bucket, self._key, _ = fs.split_path(full)

    @abstractmethod
    def read(self) -> tuple[bytes, str] | None:
        """Return content and version; ``None`` if there is no such object.

        Raises:
            StorageUnavailableError: The store couldn't be reached, or refused the call.
        """

    @abstractmethod
    def write(self, data: bytes, version: str | None) -> str:
        """Write the object if it has this version; return its new one.

        The store's client repeats a request whose response was lost, and the second one then fails.
        So after any error, call ``read`` to find out whether the object was written.

        Args:
            data: The content.
            version: The version that the object must have; ``None``: it must not exist.

        Raises:
            AlreadyExistsError: It has another version, or doesn't exist.
            StorageUnavailableError: The store couldn't be reached, or refused the call.
        """


def open_conditional_file(
    fs: Any, full: str, url: str, count: Callable[[str], None]
) -> ConditionalFile:
    """Return an object of a file system of fsspec.

    Args:
        fs: The file system.
        full: The object's path in it.
        url: The object's URL, for messages.
        count: Counts a call of a kind, ``read`` or ``replace``.

    Raises:
        ConfigError: The file system doesn't compare versions.
    """
    known = protocols(fs)
    for protocol, kind in _KINDS.items():
        if protocol in known:
            return kind(fs, full, url, count)
    raise ConfigError(
        f"{url} is on {known[0]}, where a file can't be replaced conditionally;"
        f" allowed: {', '.join(_KINDS)}"
    )


class S3File(ConditionalFile):
    """An object of an S3 bucket, by ``s3fs``; its version is the ETag."""

    @property
    def _place(self) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._key}

    def read(self) -> tuple[bytes, str] | None:
        """Return content and ETag, both from one response."""
        self._count("read")
        with mapped_client_errors(self.url):
            try:
                found: tuple[bytes, str] = sync(self._fs.loop, self._get)
            except FileNotFoundError:
                return None
            return found

    async def _get(self) -> tuple[bytes, str]:
        answer = await self._fs._call_s3("get_object", **self._place)
        async with answer["Body"] as body:
            return await body.read(), answer["ETag"]

    def write(self, data: bytes, version: str | None) -> str:
        """Write the object if its ETag is ``version``."""
        self._count("replace")
        condition = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}
        with mapped_client_errors(self.url), s3_conditions(self.url):
            try:
                answer = self._fs.call_s3("put_object", **self._place, Body=data, **condition)
            except FileNotFoundError as error:
                if version is None:
                    raise  # there is no such bucket
                raise AlreadyExistsError(f"{self.url} was deleted by another client") from error
        return str(answer["ETag"])


class GcsFile(ConditionalFile):
    """An object of a Google Cloud Storage bucket, by ``gcsfs``; its version is the generation."""

    def read(self) -> tuple[bytes, str] | None:
        """Return content and generation, both from one response."""
        self._count("read")
        with self._mapped():
            try:
                place = (self._bucket, self._key)
                headers, data = self._fs.call("GET", "b/{}/o/{}", *place, alt="media")
            except FileNotFoundError:
                return None
            return bytes(data), str(headers["x-goog-generation"])

    def write(self, data: bytes, version: str | None) -> str:
        """Write the object if its generation is ``version``."""
        self._count("replace")
        with self._mapped():
            answer = self._fs.call(
                "POST",
                # Uploads go to another URL than the other requests.
                self._fs.base.replace("/storage/v1/", "/upload/storage/v1/") + "b/{}/o",
                self._bucket,
                uploadType="media",
                name=self._key,
                ifGenerationMatch="0" if version is None else version,
                headers={"Content-Type": "application/json"},
                data=data,
                json_out=True,
            )
        return str(answer["generation"])

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        with mapped_client_errors(self.url):
            try:
                yield
            except FileExistsError as error:
                raise AlreadyExistsError(f"{self.url} was written by another client") from error


@contextmanager
def s3_conditions(url: str) -> Iterator[None]:
    """Turn S3's answer that a condition failed into ``AlreadyExistsError``."""
    try:
        yield
    except OSError as error:
        if isinstance(error, FileExistsError) or http_status(error) == _CONDITION_FAILED:
            raise AlreadyExistsError(f"{url} was written by another client") from error
        raise


def http_status(error: OSError) -> int | None:
    """Return the HTTP status in botocore's error that an error of s3fs stands for."""
    status = s3_response(error).get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status if isinstance(status, int) else None


_KINDS: Final[Mapping[str, type[S3File] | type[GcsFile]]] = {"s3": S3File, "gs": GcsFile}
"""Protocol in fsspec → the kind of its objects."""


def protocols(fs: Any) -> tuple[str, ...]:
    """Return the protocols of a file system of fsspec, the preferred one first."""
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)


Create = Callable[[str, bytes], None]
"""Creates the file at a path with this content; a taken name is a ``FileExistsError``."""

_PROBE_FOLDER: Final = ".hoodie/.temp"
_ALLOWED: Final = "a local path, s3, gs, abfs, memory"

_ONE_CREATOR: Final = threading.Lock()
"""fsspec's memory file system checks, then writes; this lock makes it one step in a process."""
_PROBED: Final[dict[str, bool]] = {}
"""Endpoint of S3 → whether it creates exclusively."""
_PROBING: Final = threading.Lock()
"""Guards ``_PROBED``; held during the probe, so that an endpoint is probed once."""


def exclusive_create(
    fs: Any, root: str, base_path: str, *, is_only_creator: bool, count: Callable[[str, int], None]
) -> Create:
    """Return the function that creates a file of a file system exclusively.

    Args:
        fs: The file system of fsspec.
        root: The table's path in it.
        base_path: The table's URL, for messages.
        is_only_creator: Whether nobody else creates files, so that it is safe to check and then
            write.
        count: Counts calls by kind; for those of the probe.

    Raises:
        ConfigError: The file system can't create exclusively, and there may be other creators.
        StorageUnavailableError: The endpoint couldn't be probed.
    """
    known = set(protocols(fs))
    if "memory" in known:
        return _one_at_a_time(fs)
    if "file" in known:
        return _create_local
    if known & {"gs", "gcs", "abfs", "az"}:
        return lambda full, data: fs.pipe_file(full, data, mode="create")
    if known & {"s3", "s3a"} and creates_exclusively(fs, root, count):
        return _with_condition(fs)
    if is_only_creator:
        return _look_first(fs)
    what = f"the S3 endpoint {_endpoint(fs)}" if known & {"s3", "s3a"} else protocols(fs)[0]
    raise ConfigError(
        f"{base_path} is on {what}, which can't create a file exclusively: a writer could"
        f" overwrite another one's commit; allowed: {_ALLOWED}",
        hint="or set hoodie.write.lock.provider, by which all writers of the table exclude each"
        " other",
    )


def _one_at_a_time(fs: Any) -> Create:
    def create(full: str, data: bytes) -> None:
        with _ONE_CREATOR:
            fs.pipe_file(full, data, mode="create")

    return create


def _create_local(full: str, data: bytes) -> None:
    if data:
        local_files.link_new(full, None, data)
    else:
        os.close(local_files.open_new(full, None))
    local_files.flush_folder_of(full, None)


def _with_condition(fs: Any) -> Create:
    def create(full: str, data: bytes) -> None:
        with s3_conditions(full):
            fs.pipe_file(full, data, mode="create")

    return create


def _look_first(fs: Any) -> Create:
    def create(full: str, data: bytes) -> None:
        fs.invalidate_cache(full.rpartition("/")[0])
        if fs.exists(full):
            raise FileExistsError(full)
        fs.pipe_file(full, data)

    return create


def _endpoint(fs: Any) -> str:
    return str(fs.endpoint_url or fs.client_kwargs.get("endpoint_url") or "of AWS")


def creates_exclusively(fs: Any, root: str, count: Callable[[str, int], None]) -> bool:
    """Return whether an S3 endpoint refuses to create a file a second time.

    Each endpoint is probed once per process.

    Args:
        fs: The file system of s3fs.
        root: The table's path in it.
        count: Counts the calls of the probe by kind.
    """
    endpoint = _endpoint(fs)
    with _PROBING:
        if endpoint not in _PROBED:
            _PROBED[endpoint] = _second_create_fails(fs, root, count)
        return _PROBED[endpoint]


def _second_create_fails(fs: Any, root: str, count: Callable[[str, int], None]) -> bool:
    full = f"{root}/{_PROBE_FOLDER}/exclusive-create-{uuid.uuid4()}"
    create = _with_condition(fs)
    try:
        for content in (b"1", b"2"):
            count("create", 1)
            create(full, content)
    except AlreadyExistsError:
        # The name is new: if the first create is refused, s3fs sent it again after a lost response.
        return True
    finally:
        count("delete", 1)
        fs.rm_file(full)
    return False
