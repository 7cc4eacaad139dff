"""The folder of a table's history: the pointer to the valid manifest, manifests, files.

``_version_`` has the number of the valid manifest, ``manifest_<V>`` names the valid files.

Source: Hudi 1.2.0 ``LSMTimeline``, ``HoodieLSMTimelineManifest``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

from timeline.encoding.json_text import loads
from timeline.errors import CorruptMetadataError, PathNotFoundError, StorageUnavailableError
from timeline.storage.base import FileKind, Storage

if TYPE_CHECKING:
    from timeline.archive.history_file import HistoryFile

T = TypeVar("T")

VERSION: Final = "_version_"
MANIFEST: Final = re.compile(r"manifest_([0-9]{1,18})")
MANIFEST_BYTES: Final = 1 << 20
"""The longest manifest that is parsed, enough for ten thousand files. Hudi's manifests list a few
dozen, as ten files of a level are merged into one of the next."""
_NUMBER: Final = re.compile(r"[0-9]{1,18}")


def valid_manifest(storage: Storage, folder: str) -> int | None:
    """Return the number of the valid manifest, ``None`` if nothing was archived yet.

    Cost: a read; a list, if there is no pointer.
    """
    try:
        data = storage.read(f"{folder}/{VERSION}", FileKind.ARCHIVE)
        text = data.decode("ascii", "replace").strip()
        if _NUMBER.fullmatch(text):
            return int(text)
    except PathNotFoundError:
        pass
    # Its writer died between manifest and pointer: the newest manifest is valid.
    names = (MANIFEST.fullmatch(entry.name) for entry in storage.list(folder))
    return max((int(match[1]) for match in names if match is not None), default=None)


def manifest_entries(
    storage: Storage, folder: str, number: int, entry_of: Callable[[Mapping[str, Any]], T]
) -> list[T]:
    """Return what a manifest says of each file, once, in its order.

    Args:
        storage: The table's storage.
        folder: The folder.
        number: The manifest's number.
        entry_of: Makes an entry, hashable, of the JSON object of a file. If it raises one of
            ``ValueError``, ``KeyError`` and ``TypeError``, the manifest is damaged.

    Raises:
        PathNotFoundError: There is no such manifest.
        CorruptMetadataError: It is damaged or too long.
    """
    path = f"{folder}/manifest_{number}"
    data = storage.read(path, FileKind.ARCHIVE)
    where = f"{storage.base_path}/{path} ({len(data)} bytes)"
    if len(data) > MANIFEST_BYTES:
        raise CorruptMetadataError(f"{where}: allowed: at most {MANIFEST_BYTES} bytes")
    try:
        return list(dict.fromkeys(entry_of(each) for each in loads(data)["files"]))
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        raise CorruptMetadataError(f"{where} is no manifest: {exc!r}") from exc


@contextmanager
def opened(storage: Storage, folder: str, name: str) -> Iterator[HistoryFile]:
    """Open a history file; name it in the errors of the block.

    Raises:
        PathNotFoundError: There is no such file.
        CorruptMetadataError: It is damaged.
        StorageUnavailableError: It can't be read.
    """
    path = f"{folder}/{name}"
    full = f"{storage.base_path}/{path}"
    # pyarrow is loaded with the first file: few processes read an archive.
    arrow: Any = import_module("pyarrow")
    files: Any = import_module("timeline.archive.history_file")
    try:
        with storage.open_input(path, FileKind.ARCHIVE) as file:
            yield files.HistoryFile(file)
    except (arrow.ArrowException, MemoryError, OSError, TypeError, ValueError) as exc:
        if isinstance(exc, OSError) and exc.errno is not None:
            raise StorageUnavailableError(f"{full}: {exc.strerror or exc}") from exc
        # Arrow reports damaged pages and lengths by the errors of a disk or of full memory.
        raise CorruptMetadataError(f"{full} is no history file: {exc}") from exc
