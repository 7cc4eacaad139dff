"""The page of the demo of groups, and what it is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from demo.fleet.groups_page import write_groups_page
from demo.fleet.groups_record import (
    GroupsRecord,
    Latency,
    LoadSample,
    LookUp,
    durations,
    latencies,
    moving_of,
)
from demo.fleet.record import Event, Round, Sample
from demo.record import Proof

MOVE: dict[str, Any] = {
    "number": 7,
    "path": "/lake/UA",
    "source": "default",
    "destination": "second",
    "state": "DONE",
    "began": {"PLANNED": 1000, "WARMING": 1500, "FLIPPED": 1750, "DROPPING": 1850, "DONE": 2000},
    "why": "",
}


def record(**changes: Any) -> GroupsRecord:
    made = {
        "hot": "UA",
        "table": "/lake/UA",
        "marks": {"default": 0.004, "second": 0.006},
        "samples": [Sample(0.0, {"a": 5}), Sample(0.5, {"a": 9})],
        "loads": [
            LoadSample(0.0, {"default": 0.0, "second": 0.0}),
            LoadSample(0.5, {}),
            LoadSample(1.0, {"default": 0.005, "second": 0.001}),
        ],
        "events": [Event(0.7, "UA turns hot")],
        "rounds": [Round(1, ("UA",), 0.0, 1.0, wrong=0, own=0, took_s=(0.01,))],
        "lookups": [LookUp(at_s, took_s) for at_s, took_s in ((1, 0.1), (2, 0.3), (3, 0.2))],
        "load_before": "<load>",
        "plan": "<plan>",
        "mounts_before": "before",
        "mounts_after": "after",
        "moves": [MOVE],
        "moving": (1.5, 2.5),
        "proofs": [Proof("pyarrow", 842, None, 0.1)],
    }
    return GroupsRecord(**{**made, **changes})


def test_look_ups_are_of_the_phase_in_which_they_ended() -> None:
    assert latencies(record()) == [
        Latency("hot", 1, 0.1, 0.1, 0.1),
        Latency("moving", 1, 0.3, 0.3, 0.3),
        Latency("moved", 1, 0.2, 0.2, 0.2),
    ]
    (only,) = latencies(record(moving=None))
    assert (only.phase, only.count, only.median_s, only.longest_s) == ("hot", 3, 0.2, 0.3)


def test_tables_move_from_the_order_of_the_first_to_the_end_of_the_last() -> None:
    later = {**MOVE, "state": "UNDONE", "began": {"PLANNED": 1700, "UNDONE": 2400}}
    assert moving_of([MOVE, later], 500) == (0.5, 1.9)
    assert moving_of([], 500) is None


def test_a_move_s_states_have_durations_but_for_the_end() -> None:
    assert durations(MOVE) == {"PLANNED": 0.5, "WARMING": 0.25, "FLIPPED": 0.1, "DROPPING": 0.15}


@pytest.mark.parametrize(
    ("changes", "is_right"),
    [
        ({}, True),
        ({"moves": []}, False),
        ({"moves": [{**MOVE, "state": "UNDONE"}]}, False),
        ({"moves": [{**MOVE, "state": "UNDONE"}, MOVE]}, True),
        ({"moves": [{**MOVE, "path": "/lake/U"}]}, False),
        ({"moves": [{**MOVE, "path": "/lake"}]}, True),
        ({"failed": 1}, False),
        ({"retried": 1}, True),
        ({"lookups": []}, False),
        ({"rounds": []}, False),
        ({"rounds": [Round(1, (), 0.0, 1.0, wrong=1, own=0, took_s=())]}, False),
        ({"proofs": [Proof("pyarrow", 842, "a row", 0.1)]}, False),
    ],
)
def test_a_run_is_right_if_the_table_moved_and_all_was_answered(
    changes: dict[str, Any], is_right: bool
) -> None:
    assert record(**changes).is_right == is_right


def test_the_page_has_loads_plan_mounts_moves_and_latency(tmp_path: Path) -> None:
    write_groups_page(record(), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text("utf-8")
    for part in (
        "<svg",
        "&lt;load&gt;",
        "&lt;plan&gt;",
        "<pre>before</pre>",
        "<pre>after</pre>",
        "WARMING 0.25",
        "<td>moving</td><td>1</td><td>300 ms</td>",
        "UA turns hot",
    ):
        assert part in text, part
    assert "all answers and rows are right" in text
