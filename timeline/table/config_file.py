"""The file ``hoodie.properties``: reading it, and changing it so that no crash loses it.

The file is replaced as a whole. During a change ``hoodie.properties.backup`` holds the old content;
readers use it if the file is missing or incomplete, and the next writer restores the file from it.

Source: Hudi 1.2.0 ``HoodieTableConfig``.
"""

from __future__ import annotations

from typing import Final

from timeline.clock import LOCAL, UTC
from timeline.errors import (
    AlreadyExistsError,
    BucketNotFoundError,
    ConcurrentWriteError,
    CorruptMetadataError,
    PathNotFoundError,
    TableNotFoundError,
    UnsupportedTableError,
)
from timeline.storage.base import FileKind, Storage
from timeline.table.config import CONFIG_PATH, META_FOLDER, TableConfig
from timeline.table.property_name import (
    BASE_FILE_FORMAT,
    BASE_FILE_FORMATS,
    COPY_ON_WRITE,
    LAYOUT_VERSION,
    MERGE_ON_READ,
    SHOWN,
    TIMEZONE,
    VERSION,
    VERSIONS,
    listed,
)

BACKUP_PATH: Final = f"{CONFIG_PATH}.backup"


def read_table_config(storage: Storage) -> TableConfig:
    """Read a table's properties, from the backup if the file itself is missing or incomplete.

    A file that is cut off may still be valid. Whether it is complete matters only if there is a
    complete backup: a file edited by hand may lack the newline at its end.

    Raises:
        TableNotFoundError: Neither file exists.
        CorruptMetadataError: Neither file is valid, or a folder in it lies outside the table.
        UnsupportedTableError: The table's version, layout, type, time zone or base format isn't
            supported.

    Cost: one read; two if the file is missing or incomplete.
    """
    return supported(_newest_valid(storage), storage.base_path)


def write_table_config(storage: Storage, config: TableConfig, *, create: bool) -> None:
    """Write a table's properties.

    Args:
        storage: The table's storage.
        config: What to write.
        create: Whether this makes a new table; else it changes an existing one.

    Raises:
        TableNotFoundError: The table to be changed doesn't exist.
        ConcurrentWriteError: The table to be created exists, or another writer is changing the
            properties.
        CorruptMetadataError: The file doesn't read back as written.
    """
    supported(config, storage.base_path)
    if create:
        # Folders first, as in Hudi: a table without them is refused.
        for folder in (config.timeline_folder, config.archive_folder, f"{META_FOLDER}/.temp"):
            storage.make_dir(folder)
        # This exclusive create decides which of two writers makes the table.
        _create(storage, config.to_bytes())
        return
    # A dead writer's backup would make every later create below fail.
    _recover(storage)
    old = read_table_config(storage)
    try:
        # Java's readers use the backup if the file is incomplete. Here the file is replaced
        # atomically; the exclusive create of the backup excludes a second writer.
        storage.create(BACKUP_PATH, old.to_bytes())
    except AlreadyExistsError as exc:
        raise ConcurrentWriteError(
            f"{BACKUP_PATH} of {storage.base_path} exists: another writer changes the properties"
        ) from exc
    data = config.to_bytes()
    storage.replace(CONFIG_PATH, data)
    # Read back as in Hudi; until that succeeds, the backup stays.
    if storage.read(CONFIG_PATH, FileKind.PROPERTIES) != data:
        raise CorruptMetadataError(f"{CONFIG_PATH} of {storage.base_path} is not what was written")
    storage.delete(BACKUP_PATH)


def _create(storage: Storage, data: bytes) -> None:
    try:
        storage.create(CONFIG_PATH, data)
    except AlreadyExistsError as exc:
        # An object store's client repeats a request whose response was lost, and then finds its own
        # file.
        if storage.read(CONFIG_PATH, FileKind.PROPERTIES) != data:
            raise ConcurrentWriteError(
                f"{CONFIG_PATH} of {storage.base_path} exists: another writer created the table",
                hint="repeat the write, which then writes to that table",
            ) from exc


def _newest_valid(storage: Storage) -> TableConfig:
    failure: CorruptMetadataError | None = None
    incomplete: list[TableConfig] = []
    # Java deletes the file before it writes the new one: in between there is only the backup.
    for path in (CONFIG_PATH, BACKUP_PATH):
        try:
            data = storage.read(path, FileKind.PROPERTIES)
            config = TableConfig.parse(data, path)
        except BucketNotFoundError as exc:
            raise TableNotFoundError(
                f"no table at {storage.base_path}: {exc.message}", hint=exc.hint
            ) from exc
        except PathNotFoundError:
            continue
        except CorruptMetadataError as exc:
            failure = failure or exc
            continue
        if _is_complete(data, config):
            return config
        incomplete.append(config)
    if incomplete:
        return incomplete[0]
    if failure is not None:
        raise CorruptMetadataError(
            f"{storage.base_path}: {failure.message}", hint="and there is no valid backup beside it"
        ) from failure
    raise TableNotFoundError(f"no table at {storage.base_path}: it has no {CONFIG_PATH}")


def supported(config: TableConfig, base_path: str) -> TableConfig:
    """Return a table's properties if this package supports such tables.

    Raises:
        UnsupportedTableError: The table's version, layout, type, time zone or base format isn't
            supported; the message names the property.
        CorruptMetadataError: A folder in it lies outside the table.
    """
    for key in (VERSION, LAYOUT_VERSION):
        if key not in config.properties:
            raise UnsupportedTableError(f"{CONFIG_PATH} of {base_path} has no {key}")
    version, layout = config.version, config.layout_version
    if version not in VERSIONS:
        raise UnsupportedTableError(
            f"table {base_path} has version {version!s:.100}; supported: {listed(VERSIONS)}"
        )
    supported_layout = 1 if version < 8 else 2
    if layout != supported_layout:
        raise UnsupportedTableError(
            f"table {base_path} of version {version} has timeline layout {layout!s:.100};"
            f" supported: {supported_layout}"
        )
    if config.table_type not in (COPY_ON_WRITE, MERGE_ON_READ):
        raise UnsupportedTableError(
            f"table {base_path} has type {config.table_type[:SHOWN]!r};"
            f" supported: {COPY_ON_WRITE}, {MERGE_ON_READ}"
        )
    # In another zone times would be wrong, and with another extension the table would look empty.
    for key, value, allowed in (
        (TIMEZONE, config.timezone, (UTC, LOCAL)),
        (BASE_FILE_FORMAT, config.base_file_extension[1:].upper(), BASE_FILE_FORMATS),
    ):
        if value not in allowed:
            raise UnsupportedTableError(
                f"{CONFIG_PATH} of {base_path} has {key}={config.properties[key][:SHOWN]!r};"
                f" supported: {listed(allowed)}"
            )
    _ = config.archive_folder  # raises if it or the timeline's folder lies outside the table
    return config


def _recover(storage: Storage) -> None:
    """Finish or undo a change whose writer died midway."""
    try:
        backup = storage.read(BACKUP_PATH, FileKind.PROPERTIES)
    except PathNotFoundError:
        return
    try:
        main = storage.read(CONFIG_PATH, FileKind.PROPERTIES)
    except PathNotFoundError:
        main = b""
    current, old = _parsed(main), _parsed(backup)
    if current is None or not _is_complete(main, current):
        if current is None and old is None:
            TableConfig.parse(backup, BACKUP_PATH)  # raises: then neither can be trusted
        if current is None or (old is not None and _is_complete(backup, old)):
            storage.replace(CONFIG_PATH, backup)
    # The file is valid by now, with the old content or the new, so the backup isn't needed.
    storage.delete(BACKUP_PATH)


def _parsed(data: bytes) -> TableConfig | None:
    try:
        return TableConfig.parse(data)
    except CorruptMetadataError:
        return None


def _is_complete(data: bytes, config: TableConfig) -> bool:
    """Whether a valid file isn't cut off: Hudi's writers and this one end the last line, too."""
    return data.endswith(b"\n") and {VERSION, LAYOUT_VERSION} <= config.properties.keys()
