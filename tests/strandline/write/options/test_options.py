"""Options that jobs bring along from Hudi: supported, refused with a reason, or harmless."""

from __future__ import annotations

import logging

import pytest

from strandline.commit.lock.settings import LOCK_ALIASES
from strandline.settings.setting import REFUSAL_CHARACTERS
from strandline.table_services.clean.policy import MAX_COMMITS, RETAINED
from strandline.write.options.client_options import (
    ALIASES,
    WRITER_SETTINGS,
    base_file_settings,
    option_warnings,
    parse_options,
)
from strandline.write.options.foreign_options import HARMLESS, REFUSED, WITHOUT_EFFECT
from strandline.write.options.settings import ORDERING
from timeline.errors import ConfigError

SUPPORTED = {setting.name for setting in WRITER_SETTINGS}

# The options of Hudi's Spark quickstart and of its guides on writing, syncing and table services,
# with the values that they have there.
COPIED = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.table.name": "trips",
    "hoodie.datasource.write.recordkey.field": "uuid",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
    "hoodie.datasource.write.hive_style_partitioning": "true",
    "hoodie.datasource.write.row.writer.enable": "true",
    "hoodie.datasource.write.reconcile.schema": "false",
    "hoodie.datasource.hive_sync.enable": "false",
    "hoodie.datasource.hive_sync.database": "default",
    "hoodie.datasource.hive_sync.table": "trips",
    "hoodie.datasource.hive_sync.mode": "hms",
    "hoodie.datasource.hive_sync.partition_fields": "city",
    "hoodie.datasource.hive_sync.support_timestamp": "true",
    "hoodie.datasource.read.streaming.skip_compaction": "true",
    "hoodie.datasource.query.type": "snapshot",
    "hoodie.upsert.shuffle.parallelism": 2,
    "hoodie.insert.shuffle.parallelism": 2,
    "hoodie.bulkinsert.shuffle.parallelism": 2,
    "hoodie.delete.shuffle.parallelism": 2,
    "hoodie.bulkinsert.sort.mode": "NONE",
    "hoodie.keep.min.commits": 20,
    "hoodie.keep.max.commits": 30,
    "hoodie.archive.async": "false",
    "hoodie.cleaner.commits.retained": 10,
    "hoodie.clean.async": "false",
    "hoodie.clustering.inline": "false",
    "hoodie.clustering.plan.strategy.sort.columns": "city",
    "hoodie.compact.inline": "false",
    "hoodie.compact.inline.max.delta.commits": 5,
    "hoodie.metadata.enable": "false",
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.simple.index.parallelism": 100,
    "hoodie.write.auto.upgrade": "false",
    "hoodie.payload.ordering.field": "ts",
}

ASKING = {
    "hoodie.datasource.hive_sync.enable": ("true", "Hudi's sync tool"),
    "hoodie.datasource.meta.sync.enable": ("true", "Hudi's sync tool"),
    "hoodie.datasource.write.insert.drop.duplicates": ("true", "use upsert"),
    "hoodie.datasource.write.partitions.to.delete": ("eu", "the method delete_partition"),
    "hoodie.keygen.datetime.parser.class": ("com.example.Parser", "derive a column"),
    "hoodie.clustering.inline": ("true", "doesn't cluster"),
    "hoodie.datasource.clustering.async.enable": ("true", "doesn't cluster"),
    "hoodie.bucket.index.partition.expressions": ("a.*,8", "the same number of buckets"),
    "hoodie.index.class": ("com.example.Index", "set hoodie.index.type"),
    "hoodie.payload.delete.field": ("op", "_hoodie_is_deleted"),
    "hoodie.metrics.on": ("true", "WriteResult"),
    "hoodie.auto.commit": ("false", "every write is committed"),
    "hoodie.table.cdc.enabled": ("true", "change data capture"),
    "hoodie.schema.on.read.enable": ("true", "the schema's history isn't kept"),
}


def test_the_options_that_jobs_copy_are_all_known(caplog):
    with caplog.at_level(logging.WARNING):
        parsed = parse_options(COPIED)
    assert not caplog.records
    assert parsed.get(ORDERING) == "ts"


def test_all_refusals_of_a_job_are_one_error():
    """A job of AWS Glue's documentation brings them; each was an error of its own (#32)."""
    job = {
        "className": "org.apache.hudi",
        "hoodie.table.name": "trips",
        "hoodie.datasource.write.operation": "bootstrap",
        "hoodie.datasource.write.recordkey.fields": "id",
        "hoodie.datasource.hive_sync.enable": "true",
        "hoodie.index.type": "RECORD_INDEX",
        "hoodie.metadata.enable": "true",
        "hoodie.cleaner.policy": "KEEP_ALL",
        "hoodie.clean.commits.retained": "3",
        "hoodie.cleaner.commits.retained": "5",
        "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
        "hoodie.parquet.max.file.size": ["1"],
    }
    with pytest.raises(ConfigError) as caught:
        parse_options(job)
    head, *lines = str(caught.value).split("\n")
    assert head == "9 refusals:"
    named = {line.split()[1] for line in lines}
    assert named == {*list(job)[2:]} - {
        "hoodie.clean.commits.retained",
        "hoodie.cleaner.commits.retained",
    } | {"hoodie.clean.commits.retained"}


CONTRADICTIONS = {
    "hoodie.clean.commits.retained is '3' and hoodie.cleaner.commits.retained is '5'": {
        "hoodie.clean.commits.retained": "3",
        "hoodie.cleaner.commits.retained": "5",
    },
    "hoodie.parquet.max.file.size is 1000 and hoodie.parquet.small.file.limit is 2000": {
        "hoodie.parquet.max.file.size": "1000",
        "hoodie.parquet.small.file.limit": "2000",
    },
    "hoodie.bucket.index.num.buckets is 4 and hoodie.index.type is SIMPLE": {
        "hoodie.bucket.index.num.buckets": "4",
        "hoodie.index.type": "SIMPLE",
    },
    "hoodie.bucket.index.hash.field is id and hoodie.index.type is GLOBAL_BLOOM": {
        "hoodie.bucket.index.hash.field": "id",
        "hoodie.index.type": "GLOBAL_BLOOM",
    },
    "hoodie.datasource.write.keygenerator.type is SIMPLE and": {
        "hoodie.datasource.write.keygenerator.type": "SIMPLE",
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.ComplexKeyGenerator",
    },
    "hoodie.record.merge.mode is EVENT_TIME_ORDERING and": {
        "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
        "hoodie.compaction.payload.class": (
            "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"
        ),
    },
}


@pytest.mark.parametrize("message", CONTRADICTIONS)
def test_options_that_contradict_each_other_are_refused(message):
    """Whatever two options say of one thing (#32)."""
    with pytest.raises(ConfigError) as caught:
        parse_options(CONTRADICTIONS[message])
    assert str(caught.value).startswith(message)


def test_options_that_say_the_same_agree():
    """``True`` and ``true`` are one value, as are two names that say it (#32)."""
    parsed = parse_options(
        {
            "hoodie.clean.commits.retained": 3,
            "hoodie.cleaner.commits.retained": " 3",
            "hoodie.clean.max.commits": "7",
            "hoodie.parquet.max.file.size": "1000",
            "hoodie.bucket.index.num.buckets": "4",
        }
    )
    assert (parsed.get(RETAINED), parsed.get(MAX_COMMITS)) == (3, 7)


@pytest.mark.parametrize("entry", WITHOUT_EFFECT, ids=lambda entry: entry.names[0])
def test_options_whose_effect_is_missing_warn_unless_they_ask_nothing(entry):
    for name in entry.names:
        assert option_warnings(parse_options({name: "7"})) == (f"ignored {name}: {entry.reason}",)
        assert all(not option_warnings(parse_options({name: v})) for v in entry.asks_nothing)


def test_what_the_writer_does_not_do_is_refused_with_the_reason(subtests):
    for name in ASKING:
        with subtests.test(name=name):
            value, reason = ASKING[name]
            with pytest.raises(ConfigError) as caught:
                parse_options({name: value})
            assert str(caught.value).startswith(f"{name} is {value!r}; refused: ")
            assert reason in str(caught.value)


MISSPELT = [
    (
        "hoodie.datasource.write.partitionpath.fields",
        "hoodie.datasource.write.partitionpath.field",
    ),
    ("hoodie.datasource.write.recordkey.fields", "hoodie.datasource.write.recordkey.field"),
    ("hoodie.datasource.write.recordKey.field", "hoodie.datasource.write.recordkey.field"),
    ("hoodie.datasource.write.recordkey.feild", "hoodie.datasource.write.recordkey.field"),
    ("hoodie.datasource.write.precombine.fields", "hoodie.datasource.write.precombine.field"),
    ("hoodie.table.ordering.field", "hoodie.table.ordering.fields"),
    ("hodie.table.name", "hoodie.table.name"),
    ("hoodie.metadata.enabled", "hoodie.metadata.enable"),
    ("hoodie.datasource.write.operations", "hoodie.datasource.write.operation"),
    ("hoodie.cleaner.commit.retained", "hoodie.cleaner.commits.retained"),
    ("strandline.view.retained.snapshot", "strandline.view.retained.snapshots"),
    ("strandline.servce", "strandline.service.tls"),
    ("strandline.write.max.rows", "strandline.write.driver.max.rows"),
]


def test_a_misspelt_name_is_refused_with_the_right_one(subtests):
    for name, right in MISSPELT:
        with subtests.test(name=name):
            with pytest.raises(ConfigError) as caught:
                parse_options({name: "x"})
            assert (
                str(caught.value)
                == f"{name} is 'x'; there is no such option; did you mean {right}?"
            )


def test_other_unknown_options_are_named_in_one_warning(caplog):
    options = {
        "hoodie.no.such": "1",
        "strandline.nor.this": "2",
        "strandline.serve.port": "2",
        "spark.sql.shuffle.partitions": "3",
        "path": "/x",
    }
    with caplog.at_level(logging.WARNING):
        parse_options(options)
    (record,) = caplog.records
    assert record.getMessage() == (
        "ignored unknown options: hoodie.no.such, strandline.nor.this, strandline.serve.port"
    )


def test_a_metadata_table_is_refused_with_what_happens_instead():
    with pytest.raises(ConfigError, match=r"allowed: false \(the timeline service lists files in"):
        parse_options({"hoodie.metadata.enable": "true"})


def test_a_refusal_fits_a_line_and_shows_no_secret():
    with pytest.raises(ConfigError) as caught:
        parse_options({"hoodie.datasource.write.operation": "x" * 5_000})
    assert len(str(caught.value)) <= REFUSAL_CHARACTERS
    with pytest.raises(ConfigError) as caught:
        parse_options({"hoodie.index.hbase.password": "s3cret"})
    assert "password is ***; refused" in str(caught.value)


def test_a_refused_value_leaves_room_for_the_name(subtests):
    for setting in WRITER_SETTINGS:
        with subtests.test(name=setting.name):
            if setting.allowed or not isinstance(setting.default, str):
                with pytest.raises(ConfigError) as caught:
                    parse_options({setting.name: "org.example." + "x" * 5_000})
                assert str(caught.value).startswith(f"{setting.name} is ")
                assert f"; allowed: {setting.describe_allowed()}" in str(caught.value)


def test_no_option_is_in_two_lists():
    lists = [
        SUPPORTED,
        {*ALIASES, *LOCK_ALIASES},
        {name for entry in REFUSED for name in entry.names},
        {name for entry in WITHOUT_EFFECT for name in entry.names},
        {name for entry in HARMLESS for name in entry.names},
    ]
    assert sum(map(len, lists)) == len(set().union(*lists))
    assert all(name.startswith("hoodie.") for names in lists[1:] for name in names)


def test_an_index_that_needs_bloom_filters_has_them(subtests):
    """As Hudi 1.2.0's ``HoodieFileWriterFactory.enableBloomFilter``."""
    for index, enabled, has_bloom in [
        ("SIMPLE", "true", True),
        ("SIMPLE", "false", False),
        ("BUCKET", "false", False),
        ("BLOOM", "false", True),
        ("GLOBAL_BLOOM", "false", True),
    ]:
        with subtests.test(index=index, enabled=enabled):
            options = {"hoodie.index.type": index, "hoodie.parquet.bloom.filter.enabled": enabled}
            assert base_file_settings(parse_options(options)).has_bloom is has_bloom
