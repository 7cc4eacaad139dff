"""The file `hoodie.properties` and its backup: read, created, updated, cut off."""

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.storage.faulty_storage import Crash, Effect, Fault, FaultyStorage, distinct_calls
from tests.kit.tables import golden
from tests.timeline.table.trips import trips
from timeline.encoding.java_properties import format_properties, parse_properties
from timeline.errors import (
    ConcurrentWriteError,
    CorruptMetadataError,
    StrandlineError,
    TableNotFoundError,
    UnsupportedTableError,
)
from timeline.meta_client import TableMetaClient
from timeline.storage.base import FileKind, Storage
from timeline.storage.local import LocalStorage
from timeline.table.config import CONFIG_PATH, TableConfig
from timeline.table.config_file import BACKUP_PATH, read_table_config, write_table_config


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path / "table"))


def lines(**properties: str) -> bytes:
    named = {f"hoodie.{key.replace('_', '.')}": value for key, value in properties.items()}
    return format_properties(named, "test")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "has no hoodie.table.name"),
        (b"hoodie.table.type=COPY_ON_WRITE", "has no hoodie.table.name"),
        (b"hoodie.table.name=\\u12", "not properties text"),
        (lines(table_name="t", table_checksum="1"), "hoodie.table.checksum=1"),
    ],
)
def test_corrupt_content_is_named(storage: Storage, data: bytes, said: str) -> None:
    storage.create(CONFIG_PATH, data)
    with pytest.raises(CorruptMetadataError, match=said) as caught:
        read_table_config(storage)
    assert storage.base_path in str(caught.value)
    assert CONFIG_PATH in str(caught.value)


def test_tables_that_are_not_supported(subtests: pytest.Subtests, tmp_path: Path) -> None:
    changed = [
        ({"hoodie.table.version": None}, "has no hoodie.table.version"),
        ({"hoodie.timeline.layout.version": None}, "has no hoodie.timeline.layout.version"),
        ({"hoodie.table.version": "7"}, "version 7; supported: 6, 8, 9"),
        ({"hoodie.table.version": "10"}, "version 10; supported"),
        ({"hoodie.timeline.layout.version": "1"}, "layout 1; supported: 2"),
        ({"hoodie.table.type": "OTHER"}, "'OTHER'"),
        (
            {"hoodie.table.timeline.timezone": "Mars/Phobos"},
            "hoodie.table.timeline.timezone='Mars/Phobos'; supported: UTC, LOCAL",
        ),
        ({"hoodie.table.timeline.timezone": ""}, "timezone=''; supported"),
        (
            {"hoodie.table.base.file.format": "PARQET"},
            "hoodie.table.base.file.format='PARQET'; supported: PARQUET, ORC, HFILE, LANCE",
        ),
        ({"hoodie.table.base.file.format": "x" * 9999}, f"format='{'x' * 100}'; supported"),
    ]
    for number, (changes, said) in enumerate(changed):
        with subtests.test(changes=changes):
            storage = LocalStorage(str(tmp_path / str(number)))
            storage.create(CONFIG_PATH, trips().with_properties(changes).to_bytes())
            with pytest.raises(UnsupportedTableError, match=said):
                read_table_config(storage)


def test_a_version_that_is_no_number(storage: Storage) -> None:
    config = trips().with_properties({"hoodie.table.version": "nine"})
    storage.create(CONFIG_PATH, config.to_bytes())
    with pytest.raises(CorruptMetadataError, match="'nine'"):
        read_table_config(storage)


def test_a_folder_without_properties_is_no_table(storage: Storage) -> None:
    with pytest.raises(TableNotFoundError, match=storage.base_path):
        read_table_config(storage)


def test_a_file_without_checksum_is_accepted(storage: Storage) -> None:
    properties = dict(trips().properties)
    del properties["hoodie.table.checksum"]
    storage.create(CONFIG_PATH, format_properties(properties, "test"))
    assert read_table_config(storage).name == "trips"


def test_reading_costs_one_call(storage: Storage) -> None:
    write_table_config(storage, trips(), create=True)
    reading = LocalStorage(storage.base_path, "table")
    assert read_table_config(reading) == trips()
    assert reading.calls.snapshot() == {("read", "table"): 1}


@pytest.mark.parametrize("main", [None, b"", b"hoodie.table.name=other\nhoodie.table.checksum=1"])
def test_the_backup_is_read_where_the_file_is_missing_or_invalid(
    storage: Storage, main: bytes | None
) -> None:
    storage.create(BACKUP_PATH, trips().to_bytes())
    if main is not None:
        storage.create(CONFIG_PATH, main)
    assert read_table_config(storage) == trips()


def test_a_valid_file_is_read_before_the_backup(storage: Storage) -> None:
    storage.create(BACKUP_PATH, trips(8).to_bytes())
    storage.create(CONFIG_PATH, trips(9).to_bytes())
    assert read_table_config(storage).version == 9


WHOLE = trips().to_bytes()
CUT = [
    WHOLE[:-1],
    WHOLE[: WHOLE.index(b"hoodie.timeline.path") + len("hoodie.timeline.path=tim")],
    WHOLE[: WHOLE.index(b"hoodie.timeline.layout.version")],
    WHOLE[: WHOLE.index(b"hoodie.table.version")],
]


@pytest.mark.parametrize("main", CUT)
def test_a_complete_backup_is_read_and_restored_where_the_file_is_cut_off(
    storage: Storage, main: bytes
) -> None:
    storage.create(BACKUP_PATH, WHOLE)
    storage.create(CONFIG_PATH, main)
    assert read_table_config(storage) == trips()
    write_table_config(storage, trips(), create=False)
    assert storage.read(CONFIG_PATH, FileKind.PROPERTIES) == WHOLE
    assert storage.stat(BACKUP_PATH) is None


@pytest.mark.parametrize("backup", [None, b"", b"garbage", *CUT[:2]])
def test_a_file_without_the_last_newline_is_read_where_there_is_no_complete_backup(
    storage: Storage, backup: bytes | None
) -> None:
    storage.create(CONFIG_PATH, WHOLE[:-1])
    if backup is not None:
        storage.create(BACKUP_PATH, backup)
    assert read_table_config(storage) == trips()
    write_table_config(storage, CHANGED, create=False)
    assert read_table_config(storage) == CHANGED


def test_create_makes_the_folders(storage: LocalStorage) -> None:
    write_table_config(storage, trips(6), create=True)
    write_table_config(LocalStorage(f"{storage.base_path}/nine"), trips(9), create=True)
    assert [f.name for f in storage.list(".hoodie")] == [".temp", "archived", "hoodie.properties"]
    assert storage.stat("nine/.hoodie/timeline/history")


def test_a_table_is_created_once(storage: Storage) -> None:
    write_table_config(storage, trips(), create=True)
    with pytest.raises(ConcurrentWriteError, match="another writer created the table"):
        write_table_config(storage, trips(8), create=True)
    assert read_table_config(storage) == trips()


def test_a_create_that_an_object_store_repeats_finds_its_own_file(storage: Storage) -> None:
    # After three folders.
    repeated = FaultyStorage(storage, [Fault(4, Effect.EXISTS_AFTER)])
    write_table_config(repeated, trips(), create=True)
    assert read_table_config(storage) == trips()


def test_nothing_unsupported_is_written(storage: Storage) -> None:
    with pytest.raises(UnsupportedTableError):
        write_table_config(storage, TableConfig({"hoodie.table.name": "t"}), create=True)
    assert storage.list("") == ()


CHANGED = trips().with_properties({"hoodie.table.metadata.partitions": "files"})


def test_an_update_leaves_neither_backup_nor_checksum_file(
    storage: LocalStorage, tmp_path: Path
) -> None:
    write_table_config(storage, trips(), create=True)
    checksum = tmp_path / "table/.hoodie/.hoodie.properties.crc"
    checksum.write_bytes(b"of Java's")
    write_table_config(storage, CHANGED, create=False)
    assert read_table_config(storage) == CHANGED
    assert storage.stat(BACKUP_PATH) is None
    assert not checksum.exists()


def test_update_of_no_table(storage: Storage) -> None:
    with pytest.raises(TableNotFoundError):
        write_table_config(storage, CHANGED, create=False)


def test_update_takes_a_backup_in_place_of_a_missing_file(storage: Storage) -> None:
    storage.create(BACKUP_PATH, trips().to_bytes())
    write_table_config(storage, CHANGED, create=False)
    assert read_table_config(storage) == CHANGED
    assert storage.stat(BACKUP_PATH) is None


def test_two_updates_at_once(storage: LocalStorage) -> None:
    write_table_config(storage, trips(), create=True)

    class OtherWriterFirst(LocalStorage):
        def create(self, path: str, data: bytes = b"") -> None:
            storage.create(path, data)
            super().create(path, data)

    with pytest.raises(ConcurrentWriteError, match="backup"):
        write_table_config(OtherWriterFirst(storage.base_path), CHANGED, create=False)
    assert read_table_config(storage) == trips()


@pytest.mark.parametrize("effect", [Effect.CRASH_BEFORE, Effect.CRASH_AFTER])
def test_an_update_that_dies_anywhere_leaves_the_old_or_the_new(
    storage: LocalStorage, effect: Effect
) -> None:
    write_table_config(storage, trips(), create=True)
    whole = FaultyStorage(storage)
    write_table_config(whole, CHANGED, create=False)
    for at in distinct_calls(whole.log, effect):
        write_table_config(storage, trips(), create=False)
        with pytest.raises(Crash):
            write_table_config(FaultyStorage(storage, [Fault(at, effect)]), CHANGED, create=False)
        assert read_table_config(storage) in (trips(), CHANGED)
        write_table_config(storage, CHANGED, create=False)
        assert read_table_config(storage) == CHANGED
        assert storage.stat(BACKUP_PATH) is None


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        config = TableConfig.parse(data)
    except CorruptMetadataError:
        return
    assert config.name


@pytest.mark.parametrize("scenario", golden.scenarios())
def test_the_properties_of_golden_tables_are_read(scenario: str) -> None:
    info = golden.info(scenario)
    options = info["write_conf"]
    for step in golden.steps(scenario):
        data = golden.contents(scenario, step)[CONFIG_PATH]
        assert data.endswith(b"\n")  # else a backup beside it would be read
        config = TableConfig.parse(data)
        assert TableConfig.parse(config.to_bytes()) == config
        assert config.properties == parse_properties(config.to_bytes())
        assert config.properties["hoodie.table.checksum"] == config.checksum
        assert config.version == info["table_version"]
        assert config.name == options["hoodie.table.name"]
        assert config.table_type == options["hoodie.datasource.write.table.type"]
        assert (
            ",".join(config.record_key_fields) == options["hoodie.datasource.write.recordkey.field"]
        )
        assert config.ordering_fields == ("ts",)
        assert config.timezone == "LOCAL"
        assert bool(config.metadata_partitions) == info["metadata_table"]


def test_zones_and_formats_in_any_case(subtests: pytest.Subtests, tmp_path: Path) -> None:
    zones, formats = ["UTC", "utc", "LOCAL", None], ["PARQUET", "parquet", "ORC", None]
    for number, (zone, kind) in enumerate(product(zones, formats)):
        with subtests.test(zone=zone, kind=kind):
            changes = {
                "hoodie.table.timeline.timezone": zone,
                "hoodie.table.base.file.format": kind,
            }
            storage = LocalStorage(str(tmp_path / str(number)))
            storage.create(CONFIG_PATH, trips().with_properties(changes).to_bytes())
            config = read_table_config(storage)
            assert config.timezone == (zone or "LOCAL").upper()
            assert config.base_file_extension == f".{(kind or 'parquet').lower()}"


def test_a_message_shows_part_of_a_long_value(subtests: pytest.Subtests, tmp_path: Path) -> None:
    keys = [
        "hoodie.table.version",
        "hoodie.timeline.layout.version",
        "hoodie.table.type",
        "hoodie.table.checksum",
        "hoodie.table.timeline.timezone",
        "hoodie.table.base.file.format",
        "hoodie.timeline.path",
    ]
    values = ["x" * 100_000, "7" * 4000, "../" * 1000, "\\uZZ" * 1000]
    for number, (key, value) in enumerate(product(keys, values)):
        with subtests.test(key=key, value=value):
            data = trips().to_bytes() + f"{key}={value}\n".encode()
            storage = LocalStorage(str(tmp_path / str(number)))
            storage.create(CONFIG_PATH, data)
            with pytest.raises(StrandlineError) as refused:
                TableMetaClient.open(storage).active_timeline()
            assert len(refused.value.message) < 1000
