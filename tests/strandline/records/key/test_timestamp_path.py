"""Settings of partition paths of times that are refused, and columns that don't fit them."""

from __future__ import annotations

import re
from decimal import Decimal

import pyarrow as pa
import pytest

from strandline.records.key.timestamp_path import PREFIX, TimestampFormat
from timeline.errors import ConfigError, InputError

UNIX = {"timestamp.type": "UNIX_TIMESTAMP", "output.dateformat": "yyyy/MM/dd"}
DAYS = {**UNIX, "timestamp.type": "SCALAR", "timestamp.scalar.time.unit": "DAYS"}
TEXT = {"timestamp.type": "DATE_STRING", "input.dateformat": "yyyy-MM-dd", **UNIX} | {
    "timestamp.type": "DATE_STRING"
}


def test_what_is_not_supported_is_refused_by_name(subtests):
    for settings, message in [
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
    ]:
        with subtests.test(settings=settings):
            with pytest.raises(ConfigError, match=re.escape(message)) as caught:
                TimestampFormat.of(settings)
            assert PREFIX in str(caught.value)


NO_TIMES = [
    (UNIX, pa.array(["1"]), "timestamp.type allows numbers, dates or timestamps"),
    (TEXT, pa.array([1]), "timestamp.type allows text"),
    (UNIX, pa.array([True]), "has the type bool"),
    (UNIX, pa.array([2**62]), f"has the value {2**62} in SECONDS .*years 6 to 3934"),
    (UNIX, pa.array([-(2**63)]), "in SECONDS"),
    (UNIX, pa.array([float("inf")]), "the value inf in SECONDS"),
    (UNIX, pa.array([None, -1e300]), "the value -1e[+]300 in SECONDS"),
    (UNIX, pa.array([Decimal(10) ** 30]), "the value 1e[+]30 in SECONDS"),
    (DAYS, pa.array([6 * 10**13]), "in DAYS"),
    (DAYS, pa.array([-(2**63)]), "in DAYS"),
    ({**UNIX, "timestamp.type": "EPOCHMILLISECONDS"}, pa.array([-(2**63)]), "in MILLISECONDS"),
    ({**UNIX, "timestamp.type": "EPOCHMICROSECONDS"}, pa.array([-(2**63)]), "in MICROSECONDS"),
    (TEXT, pa.array(["2024-02-30"]), "the value '2024-02-30', which is no time by"),
]


def test_columns_and_values_that_are_no_times_are_refused(subtests):
    for settings, column, message in NO_TIMES:
        with (
            subtests.test(settings=settings, column=column),
            pytest.raises(InputError, match=message),
        ):
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


def test_no_number_is_the_epoch_as_in_java():
    found = TimestampFormat.of(UNIX).paths(pa.array([float("nan")]), "ts")
    assert found.to_pylist() == ["1970/01/01"]


def test_nanoseconds_of_all_whole_numbers_are_times():
    settings = {**DAYS, "timestamp.scalar.time.unit": "NANOSECONDS"}
    found = TimestampFormat.of(settings).paths(pa.array([-(2**63), 2**63 - 1, -1]), "ts")
    assert found.to_pylist() == ["1677/09/21", "2262/04/11", "1970/01/01"]
