"""Settings of partition paths of times that are refused, and columns that don't fit them."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from strandline.records.timestamp_path import PREFIX, TimestampFormat
from timeline.errors import ConfigError, InputError

UNIX = {"timestamp.type": "UNIX_TIMESTAMP", "output.dateformat": "yyyy/MM/dd"}
TEXT = {"timestamp.type": "DATE_STRING", "input.dateformat": "yyyy-MM-dd", **UNIX} | {
    "timestamp.type": "DATE_STRING"
}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "timestamp.type is empty"),
        ({**UNIX, "timestamp.type": "JULIAN"}, "'JULIAN'; allowed: UNIX_TIMESTAMP, "),
        ({"timestamp.type": "UNIX_TIMESTAMP"}, "output.dateformat is empty"),
        ({**UNIX, "timestamp.type": "DATE_STRING"}, "input.dateformat is empty"),
        ({**UNIX, "timestamp.type": "SCALAR", "timestamp.scalar.time.unit": "WEEKS"}, "'WEEKS'"),
        ({**UNIX, "output.dateformat": "yyyy/MMM"}, "'MMM' isn't supported; allowed: M, MM"),
        ({**UNIX, "output.dateformat": "xxxx-ww"}, "'xxxx' isn't supported; allowed: y, M, d"),
        ({**UNIX, "output.dateformat": "yyyy'T"}, "a quote that isn't closed"),
        ({**TEXT, "input.dateformat": "yy-MM-dd"}, "allowed: each letter once, and no yy"),
        ({**UNIX, "output.timezone": "Mars/Olympus"}, "output.timezone is 'Mars/Olympus'"),
        ({**UNIX, "timezone": "EST5"}, "timebased.timezone is 'EST5'"),
        ({**TEXT, "input.dateformat.list.delimiter.regex": "[,;]"}, "allowed: one character"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(settings, message):
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        TimestampFormat.of(settings)
    assert PREFIX in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "column", "message"),
    [
        (UNIX, pa.array(["1"]), "timestamp.type allows numbers, dates or timestamps"),
        (TEXT, pa.array([1]), "timestamp.type allows text"),
        (UNIX, pa.array([True]), "has the type bool"),
        (UNIX, pa.array([2**62]), "has times before 6 or after 3934 in SECONDS"),
        (TEXT, pa.array(["2024-02-30"]), "the value '2024-02-30', which is no time by"),
    ],
)
def test_columns_and_values_that_are_no_times_are_refused(settings, column, message):
    with pytest.raises(InputError, match=message):
        TimestampFormat.of(settings).paths(column, "ts")


def test_offsets_with_seconds_of_old_times_count():
    settings = {**UNIX, "output.dateformat": "yyyyMMddHHmm", "timezone": "Africa/Monrovia"}
    times = pa.array([-1_000_000_000, 44 * 60 + 29 - 365 * 86_400, 44 * 60 + 30 - 365 * 86_400])
    # Liberia's offset was -0:44:30 until 1972.
    assert TimestampFormat.of(settings).paths(times, "ts").to_pylist() == [
        "193804242128",
        "196812312359",
        "196901010000",
    ]
