"""Random writes that change a table's columns leave the rows and columns of a plain model."""

from __future__ import annotations

import pytest

from tests.strandline.write.evolution.taking import take
from tests.strandline.write.index.walk import RULES


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_rows_and_columns_are_those_of_the_model(tmp_path, rules):
    take(tmp_path / "t", rules, seed=1, steps=10)


@pytest.mark.property
@pytest.mark.parametrize("rules", RULES, ids=str)
def test_rows_and_columns_are_those_of_the_model_on_long_walks(tmp_path, rules):
    take(tmp_path / "t", rules, seed=2, steps=40)
