"""The load of tables: CPU seconds a second, and the peak of five minutes."""

from __future__ import annotations

from strandline.server.table_threads import WINDOW_S, TableLoads


def test_a_peak_is_of_five_minutes_and_stays() -> None:
    loads = TableLoads()
    total = 0.0
    shown = []
    for minute in range(30):
        loads.note(60.0 * minute, {"t": total})
        shown.append(loads.figures("t"))
        # Half a core from the 5th to the 10th minute.
        total += 30.0 if 5 <= minute < 10 else 0.6
    assert shown[5]["cpu"] == 0.01
    assert shown[10] == {"cpu": 0.5, "peak_cpu": 0.5}
    assert shown[8]["cpu"] == round((3 * 30 + 2 * 0.6) / WINDOW_S, 6)
    assert shown[29] == {"cpu": 0.01, "peak_cpu": 0.5}


def test_a_burst_counts_by_the_whole_window_also_at_the_start() -> None:
    loads = TableLoads()
    loads.note(0, {})
    loads.note(20, {"t": 15.0})
    assert loads.figures("t") == {"cpu": 0.05, "peak_cpu": 0.05}


def test_samples_in_between_are_left_out() -> None:
    loads = TableLoads()
    for second in range(0, 10, 3):
        loads.note(second, {"t": 3.0 * second})
    assert loads.figures("t")["cpu"] == 0
    loads.note(10, {"t": 30.0})
    assert loads.figures("t")["cpu"] == 0.1


def test_a_table_that_was_closed_begins_anew() -> None:
    loads = TableLoads()
    loads.note(0, {"t": 0.0})
    loads.note(300, {"t": 150.0})
    assert loads.figures("t")["peak_cpu"] == 0.5
    loads.note(320, {})
    assert loads.figures("t") == {"cpu": 0, "peak_cpu": 0}
    loads.note(600, {"t": 3.0})
    # What it had before it was closed isn't in its counter any more.
    assert loads.figures("t") == {"cpu": 0.01, "peak_cpu": 0.01}
