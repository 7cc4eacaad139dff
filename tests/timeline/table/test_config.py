"""`TableConfig`: which properties a new table gets, and what follows from them."""

import zlib

import pytest

from tests.timeline.table.trips import trips
from timeline.errors import ConfigError
from timeline.table.config import TableConfig

COMMON = {
    "hoodie.table.name": "trips",
    "hoodie.table.type": "COPY_ON_WRITE",
    "hoodie.table.recordkey.fields": "id",
    "hoodie.table.partition.fields": "day",
    "hoodie.datasource.write.hive_style_partitioning": "true",
    "hoodie.datasource.write.partitionpath.urlencode": "false",
    "hoodie.datasource.write.drop.partition.columns": "false",
    "hoodie.table.timeline.timezone": "UTC",
    "hoodie.table.base.file.format": "PARQUET",
    "hoodie.populate.meta.fields": "true",
    "hoodie.partition.metafile.use.base.format": "false",
    "hoodie.table.cdc.enabled": "false",
    "hoodie.table.checksum": str(zlib.crc32(b".trips")),
}
PAYLOAD = "org.apache.hudi.common.model.DefaultHoodieRecordPayload"
V8_AND_LATER = {
    "hoodie.timeline.layout.version": "2",
    "hoodie.timeline.path": "timeline",
    "hoodie.timeline.history.path": "history",
    "hoodie.archivelog.folder": "history",
    "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
    "hoodie.table.keygenerator.type": "SIMPLE",
    "hoodie.table.format": "native",
    "hoodie.table.multiple.base.file.formats.enable": "false",
}
OF_VERSION = {
    6: {
        "hoodie.timeline.layout.version": "1",
        "hoodie.archivelog.folder": "archived",
        "hoodie.table.precombine.field": "ts",
        "hoodie.table.keygenerator.class": "org.apache.hudi.keygen.SimpleKeyGenerator",
        "hoodie.compaction.payload.class": PAYLOAD,
    },
    8: V8_AND_LATER
    | {
        "hoodie.table.initial.version": "8",
        "hoodie.table.precombine.field": "ts",
        "hoodie.compaction.payload.class": PAYLOAD,
        "hoodie.record.merge.strategy.id": "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
    },
    9: V8_AND_LATER | {"hoodie.table.initial.version": "9", "hoodie.table.ordering.fields": "ts"},
}


@pytest.mark.parametrize("version", [6, 8, 9])
def test_create_writes_the_full_set_of_its_version(version: int) -> None:
    expected = COMMON | OF_VERSION[version] | {"hoodie.table.version": str(version)}
    assert trips(version).properties == expected


@pytest.mark.parametrize("version", [6, 8, 9])
def test_what_was_created_says_what_was_asked_for(version: int) -> None:
    config = TableConfig.parse(trips(version).to_bytes())
    assert config == trips(version)
    assert (config.name, config.version, config.table_type) == ("trips", version, "COPY_ON_WRITE")
    assert config.layout_version == (1 if version == 6 else 2)
    assert config.record_key_fields == ("id",)
    assert config.partition_fields == ("day",)
    assert config.ordering_fields == ("ts",)
    assert config.record_merge_mode == "EVENT_TIME_ORDERING"
    assert config.key_generator_type == "SIMPLE"
    assert config.hive_style_partitioning
    assert not config.url_encode_partitioning
    assert config.timezone == "UTC"
    assert config.base_file_extension == ".parquet"
    assert config.metadata_partitions == ()
    assert config.populate_meta_fields


@pytest.mark.parametrize("version", [6, 8, 9])
def test_defaults_without_ordering_and_partition(version: int) -> None:
    config = TableConfig.create(name="t", version=version, record_key_fields=("a", "b"))
    assert config.record_merge_mode == "COMMIT_TIME_ORDERING"
    assert config.key_generator_type == "NON_PARTITION"
    assert config.ordering_fields == config.partition_fields == ()
    assert "" not in config.properties.values()


def test_two_keys_make_a_complex_key() -> None:
    assert trips(record_key_fields=("a", "b")).key_generator_type == "COMPLEX"


def test_checksum_is_of_both_names() -> None:
    config = trips(database="db")
    assert config.properties["hoodie.table.checksum"] == str(zlib.crc32(b"db.trips"))


def test_create_refuses_what_no_table_can_have(subtests: pytest.Subtests) -> None:
    for options, said in [
        ({"name": ""}, "hoodie.table.name"),
        ({"version": 7}, "version is 7; allowed: 6, 8, 9"),
        ({"table_type": "MOR"}, "'MOR'; allowed: COPY_ON_WRITE, MERGE_ON_READ"),
        ({"merge_mode": "CUSTOM"}, "'CUSTOM'; allowed: EVENT_TIME"),
        ({"key_generator_type": "X"}, "'X'; allowed: SIMPLE"),
        ({"timezone": "CET"}, "'CET'; allowed: UTC, LOCAL"),
    ]:
        with subtests.test(options=options), pytest.raises(ConfigError, match=said):
            trips(**options)


def test_merge_mode(subtests: pytest.Subtests) -> None:
    for properties, mode in [
        ({"hoodie.record.merge.mode": "CUSTOM"}, "CUSTOM"),
        ({"hoodie.compaction.payload.class": PAYLOAD}, "EVENT_TIME_ORDERING"),
        (
            {
                "hoodie.compaction.payload.class": PAYLOAD.replace(
                    "DefaultHoodieRecordPayload", "OverwriteWithLatestAvroPayload"
                ),
                "hoodie.table.precombine.field": "ts",
            },
            "COMMIT_TIME_ORDERING",
        ),
        ({"hoodie.compaction.payload.class": "com.example.Own"}, "CUSTOM"),
        ({"hoodie.table.ordering.fields": "ts"}, "EVENT_TIME_ORDERING"),
        ({}, "COMMIT_TIME_ORDERING"),
    ]:
        with subtests.test(properties=properties):
            assert TableConfig(properties).record_merge_mode == mode


def test_key_generator_type(subtests: pytest.Subtests) -> None:
    for properties, kind in [
        (
            {"hoodie.table.keygenerator.class": "org.apache.hudi.keygen.ComplexKeyGenerator"},
            "COMPLEX",
        ),
        (
            {"hoodie.table.keygenerator.class": "org.apache.hudi.keygen.SimpleAvroKeyGenerator"},
            "SIMPLE",
        ),
        ({"hoodie.table.keygenerator.class": "com.example.Own"}, "CUSTOM"),
        ({"hoodie.table.keygenerator.type": "timestamp"}, "TIMESTAMP"),
    ]:
        with subtests.test(properties=properties):
            assert TableConfig(properties).key_generator_type == kind


def test_custom_key_generators_partition_fields() -> None:
    config = TableConfig({"hoodie.table.partition.fields": "region:SIMPLE, ts:TIMESTAMP"})
    assert config.partition_fields == ("region", "ts")


def test_a_missing_zone_is_local() -> None:
    assert TableConfig({}).timezone == "LOCAL"
