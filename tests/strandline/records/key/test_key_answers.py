"""Record keys and partition paths: the answers that real Hudi gave to the same values."""

from __future__ import annotations

import pyarrow as pa

from strandline.records.key.generator import SIMPLE, TIMESTAMP, KeyGenerator
from strandline.records.key.timestamp_path import TimestampFormat
from tests.kit.answers.key_cases import REFUSED, Case, cases, recorded
from timeline.errors import InputError

CASES = {case.name: case for case in cases()}


def ours(case: Case, value: object) -> list[str]:
    """Return our key and path of a value."""
    generator = KeyGenerator(
        (case.column,),
        (case.column,),
        TIMESTAMP if case.options else SIMPLE,
        hive_style=case.hive,
        url_encode=case.hive,
        times=TimestampFormat.of(case.options) if case.options else None,
    )
    row = pa.record_batch([pa.array([value], case.type)], names=["c"])
    if generator.without_key(row)[0].as_py():
        key = REFUSED
    else:
        key = generator.record_keys(row)[0].as_py()
    try:
        return [key, generator.partition_paths(row)[0].as_py()]
    except InputError:
        return [key, REFUSED]


def test_keys_and_paths_are_those_of_hudi(subtests):
    for name in CASES:
        with subtests.test(name=name):
            case = CASES[name]
            found = [ours(case, value) for value in case.values]
            expected = recorded()["keys"][name]
            assert dict(zip(case_values(case), found, strict=True)) == dict(
                zip(case_values(case), expected, strict=True)
            )


def case_values(case: Case) -> list[str]:
    return [repr(value) for value in case.values]
