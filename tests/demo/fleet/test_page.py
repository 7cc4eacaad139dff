"""The page of the fleet's demo, and what it is made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from demo.fleet.__main__ import main
from demo.fleet.page import write_page
from demo.fleet.record import Event, FleetRecord, Round, Sample, rates
from demo.record import Proof

ROUND = Round("2013-01-01", 0.0, 2.0, 8, wrong=0, own=1)
PROOF = Proof("view, <pyarrow>", 842, None, 0.1)


def record() -> FleetRecord:
    samples = [Sample(0.0, {"a": 5}), Sample(0.5, {"a": 9}), Sample(1.0, {"a": 2, "b": 3})]
    return FleetRecord("before", "after", samples, [Event(0.7, "a dies")], [ROUND], [PROOF])


def test_a_server_that_starts_again_counts_from_none() -> None:
    assert rates(record().samples) == {"a": [(0.5, 8.0), (1.0, 4.0)], "b": [(1.0, 6.0)]}


@pytest.mark.parametrize(
    ("rounds", "proofs", "is_right"),
    [
        ([ROUND], [PROOF], True),
        ([], [PROOF], False),
        ([ROUND], [], False),
        ([ROUND, replace(ROUND, wrong=1)], [PROOF], False),
        ([ROUND], [PROOF, replace(PROOF, difference="a row")], False),
    ],
)
def test_a_run_is_right_if_every_answer_and_row_is(
    rounds: list[Round], proofs: list[Proof], is_right: bool
) -> None:
    found = record()
    found.rounds, found.proofs = rounds, proofs
    assert found.is_right == is_right


def test_the_page_has_drawing_events_rings_and_proofs(tmp_path: Path) -> None:
    write_page(record(), tmp_path / "deep" / "page.html")
    text = (tmp_path / "deep" / "page.html").read_text("utf-8")
    for part in ("<svg", "a dies", "<pre>before</pre>", "<pre>after</pre>", "&lt;pyarrow&gt;"):
        assert part in text
    assert "all answers and rows are right" in text


def test_days_that_leave_a_fault_out_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--days", "11"])
    assert "--days is 11; allowed: 12 or more" in capsys.readouterr().err
