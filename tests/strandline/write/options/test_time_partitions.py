"""Tables whose partitions are times: the key generators TIMESTAMP and CUSTOM."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.table_api.table import Table
from tests.strandline.write.refusals import refused
from tests.strandline.write.tables import SCHEMA, client, row, table
from timeline.errors import ConfigError
from timeline.storage.local import LocalStorage
from timeline.table.config_file import read_table_config

TIMES = {
    "keygen.timebased.timestamp.type": "UNIX_TIMESTAMP",
    "keygen.timebased.output.dateformat": "yyyy/MM/dd",
    "keygen.timebased.timezone": "GMT+8:00",
}
TIMESTAMP = {
    **TIMES,
    "datasource__write__partitionpath__field": "ts",
    "datasource__write__keygenerator__class": ("org.apache.hudi.keygen.TimestampBasedKeyGenerator"),
}
CUSTOM = {**TIMES, "datasource__write__partitionpath__field": "region:SIMPLE,ts:TIMESTAMP"}
ROWS = table(row("a", ts=1_700_000_000), row("b", region="us", ts=1_700_100_000))
LATER = table(row("a", ts=1_700_000_001, name="new"), row("c", ts=0))


def paths(base) -> dict[str, tuple[str, str]]:
    rows = Table(base).to_arrow(["id", "_hoodie_partition_path", "name"]).to_pylist()
    return {each["id"]: (each["_hoodie_partition_path"], each["name"]) for each in rows}


def test_a_table_keeps_how_times_become_partitions(tmp_path):
    base = tmp_path / "t"
    with client(base, **TIMESTAMP) as c:
        c.upsert(ROWS)
    properties = read_table_config(LocalStorage(str(base))).properties
    assert properties["hoodie.table.keygenerator.type"] == "TIMESTAMP"
    assert properties["hoodie.table.partition.fields"] == "ts"
    assert {f"hoodie.{name}": value for name, value in TIMES.items()}.items() <= properties.items()
    without = {"datasource__write__partitionpath__field": None}
    with client(base, **without) as c:
        c.upsert(LATER)
    assert paths(base) == {
        "a": ("2023/11/15", "new"),
        "b": ("2023/11/16", "b@1700100000"),
        "c": ("1970/01/01", "c@0"),
    }
    other = {**without, "keygen.timebased.output.dateformat": "yyyy"}
    refused(base, ConfigError, "is 'yyyy', but the table has 'yyyy/MM/dd'", **other)


ZONELESS = {**TIMESTAMP, "keygen.timebased.timezone": None}
SCALAR = {**ZONELESS, "keygen.timebased.timestamp.type": "SCALAR"}
TEXT = {
    **ZONELESS,
    "keygen.timebased.timestamp.type": "DATE_STRING",
    "keygen.timebased.input.dateformat": "yyyy-MM-dd HH",
    "datasource__write__partitionpath__field": "name",
}
A_DAY = table({**row("a", ts=1_700_000_000), "name": "2024-02-29 23"})


@pytest.mark.parametrize(
    ("first", "option", "value", "held"),
    [
        (ZONELESS, "timezone", "Asia/Tokyo", "its default, 'UTC'"),
        (ZONELESS, "output.timezone", "Asia/Tokyo", "its default, 'UTC'"),
        (TIMESTAMP, "output.timezone", "Asia/Tokyo", "'GMT[+]8:00'"),
        (TIMESTAMP, "timestamp.type", "EPOCHMILLISECONDS", "'UNIX_TIMESTAMP'"),
        (SCALAR, "timestamp.scalar.time.unit", "DAYS", "its default, 'SECONDS'"),
        (TEXT, "input.timezone", "Asia/Tokyo", "its default, 'UTC'"),
        (TEXT, "input.dateformat", "yyyy-MM-dd HH,yyyy", "'yyyy-MM-dd HH'"),
    ],
)
def test_an_option_that_contradicts_the_table_or_its_defaults_is_refused(
    tmp_path, first, option, value, held
):
    base, name = tmp_path / "t", f"keygen.timebased.{option}"
    with client(base, **first) as c:
        c.upsert(A_DAY)
    second = {**first, "keygen.timebased.timezone": None, name: value}
    message = f"{option} is {value!r}, but the table has {held}"
    refused(base, ConfigError, message, rows=A_DAY, **second)


@pytest.mark.parametrize(
    ("first", "option", "value"),
    [
        (ZONELESS, "timezone", "UTC"),
        (ZONELESS, "input.timezone", "Asia/Tokyo"),  # numbers have no zone
        (TIMESTAMP, "output.timezone", "GMT+8:00"),
        (SCALAR, "timestamp.scalar.time.unit", "seconds"),
        (TEXT, "input.dateformat.list.delimiter.regex", ";"),  # there is one pattern
    ],
)
def test_an_option_by_which_paths_stay_the_same_is_accepted(tmp_path, first, option, value):
    base, name = tmp_path / "t", f"keygen.timebased.{option}"
    for options in (first, {**first, "keygen.timebased.timezone": None, name: value}):
        with client(base, **options) as c:
            c.upsert(A_DAY)
    assert Table(base).to_arrow().num_rows == 1


@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_custom_key_generator_is_brought_by_each_writer(tmp_path, version):
    base = tmp_path / "t"
    with client(base, write__table__version=version, **CUSTOM) as c:
        c.upsert(ROWS)
    config = read_table_config(LocalStorage(str(base)))
    assert config.key_generator_type == "CUSTOM"
    stored = "region,ts" if version == 6 else "region:SIMPLE,ts:TIMESTAMP"
    assert config.properties["hoodie.table.partition.fields"] == stored
    with client(base, **CUSTOM) as c:
        c.upsert(LATER)
    assert paths(base) == {
        "a": ("eu/2023/11/15", "new"),
        "b": ("us/2023/11/16", "b@1700100000"),
        "c": ("eu/1970/01/01", "c@0"),
    }
    fields = {"datasource__write__partitionpath__field": "region:SIMPLE,ts:TIMESTAMP"}
    refused(base, ConfigError, "timebased.timestamp.type is empty", **fields)
    wrong = {**CUSTOM, "datasource__write__partitionpath__field": "region:SIMPLE,ts:SIMPLE"}
    if version > 6:
        refused(base, ConfigError, "but the table has 'region:SIMPLE,ts:TIMESTAMP'", **wrong)
    no_type = {**CUSTOM, "datasource__write__partitionpath__field": "region:SIMPLE,ts"}
    refused(base, ConfigError, "partitionpath.field ", **no_type)


@pytest.mark.parametrize(("fields", "shown"), [(":SIMPLE", "':SIMPLE'"), ("region:SIMPLE,:", "''")])
def test_a_partition_without_a_column_is_refused(tmp_path, fields, shown):
    wrong = {**CUSTOM, "datasource__write__partitionpath__field": fields}
    match = f"partitionpath.field has {shown} for the key generator CUSTOM; allowed: column:SIMPLE"
    with client(tmp_path / "t", **wrong) as c, pytest.raises(ConfigError, match=match):
        c.upsert(table(row("a")))
    assert not (tmp_path / "t").exists()


def test_times_of_a_timestamp_column_and_of_text(tmp_path):
    base = tmp_path / "t"
    schema = SCHEMA.set(1, pa.field("region", pa.string()))
    text = {
        "keygen.timebased.timestamp.type": "DATE_STRING",
        "keygen.timebased.input.dateformat": "yyyy-MM-dd'T'HH:mm:ssZ",
        "keygen.timebased.output.dateformat": "yyyyMMdd",
        "keygen.timebased.output.timezone": "UTC",
        "datasource__write__keygenerator__type": "TIMESTAMP",
        "datasource__write__hive_style_partitioning": "true",
    }
    rows = table(row("a", region="2024-02-29T23:59:59-0100"), schema=schema)
    with client(base, **text) as c:
        c.insert(rows)
    assert paths(base)["a"][0] == "region=20240301"
