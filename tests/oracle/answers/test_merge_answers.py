"""Real Hudi still answers the cases of the merge rule as the kit's recorded answers say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kit.answers.merge_cases import ANSWERS, answers, tables
from tests.oracle.answers.merge_answers import ask, ask_old
from tests.oracle.hudi import HUDI_0, Hudi


@pytest.mark.oracle
@pytest.mark.parametrize(("kind", "version", "mode"), [*tables()])
def test_hudi_answers_as_recorded(
    hudi: Hudi, tmp_path: Path, kind: str, version: int, mode: str
) -> None:
    recorded = answers(kind, mode)
    # Cases with nulls take Hudi seconds each to fail; a new recording asks them.
    found = ask(hudi, tmp_path / "t", kind, version, mode, nulls=False)
    assert found == {case: recorded[case] for case in found}


@pytest.mark.oracle
def test_the_old_release_differs_as_recorded(tmp_path: Path) -> None:
    assert ask_old(tmp_path / "old") == json.loads(ANSWERS.read_text("utf-8"))[HUDI_0]
