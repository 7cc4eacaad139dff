"""Random writes that change a table's columns leave the rows and columns of a plain model."""

from __future__ import annotations

import pytest

from tests.strandline.write.evolution.taking import take
from tests.strandline.write.index.walk import LONG_WALKS, RULES

LONG = pytest.mark.property
SHORT = [RULES[0], *(pytest.param(rules, marks=LONG) for rules in RULES[1:])]
"""The first rules alone are for every run."""


@pytest.mark.parametrize("rules", SHORT, ids=str)
def test_rows_and_columns_are_those_of_the_model(tmp_path, rules):
    take(tmp_path / "t", rules, seed=1, steps=10)


@LONG
@pytest.mark.parametrize("rules", LONG_WALKS, ids=str)
def test_rows_and_columns_are_those_of_the_model_on_long_walks(tmp_path, rules):
    take(tmp_path / "t", rules, seed=2, steps=40)


@pytest.mark.property
@pytest.mark.parametrize(
    "rules", [RULES[0], pytest.param(RULES[1], marks=pytest.mark.product)], ids=str
)
def test_clients_that_take_turns_leave_no_instant_of_refused_rows(tmp_path, rules):
    take(tmp_path / "t", rules, seed=3, steps=60, keep_clients=True)
