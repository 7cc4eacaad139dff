"""``TableConfig``: a table's properties with typed access.

``hoodie.table.checksum`` is the CRC-32 of ``<database>.<table>``, decimal. A file that has it must
have the right one. ``timeline.table.config_file`` reads and writes the file.

Source: Hudi 1.2.0 ``HoodieTableConfig``.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from timeline.clock import LOCAL, UTC
from timeline.encoding.java_properties import format_properties, parse_properties
from timeline.errors import CorruptMetadataError, UnsupportedTableError
from timeline.storage.base import checked_path
from timeline.table import property_name as names

META_FOLDER: Final = ".hoodie"
CONFIG_PATH: Final = f"{META_FOLDER}/hoodie.properties"


@dataclass(frozen=True)
class TableConfig:
    """A table's properties, with typed access to those that matter here.

    Attributes:
        properties: The properties as written, unknown ones included.
    """

    properties: Mapping[str, str]

    @classmethod
    def parse(cls, data: bytes, path: str = CONFIG_PATH) -> TableConfig:
        """Read the content of ``hoodie.properties``.

        Raises:
            CorruptMetadataError: It isn't properties text, names no table, or its checksum is
                wrong.
        """
        try:
            properties = parse_properties(data)
        except ValueError as exc:
            raise CorruptMetadataError(f"{path} is not properties text: {exc}") from exc
        config = cls(properties)
        if not properties.get(names.NAME):
            raise CorruptMetadataError(f"{path} ({len(data)} bytes) has no {names.NAME}")
        stored, right = properties.get(names.CHECKSUM), config.checksum
        if stored is not None and stored != right:
            raise CorruptMetadataError(
                f"{path} has {names.CHECKSUM}={stored:.100};"
                f" for {config.database:.100}.{config.name:.100} it is {right}"
            )
        return config

    @classmethod
    def create(
        cls,
        *,
        name: str,
        version: int = 9,
        table_type: str = names.COPY_ON_WRITE,
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
        """Return the properties of a new table: all those that Hudi's writers of this version set.

        Without ``merge_mode`` records merge by event time if there are ordering fields, else by
        commit time; the key generator follows from the number of key and partition fields.

        Raises:
            ConfigError: A value isn't allowed.
        """
        mode = merge_mode or (names.EVENT_TIME if ordering_fields else names.COMMIT_TIME)
        generator = key_generator_type or _key_generator_for(record_key_fields, partition_fields)
        names.check_new(name, version, table_type, mode, generator, timezone)
        properties = {
            names.NAME: name,
            names.TYPE: table_type,
            names.VERSION: str(version),
            names.TIMEZONE: timezone,
            **names.CONSTANT,
            **names.of_version(version, mode, generator, ",".join(ordering_fields)),
            names.RECORD_KEY_FIELDS: ",".join(record_key_fields),
            names.PARTITION_FIELDS: ",".join(partition_fields),
            names.HIVE_STYLE: _text(hive_style),
            names.URL_ENCODE: _text(url_encode),
            names.DATABASE: database,
        }
        config = cls({key: value for key, value in properties.items() if value})
        return config.with_properties({names.CHECKSUM: config.checksum})

    def to_bytes(self) -> bytes:
        """Return the content of ``hoodie.properties``, with the right checksum."""
        return format_properties({**self.properties, names.CHECKSUM: self.checksum}, "Strandline")

    def with_properties(self, changes: Mapping[str, str | None]) -> TableConfig:
        """Return these properties with some changed, or removed where the value is ``None``."""
        changed = {**self.properties, **changes}
        return TableConfig({key: value for key, value in changed.items() if value is not None})

    def without_metadata_table(self) -> TableConfig:
        """Return these properties without a metadata table and without index definitions.

        As Hudi's ``clearMetadataPartitions`` does, the lists of partitions stay, empty.
        """
        return self.with_properties(
            {
                names.METADATA_PARTITIONS: "",
                names.METADATA_PARTITIONS_INFLIGHT: "",
                names.INDEX_DEFINITIONS: None,
            }
        )

    @property
    def name(self) -> str:
        """The table's name."""
        return self.properties[names.NAME]

    @property
    def database(self) -> str:
        """The database's name, often empty."""
        return self.properties.get(names.DATABASE, "")

    @property
    def checksum(self) -> str:
        """The right checksum; it covers the names of database and table only."""
        return str(zlib.crc32(f"{self.database}.{self.properties.get(names.NAME, '')}".encode()))

    @property
    def table_type(self) -> str:
        """``COPY_ON_WRITE`` or ``MERGE_ON_READ``."""
        return self.properties.get(names.TYPE, names.COPY_ON_WRITE)

    @property
    def version(self) -> int:
        """The table version: 6 (Hudi 0.14, 0.15), 8 (1.0), 9 (1.1, 1.2)."""
        return self._int(names.VERSION)

    @property
    def layout_version(self) -> int:
        """The timeline layout: 1 or 2."""
        return self._int(names.LAYOUT_VERSION)

    @property
    def record_key_fields(self) -> tuple[str, ...]:
        """Columns of the record key; empty if keys are generated."""
        return self._fields(names.RECORD_KEY_FIELDS)

    @property
    def partition_fields(self) -> tuple[str, ...]:
        """Columns of the partition path, without a custom key generator's ``:SIMPLE``."""
        return tuple(field.partition(":")[0] for field in self._fields(names.PARTITION_FIELDS))

    @property
    def ordering_fields(self) -> tuple[str, ...]:
        """Columns that decide which of two records with the same key is newer."""
        return self._fields(names.ORDERING_FIELDS) or self._fields(names.PRECOMBINE_FIELD)

    @property
    def record_merge_mode(self) -> str:
        """``EVENT_TIME_ORDERING``, ``COMMIT_TIME_ORDERING`` or ``CUSTOM``."""
        mode = self.properties.get(names.MERGE_MODE)
        if mode is not None:
            return mode.upper()
        # Version 6 has no merge mode; its payload class decides.
        payload = self.properties.get(names.PAYLOAD_CLASS)
        if payload is not None:
            return names.MODE_OF_PAYLOAD.get(payload, names.CUSTOM)
        return names.EVENT_TIME if self.ordering_fields else names.COMMIT_TIME

    @property
    def names_merge_mode(self) -> bool:
        """Whether the properties determine the merge mode.

        In a copy-on-write table of Hudi 0.x they don't: each writer sets its own payload class.
        """
        return names.MERGE_MODE in self.properties or names.PAYLOAD_CLASS in self.properties

    @property
    def key_generator_type(self) -> str:
        """``SIMPLE``, ``COMPLEX``, ``NON_PARTITION``, ``TIMESTAMP``, ``CUSTOM``, ..."""
        kind = self.properties.get(names.KEY_GENERATOR_TYPE)
        if kind is not None:
            return kind.upper()
        simple_name = self.properties.get(names.KEY_GENERATOR_CLASS, "").rpartition(".")[2]
        simple_name = simple_name.replace("AvroKeyGenerator", "KeyGenerator")
        if simple_name:
            return names.TYPE_OF_KEY_GENERATOR.get(simple_name, names.CUSTOM)
        return _key_generator_for(self.record_key_fields, self.partition_fields)

    @property
    def hive_style_partitioning(self) -> bool:
        """Whether a partition path's segments are ``field=value``."""
        return self._flag(names.HIVE_STYLE, default=False)

    @property
    def url_encode_partitioning(self) -> bool:
        """Whether values in partition paths are ``%XX``-encoded."""
        return self._flag(names.URL_ENCODE, default=False)

    @property
    def may_slash_dates(self) -> bool:
        """Whether paths may have ``/`` where the one partition column has ``-``.

        With hive-style partitioning only the paths show it.
        """
        if len(self.partition_fields) != 1 or self.key_generator_type not in ("SIMPLE", "COMPLEX"):
            return False
        return self.slash_separated_dates or self.hive_style_partitioning

    @property
    def slash_separated_dates(self) -> bool:
        """Whether the properties imply ``slash.separated.date.partitioning``.

        Hudi's data source stores not the option, but the extractor class that follows from it; with
        hive-style partitioning it doesn't store that class either.

        Source: Hudi 1.2.0 ``HoodieTableConfigUtils.getPartitionValueExtractorClass``.
        """
        extractor = self.properties.get(names.PARTITION_EXTRACTOR, "").rpartition(".")[2]
        return self._flag(names.SLASHED_DATES, default=False) or extractor == names.DAY_EXTRACTOR

    @property
    def timezone(self) -> str:
        """The zone of the instants' times: ``UTC`` or ``LOCAL``."""
        return self.properties.get(names.TIMEZONE, LOCAL).upper()

    @property
    def base_file_extension(self) -> str:
        """Extension of base files, with its dot."""
        return "." + self.properties.get(names.BASE_FILE_FORMAT, "PARQUET").lower()

    @property
    def base_extensions(self) -> tuple[str, ...]:
        """Extensions that the table's base files may have, with their dots."""
        if self.properties.get(names.MULTIPLE_FORMATS, "false").lower() == "true":
            return (".parquet", ".orc", ".hfile")
        return (self.base_file_extension,)

    @property
    def metadata_partitions(self) -> tuple[str, ...]:
        """Usable partitions of the metadata table; empty if there is no metadata table."""
        return self._fields(names.METADATA_PARTITIONS)

    @property
    def named_metadata_partitions(self) -> tuple[str, ...]:
        """All partitions of the metadata table, with those that an indexer is building."""
        building = self._fields(names.METADATA_PARTITIONS_INFLIGHT)
        return tuple(dict.fromkeys((*self.metadata_partitions, *building)))

    @property
    def populate_meta_fields(self) -> bool:
        """Whether records carry Hudi's five meta columns."""
        return self._flag(names.POPULATE_META_FIELDS, default=True)

    @property
    def drops_partition_columns(self) -> bool:
        """Whether base files lack the partition columns, which are then strings, in paths only."""
        return self.properties.get(names.DROPS_PARTITION_COLUMNS, "").strip().lower() == "true"

    @property
    def has_change_data(self) -> bool:
        """Whether writers also write change-data logs (``cdc.enabled``)."""
        return self._flag(names.CHANGE_DATA, default=False)

    @property
    def timeline_folder(self) -> str:
        """Path of the active timeline's folder, below the base path."""
        if self.layout_version == 1:
            return META_FOLDER
        return _below(META_FOLDER, self.properties.get(names.TIMELINE_PATH, "timeline"))

    @property
    def archive_folder(self) -> str:
        """Path of the archived timeline's folder, below the base path."""
        if self.layout_version == 1:
            return _below(META_FOLDER, self.properties.get(names.ARCHIVE_FOLDER, "archived"))
        return _below(self.timeline_folder, self.properties.get(names.HISTORY_PATH, "history"))

    def _fields(self, key: str) -> tuple[str, ...]:
        fields = (field.strip() for field in self.properties.get(key, "").split(","))
        return tuple(field for field in fields if field)

    def _flag(self, key: str, *, default: bool) -> bool:
        return self.properties.get(key, _text(default)).strip().lower() == "true"

    def _int(self, key: str) -> int:
        text = self.properties.get(key, "")
        try:
            return int(text)
        except ValueError as exc:
            raise CorruptMetadataError(
                f"{CONFIG_PATH} has {key}={text[: names.SHOWN]!r}; it must be a number"
            ) from exc

    def refuse_incomplete_files(self, base_path: str) -> None:
        """Refuse a bootstrapped table, and one whose timeline or files have another format.

        Readers that treat a missing column as null would show nulls, and a rewrite would store
        them. Base files of a bootstrapped table may have only the meta columns; the others are in
        its source files.

        Raises:
            UnsupportedTableError: The message names the property.
        """
        source = self.properties.get(names.BOOTSTRAPPED, "")
        if source:
            raise UnsupportedTableError(
                f"{base_path} was bootstrapped from files elsewhere ({names.BOOTSTRAPPED}={source})"
            )
        table_format = self.properties.get(names.TABLE_FORMAT, names.NATIVE)
        if table_format != names.NATIVE:
            raise UnsupportedTableError(
                f"{base_path} has {names.TABLE_FORMAT}={table_format!r}; allowed: {names.NATIVE!r},"
                " Hudi's own",
                hint="its metadata is that format's; open it with a reader of it",
            )
        both = [name for name in self.ordering_fields if name in self.partition_fields]
        if self.drops_partition_columns and both:
            raise UnsupportedTableError(
                f"{base_path} has {names.DROPS_PARTITION_COLUMNS}=true, and orders its records by"
                f" the partition columns {both}, which its files lack"
            )


def _key_generator_for(keys: tuple[str, ...], partitions: tuple[str, ...]) -> str:
    if not partitions:
        return "NON_PARTITION"
    return "SIMPLE" if len(keys) == 1 and len(partitions) == 1 else "COMPLEX"


def _below(folder: str, name: str) -> str:
    path = f"{folder}/{name.strip('/')}" if name.strip("/") else folder
    try:
        return checked_path(path)
    except ValueError as exc:
        raise CorruptMetadataError(
            f"{CONFIG_PATH} names a folder {name[: names.SHOWN]!r}: {exc!s:.200}"
        ) from exc


def _text(flag: bool) -> str:
    return "true" if flag else "false"
