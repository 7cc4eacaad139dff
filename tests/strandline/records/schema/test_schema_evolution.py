"""How a table's schema evolves: the answers that real Hudi gave to the same cases."""

from __future__ import annotations

import itertools
import json
import re

import pytest

from strandline.records.schema.avro_schema import arrow_to_avro
from strandline.records.schema.schema_evolution import EvolutionRules, columns_after
from tests.kit.answers.schema_cases import (
    FAILS,
    REFUSED,
    ROWS,
    TABLE,
    Case,
    answer_of,
    cases,
    with_key,
)
from timeline.errors import InputError


def ours(case: Case, combination: str) -> str:
    """Return our answer in the form of the recorded ones."""
    table, rows = (arrow_to_avro(with_key(schema), "t") for schema in (case.table, case.write))
    letters = {"reconcile": "r", "set_null": "n", "validate": "v", "allow_drop": "d"}
    rules = EvolutionRules(**{name: letter in combination for name, letter in letters.items()})
    try:
        found, _ = columns_after(with_key(case.write), table, "t", rules)
    except InputError:
        return REFUSED
    if found in (table, rows):
        return TABLE if found == table else ROWS
    return json.dumps(json.loads(found)["fields"][2:], separators=(",", ":"))


GROUPS = {
    name: list(group)
    for name, group in itertools.groupby(cases(), lambda case: case.name.partition(" ")[0])
}


NESTED = {"deep", "list:", "map:", "struct:"}
KEEPS_MICROS = ("timestamp -> timestamp in ms", "local -> local in ms")
"""Hudi makes the table's type that of the rows, and cuts stored values."""


def takes_raw_numbers(case: Case, combination: str) -> bool:
    """Whether Hudi compares no types, so that some stored values would be wrong or not readable.

    It takes a day's number for a time, cuts a decimal, or makes a column of numbers one of decimals
    that needn't hold them.
    """
    unchecked = combination and "v" not in combination
    return bool(unchecked) and re.search(r"date|timestamp|local|decimal", case.name)


@pytest.mark.property
@pytest.mark.parametrize("groups", [GROUPS.keys() - NESTED, NESTED], ids=["plain", "nested"])
def test_the_table_gets_the_schema_that_hudi_gives_it(subtests, groups):
    for group in sorted(groups):
        with subtests.test(group=group):
            for case, combination in ((c, o) for c in GROUPS[group] for o in c.combinations):
                expected, found = answer_of(case, combination), ours(case, combination)
                # Of two columns whose names differ in case only, Spark reads either.
                ours_alone = takes_raw_numbers(case, combination) or case.name.endswith(
                    "other case"
                )
                if expected == FAILS or (found == REFUSED and ours_alone):
                    expected = REFUSED
                if case.name in KEEPS_MICROS and expected == ROWS:
                    expected = TABLE
                if case.name.endswith("added required") and expected == REFUSED:
                    # A literal column of Spark's; the table gets the column that allows nulls.
                    expected = answer_of(case, "n")
                assert found == expected, (case.name, combination)
