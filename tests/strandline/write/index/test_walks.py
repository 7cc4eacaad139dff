"""Random writes under each index leave the rows of a plain model."""

import pytest

from tests.kit.engines.scrambled_engine import ScrambledEngine
from tests.strandline.write.index.walk import LONG_WALKS, RULES, Rules, Walk

ALL = [*RULES, Rules("GLOBAL_BLOOM", moves=False, by_time=False)]
LONG = pytest.mark.property
SHORT = [ALL[0], *(pytest.param(rules, marks=LONG) for rules in ALL[1:])]
"""The first rules alone are for every run."""


@pytest.mark.parametrize("rules", SHORT, ids=str)
def test_rows_are_those_of_the_model(tmp_path, rules):
    with Walk.begun(tmp_path / "t", rules, seed=1) as walk:
        for _ in range(10):
            walk.step()


@pytest.mark.property
@pytest.mark.parametrize("rules", SHORT, ids=str)
def test_of_equal_rows_the_last_wins_whatever_order_tasks_get_them_in(tmp_path, rules):
    with Walk.begun(tmp_path / "t", rules, seed=3, engine=ScrambledEngine(3)) as walk:
        for _ in range(15):
            walk.step()


@LONG
@pytest.mark.parametrize(
    "rules", [*LONG_WALKS, pytest.param(ALL[-1], marks=pytest.mark.product)], ids=str
)
def test_rows_are_those_of_the_model_on_long_walks(tmp_path, rules):
    with Walk.begun(tmp_path / "t", rules, seed=2) as walk:
        for _ in range(50):
            walk.step()
