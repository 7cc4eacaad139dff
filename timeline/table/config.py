"""``hoodie.properties``: what a table is, and how that file is changed without being lost.

The file is replaced as a whole. While a change is under way ``hoodie.properties.backup`` holds the
old content; a reader takes it when the file is missing or invalid, and the next writer puts things
right. ``hoodie.table.checksum`` is the CRC-32 of ``<database>.<table>``, decimal: where it is there
it must hold.

Source: Hudi 1.2.0 ``HoodieTableConfig``.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from timeline.clock import LOCAL, UTC
from timeline.encoding.java_properties import format_properties, parse_properties
from timeline.errors import (
    AlreadyExistsError,
    ConcurrentWriteError,
    CorruptMetadataError,
    PathNotFoundError,
    TableNotFoundError,
    UnsupportedTableError,
)
from timeline.storage.base import Storage, checked_path
from timeline.storage.read_limits import FileKind
from timeline.table.property_name import (
    ARCHIVE_FOLDER,
    BASE_FILE_FORMAT,
    CHECKSUM,
    COMMIT_TIME,
    COPY_ON_WRITE,
    CUSTOM,
    DATABASE,
    EVENT_TIME,
    HISTORY_PATH,
    HIVE_STYLE,
    KEY_GENERATOR_CLASS,
    KEY_GENERATOR_TYPE,
    LAYOUT_VERSION,
    MERGE_MODE,
    MERGE_ON_READ,
    METADATA_PARTITIONS,
    MODE_OF_PAYLOAD,
    NAME,
    ORDERING_FIELDS,
    PARTITION_FIELDS,
    PAYLOAD_CLASS,
    POPULATE_META_FIELDS,
    PRECOMBINE_FIELD,
    RECORD_KEY_FIELDS,
    TIMELINE_PATH,
    TIMEZONE,
    TYPE,
    TYPE_OF_KEY_GENERATOR,
    URL_ENCODE,
    VERSION,
    VERSIONS,
    listed,
    new_properties,
)

META_FOLDER: Final = ".hoodie"
CONFIG_PATH: Final = f"{META_FOLDER}/hoodie.properties"
BACKUP_PATH: Final = f"{META_FOLDER}/hoodie.properties.backup"


@dataclass(frozen=True)
class TableConfig:
    """A table's properties; what they say is read through the attributes.

    Attributes:
        properties: The properties as written, unknown ones included.
    """

    properties: Mapping[str, str]

    @classmethod
    def parse(cls, data: bytes, path: str = CONFIG_PATH) -> TableConfig:
        """Read the file's content.

        Raises:
            CorruptMetadataError: It isn't properties text, names no table, or its checksum is
                wrong.
        """
        try:
            properties = parse_properties(data)
        except ValueError as exc:
            raise CorruptMetadataError(f"{path} is not properties text: {exc}") from exc
        config = cls(properties)
        if not properties.get(NAME):
            raise CorruptMetadataError(f"{path} ({len(data)} bytes) has no {NAME}")
        stored, right = properties.get(CHECKSUM), config.checksum
        if stored is not None and stored != right:
            raise CorruptMetadataError(
                f"{path} has {CHECKSUM}={stored}; for {config.database}.{config.name} it is {right}"
            )
        return config

    @classmethod
    def create(
        cls,
        *,
        name: str,
        version: int = 9,
        table_type: str = COPY_ON_WRITE,
        record_key_fields: tuple[str, ...] = (),
        partition_fields: tuple[str, ...] = (),
        ordering_fields: tuple[str, ...] = (),
        hive_style: bool = False,
        url_encode: bool = False,
        database: str = "",
        merge_mode: str | None = None,
        key_generator_type: str | None = None,
        timezone: str = UTC,
    ) -> TableConfig:
        """Return the properties of a new table: all that Hudi's own writers of that version set.

        Without ``merge_mode`` records merge by event time where there are ordering fields, else by
        commit time; the key generator follows from the number of key and partition fields.

        Raises:
            ConfigError: A value that no table can have.
        """
        by_default = _key_generator_for(record_key_fields, partition_fields)
        properties = {
            **new_properties(
                name=name,
                version=version,
                table_type=table_type,
                merge_mode=merge_mode or (EVENT_TIME if ordering_fields else COMMIT_TIME),
                key_generator_type=key_generator_type or by_default,
                ordering_fields=ordering_fields,
                timezone=timezone,
            ),
            RECORD_KEY_FIELDS: ",".join(record_key_fields),
            PARTITION_FIELDS: ",".join(partition_fields),
            HIVE_STYLE: _text(hive_style),
            URL_ENCODE: _text(url_encode),
            DATABASE: database,
        }
        config = cls({key: value for key, value in properties.items() if value})
        return config.with_properties({CHECKSUM: config.checksum})

    def to_bytes(self) -> bytes:
        """Write the properties as the file has them, with the checksum that they must have."""
        return format_properties({**self.properties, CHECKSUM: self.checksum}, "Strandline")

    def with_properties(self, changes: Mapping[str, str | None]) -> TableConfig:
        """Return these properties with some set, or taken out where the value is ``None``."""
        changed = {**self.properties, **changes}
        return TableConfig({key: value for key, value in changed.items() if value is not None})

    # What they say.

    @property
    def name(self) -> str:
        """The table's name."""
        return self.properties[NAME]

    @property
    def database(self) -> str:
        """The database's name, often empty."""
        return self.properties.get(DATABASE, "")

    @property
    def checksum(self) -> str:
        """The checksum that these properties must have: of the two names only."""
        return str(zlib.crc32(f"{self.database}.{self.properties.get(NAME, '')}".encode()))

    @property
    def table_type(self) -> str:
        """``COPY_ON_WRITE`` or ``MERGE_ON_READ``."""
        return self.properties.get(TYPE, COPY_ON_WRITE)

    @property
    def version(self) -> int:
        """The table version: 6 (Hudi 0.14, 0.15), 8 (1.0), 9 (1.1, 1.2)."""
        return self._int(VERSION)

    @property
    def layout_version(self) -> int:
        """The timeline layout: 1 or 2."""
        return self._int(LAYOUT_VERSION)

    @property
    def record_key_fields(self) -> tuple[str, ...]:
        """Columns that make the record key; none: keys are generated."""
        return self._fields(RECORD_KEY_FIELDS)

    @property
    def partition_fields(self) -> tuple[str, ...]:
        """Columns that make the partition path, without a custom key generator's ``:SIMPLE``."""
        return tuple(field.partition(":")[0] for field in self._fields(PARTITION_FIELDS))

    @property
    def ordering_fields(self) -> tuple[str, ...]:
        """Columns that say which of two records with one key is the newer."""
        return self._fields(ORDERING_FIELDS) or self._fields(PRECOMBINE_FIELD)

    @property
    def record_merge_mode(self) -> str:
        """``EVENT_TIME_ORDERING``, ``COMMIT_TIME_ORDERING`` or ``CUSTOM``.

        Version 6 has none: there the payload class decides, by default the one that overwrites.
        """
        mode = self.properties.get(MERGE_MODE)
        if mode is not None:
            return mode.upper()
        payload = self.properties.get(PAYLOAD_CLASS)
        if payload is not None:
            return MODE_OF_PAYLOAD.get(payload, CUSTOM)
        return EVENT_TIME if self.ordering_fields else COMMIT_TIME

    @property
    def key_generator_type(self) -> str:
        """``SIMPLE``, ``COMPLEX``, ``NON_PARTITION``, ``TIMESTAMP``, ``CUSTOM``, ..."""
        kind = self.properties.get(KEY_GENERATOR_TYPE)
        if kind is not None:
            return kind.upper()
        named = self.properties.get(KEY_GENERATOR_CLASS, "").rpartition(".")[2]
        named = named.replace("AvroKeyGenerator", "KeyGenerator")
        if named:
            return TYPE_OF_KEY_GENERATOR.get(named, CUSTOM)
        return _key_generator_for(self.record_key_fields, self.partition_fields)

    @property
    def hive_style_partitioning(self) -> bool:
        """Whether a partition path's segments are ``field=value``."""
        return self._flag(HIVE_STYLE, default=False)

    @property
    def url_encode_partitioning(self) -> bool:
        """Whether values in partition paths are ``%XX``-encoded."""
        return self._flag(URL_ENCODE, default=False)

    @property
    def timezone(self) -> str:
        """The zone of the instants' times: ``UTC`` or ``LOCAL``."""
        return self.properties.get(TIMEZONE, LOCAL).upper()

    @property
    def base_file_extension(self) -> str:
        """Extension of base files, with its dot."""
        return "." + self.properties.get(BASE_FILE_FORMAT, "PARQUET").lower()

    @property
    def metadata_partitions(self) -> tuple[str, ...]:
        """Partitions of the metadata table that readers use; none: there is no metadata table."""
        return self._fields(METADATA_PARTITIONS)

    @property
    def populate_meta_fields(self) -> bool:
        """Whether records carry Hudi's five meta columns."""
        return self._flag(POPULATE_META_FIELDS, default=True)

    @property
    def has_change_data(self) -> bool:
        """Whether writers keep change-data logs beside what they write (``cdc.enabled``)."""
        return self._flag("hoodie.table.cdc.enabled", default=False)

    @property
    def timeline_folder(self) -> str:
        """Path of the active timeline's folder, below the base path."""
        if self.layout_version == 1:
            return META_FOLDER
        return _below(META_FOLDER, self.properties.get(TIMELINE_PATH, "timeline"))

    @property
    def archive_folder(self) -> str:
        """Path of the archived timeline's folder, below the base path."""
        if self.layout_version == 1:
            return _below(META_FOLDER, self.properties.get(ARCHIVE_FOLDER, "archived"))
        return _below(self.timeline_folder, self.properties.get(HISTORY_PATH, "history"))

    def _fields(self, key: str) -> tuple[str, ...]:
        names = (name.strip() for name in self.properties.get(key, "").split(","))
        return tuple(name for name in names if name)

    def _flag(self, key: str, *, default: bool) -> bool:
        return self.properties.get(key, _text(default)).strip().lower() == "true"

    def _int(self, key: str) -> int:
        text = self.properties.get(key, "")
        try:
            return int(text)
        except ValueError as exc:
            raise CorruptMetadataError(
                f"{CONFIG_PATH} has {key}={text!r}; it must be a number"
            ) from exc


def read_table_config(storage: Storage) -> TableConfig:
    """Read a table's properties, from the backup where the file itself is missing or invalid.

    Raises:
        TableNotFoundError: There is neither.
        CorruptMetadataError: Neither is valid.
        UnsupportedTableError: The table is of a version that can't be handled.

    Cost: one read; two where the file is missing or invalid.
    """
    return _supported(_newest_valid(storage), storage.base_path)


def write_table_config(storage: Storage, config: TableConfig, *, create: bool) -> None:
    """Write a table's properties.

    Args:
        storage: The table's storage.
        config: What to write.
        create: Whether this makes a new table; else it changes one.

    Raises:
        AlreadyExistsError: The table to be created exists.
        TableNotFoundError: The table to be changed doesn't.
        ConcurrentWriteError: Somebody else is changing the properties.
        CorruptMetadataError: What was written doesn't read back.
    """
    _supported(config, storage.base_path)
    if create:
        storage.create(CONFIG_PATH, config.to_bytes())
        for folder in (config.timeline_folder, config.archive_folder, f"{META_FOLDER}/.temp"):
            storage.make_dir(folder)
        return
    _recover(storage)
    old = read_table_config(storage)
    try:
        # Java's readers take the backup when they meet the file half-way; ours is never half-way.
        storage.create(BACKUP_PATH, old.to_bytes())
    except AlreadyExistsError as exc:
        raise ConcurrentWriteError(
            f"{BACKUP_PATH} of {storage.base_path} exists: another writer is at the properties"
        ) from exc
    data = config.to_bytes()
    storage.replace(CONFIG_PATH, data)
    if storage.read(CONFIG_PATH, FileKind.PROPERTIES) != data:
        raise CorruptMetadataError(f"{CONFIG_PATH} of {storage.base_path} is not what was written")
    storage.delete(BACKUP_PATH)


def _newest_valid(storage: Storage) -> TableConfig:
    failure: CorruptMetadataError | None = None
    for path in (CONFIG_PATH, BACKUP_PATH):
        try:
            return TableConfig.parse(storage.read(path, FileKind.PROPERTIES), path)
        except PathNotFoundError:
            continue
        except CorruptMetadataError as exc:
            failure = failure or exc
    if failure is not None:
        raise CorruptMetadataError(
            f"{storage.base_path}: {failure.message}", hint="and there is no valid backup beside it"
        ) from failure
    raise TableNotFoundError(f"no table at {storage.base_path}: it has no {CONFIG_PATH}")


def _supported(config: TableConfig, base_path: str) -> TableConfig:
    for key in (VERSION, LAYOUT_VERSION):
        if key not in config.properties:
            raise UnsupportedTableError(f"{CONFIG_PATH} of {base_path} has no {key}")
    version, layout = config.version, config.layout_version
    if version not in VERSIONS:
        raise UnsupportedTableError(
            f"table {base_path} has version {version}; supported: {listed(VERSIONS)}"
        )
    if layout != _layout_of(version):
        raise UnsupportedTableError(
            f"table {base_path} of version {version} has timeline layout {layout};"
            f" supported: {_layout_of(version)}"
        )
    if config.table_type not in (COPY_ON_WRITE, MERGE_ON_READ):
        raise UnsupportedTableError(
            f"table {base_path} has type {config.table_type!r};"
            f" supported: {COPY_ON_WRITE}, {MERGE_ON_READ}"
        )
    return config


def _recover(storage: Storage) -> None:
    """Finish or undo a change that its writer left half-way."""
    try:
        backup = storage.read(BACKUP_PATH, FileKind.PROPERTIES)
    except PathNotFoundError:
        return
    try:
        TableConfig.parse(storage.read(CONFIG_PATH, FileKind.PROPERTIES))
    except (PathNotFoundError, CorruptMetadataError):
        TableConfig.parse(backup, BACKUP_PATH)  # raises: then neither is to be trusted
        storage.replace(CONFIG_PATH, backup)
    storage.delete(BACKUP_PATH)


def _key_generator_for(keys: tuple[str, ...], partitions: tuple[str, ...]) -> str:
    if not partitions:
        return "NON_PARTITION"
    return "SIMPLE" if len(keys) == 1 and len(partitions) == 1 else "COMPLEX"


def _layout_of(version: int) -> int:
    return 1 if version < 8 else 2


def _below(folder: str, name: str) -> str:
    path = f"{folder}/{name.strip('/')}" if name.strip("/") else folder
    try:
        return checked_path(path)
    except ValueError as exc:
        raise CorruptMetadataError(f"{CONFIG_PATH} names a folder {name!r}: {exc}") from exc


def _text(flag: bool) -> str:
    return "true" if flag else "false"
