"""How a file is created exclusively on each of fsspec's file systems.

A timeline is safe only if exactly one of several writers creates an instant's file. Object stores
compare and write in one step on the server; each S3 endpoint is probed once, because some ignore
the condition. For other file systems fsspec's ``create`` mode checks first and then writes, which
doesn't exclude other writers, so they are refused unless the caller is the only creator of files.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable
from typing import Any, Final

from timeline.errors import AlreadyExistsError, ConfigError
from timeline.storage import local_files
from timeline.storage.conditional_file import protocols, s3_conditions

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
