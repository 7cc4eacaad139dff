"""Progress of a deletion: a bar on a terminal, few lines elsewhere."""

from __future__ import annotations

import io

from strandline.cli.clean import DeletionProgress


class Terminal(io.StringIO):
    """A text stream that is a terminal."""

    def isatty(self):
        return True


def show(stream, *calls):
    """Return the text of a deletion whose progress is shown on a stream."""
    with DeletionProgress(stream) as progress:
        for call in calls:
            progress(*call)
    return stream.getvalue()


def test_elsewhere_each_tenth_is_a_line():
    text = show(io.StringIO(), *((n, 1000) for n in range(1, 1001)))
    assert text.splitlines() == [f"deleting files: {n}00 of 1000" for n in range(1, 10)] + [
        "deleting files: 1000 of 1000"
    ]


def test_what_is_deleted_at_once_is_one_line():
    assert show(io.StringIO(), (3, 3)) == "deleting files: 3 of 3\n"


def test_a_second_deletion_begins_anew():
    lines = show(io.StringIO(), (3, 4), (1, 2), (2, 2)).splitlines()
    assert lines == [f"deleting files: {each}" for each in ("3 of 4", "1 of 2", "2 of 2")]


def test_on_a_terminal_a_bar_is_drawn_and_its_line_ended():
    text = show(Terminal(), (1, 4), (4, 4), (1, 2))
    assert "4/4" in text
    assert text.endswith("\n")


def test_after_one_that_left_files_a_larger_one_begins_anew():
    """A crashed clean leaves files that are live again, so its count doesn't reach its total."""
    assert "8/100" in show(Terminal(), (5, 10), (8, 100))
    lines = show(io.StringIO(), (5, 10), (60, 100)).splitlines()
    assert lines == ["deleting files: 5 of 10", "deleting files: 60 of 100"]


def test_without_files_nothing_is_shown():
    assert show(io.StringIO()) == show(Terminal()) == ""
