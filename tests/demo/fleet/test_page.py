"""The page of the fleet's demo, and what it is made of."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from demo.fleet.__main__ import main
from demo.fleet.page import asked_table, write_page
from demo.fleet.record import Event, FleetRecord, Round, Sample, asked, rates
from demo.record import Proof

ROUND = Round(1, ("AA",), 0.0, 2.0, wrong=0, own=1, took_s=(0.01,) * 8)
PROOF = Proof("view, <pyarrow>", 842, None, 0.1)
SAMPLES = [Sample(0.0, {"a": 5}), Sample(0.5, {"a": 9}), Sample(1.0, {"a": 2, "b": 3})]


def record() -> FleetRecord:
    events = [Event(0.7, "a dies")]
    return FleetRecord("before", "after", list(SAMPLES), events, [ROUND], [PROOF])


def test_a_package_that_is_missing_is_named_at_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if it weren't installed
    with pytest.raises(SystemExit) as left:
        main([])
    assert left.value.code == 2
    assert "matplotlib can't be imported, but tox -e fleet-demo" in capsys.readouterr().err


def test_a_server_that_starts_again_counts_from_none() -> None:
    assert rates(SAMPLES) == {"a": [(0.5, 8.0), (1.0, 4.0)], "b": [(1.0, 6.0)]}


@pytest.mark.parametrize(
    ("begun_s", "ended_s", "found"),
    [
        (0.0, 0.4, {"a": 4}),
        (0.0, 1.0, {"a": 6, "b": 3}),
        (0.6, 1.0, {"a": 2, "b": 3}),
        (1.0, 2.0, {}),
    ],
)
def test_who_was_asked_in_a_time(begun_s: float, ended_s: float, found: dict[str, int]) -> None:
    assert asked(SAMPLES, begun_s, ended_s) == found


def test_the_page_says_who_was_asked_and_who_did_not_run() -> None:
    rounds = [replace(ROUND, ended_s=0.4), replace(ROUND, number=2, begun_s=0.6, ended_s=1.0)]
    shown = asked_table(rounds, SAMPLES)
    assert "<td>1</td><td>4</td><td>-</td>" in shown
    assert "<td>2</td><td>2</td><td>3</td>" in shown


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
    assert "10 ms" in text


@pytest.mark.parametrize("more", [[], ["--groups"]])
def test_rounds_that_leave_a_fault_out_are_refused(
    more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([*more, "--rounds", "11"])
    assert "--rounds is 11; allowed: 12 or more" in capsys.readouterr().err
