"""Lines of a table: in a pipe, on a wide and on a narrow terminal."""

from __future__ import annotations

import pytest

from strandline.cli.text_table import as_columns, as_records, on_terminal

COLUMNS = ["file", "bytes", "reason"]
NAME = "f0a1b2c3-d4e5_1-2-3_20260131120000000.parquet"
ROWS = [[NAME, "10", "superseded by the slice of 20260131130000000"], ["b", "2000", ""]]


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")


def test_columns_get_wider_where_a_later_block_needs_it():
    assert list(as_columns(["a", "b"], [[], [["1", "x"]], [], [["1000", "y"]]])) == [
        "a  b",
        "1  x",
        "1000  y",
    ]
    assert list(as_columns(["a"], [[]])) == []


def test_a_wide_terminal_has_a_line_for_each_row_and_numbers_to_the_right():
    lines = list(on_terminal(COLUMNS, [ROWS], 200, {"bytes"}))
    assert [line.split() for line in lines] == [COLUMNS, *(" ".join(row).split() for row in ROWS)]
    head, first, second = lines
    end = head.index("bytes") + len("bytes")
    assert (first[:end].split()[-1], second[:end].split()[-1]) == ("10", "2000")
    assert first[end:].startswith("  superseded")


@pytest.mark.parametrize("width", [80, 90, 100, 120])
def test_long_cells_are_folded_and_no_character_is_lost(width):
    lines = list(on_terminal(COLUMNS, [ROWS], width, {"bytes"}))
    assert max(map(len, lines)) <= width
    assert sorted("".join(lines).replace(" ", "")) == sorted(
        "".join([*COLUMNS, *ROWS[0], *ROWS[1]]).replace(" ", "")
    )


def test_a_narrow_terminal_has_a_line_for_each_value():
    lines = list(on_terminal(COLUMNS, [ROWS, [["c", "3", ""]]], 50, {"bytes"}))
    assert lines == [
        "file",
        f"  {NAME}",
        "bytes   10",
        "reason  superseded by the slice of",
        "        20260131130000000",
        "",
        "file    b",
        "bytes   2000",
        "",
        "file    c",
        "bytes   3",
    ]


def test_a_word_that_is_wider_than_the_terminal_stays_whole():
    assert list(as_records(["a"], [["x" * 30]], 10)) == ["a", f"  {'x' * 30}"]


def test_markup_is_text():
    lines = list(on_terminal(["[b]a[/b]"], [[["[red]x[/red]"], [":smile:"]]], 80))
    assert [line.strip() for line in lines] == ["[b]a[/b]", "[red]x[/red]", ":smile:"]


def test_names_of_columns_are_folded_at_their_underscores():
    columns = ["requested_time", "_n_", "rows_inserted"]
    rows = [["20260131120000000", "1", "5"]]
    assert list(on_terminal(columns, [rows], 80)) == [
        "requested_time     _n_  rows_inserted",
        "20260131120000000  1    5",
    ]
    assert list(on_terminal(columns, [rows], 33)) == [
        "requested_         _   rows_",
        "time               n_  inserted",
        "20260131120000000  1   5",
    ]
