"""``ConditionalFile``: a small object with compare-and-set writes.

S3 compares the object's ETag (``If-Match``, ``If-None-Match``), Google Cloud Storage its
generation (``ifGenerationMatch``, 0 for an object that must not exist).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from fsspec.asyn import sync

from timeline.errors import AlreadyExistsError, ConfigError
from timeline.storage.client_error import mapped_client_errors, s3_response

if TYPE_CHECKING:
    from collections.abc import Iterator

_CONDITION_FAILED: Final = 412


class ConditionalFile(ABC):
    """An object whose version the store compares on each write; safe to use from several threads.

    Attributes:
        url: Its URL, for messages.
    """

    url: str

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

    def __init__(self, fs: Any, full: str, url: str, count: Callable[[str], None]) -> None:
        self.url = url
        self._count = count
        self._fs = fs
        bucket, key, _ = fs.split_path(full)
        self._place = {"Bucket": bucket, "Key": key}

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

    def __init__(self, fs: Any, full: str, url: str, count: Callable[[str], None]) -> None:
        self.url = url
        self._count = count
        self._fs = fs
        self._bucket, self._key, _ = fs.split_path(full)

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
