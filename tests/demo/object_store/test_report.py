"""The report on an object store, on the terminal and as a page."""

import io
import re
from dataclasses import replace

from rich.console import Console

from demo.object_store.files import read, write
from demo.object_store.terminal import show
from tests.demo.object_store.sample import report
from tests.demo.report.resources import Resources

FIGURES = [
    ("each task builds its own view", ("33 (32-34)", "4.00", "10.0")),
    ("a service that forgets the table at each commit", ("6", "4.00", "10.0")),
    ("the service, kept", ("2", "4.00", "10.0")),
]


def printed(found):
    console = Console(file=io.StringIO(), width=100)
    show(found, console)
    return console.file.getvalue()


def test_the_terminals_first_lines_have_the_three_ways():
    first = printed(report()).splitlines()[:8]
    assert "300 partitions" in first[0]
    for title, figures in FIGURES:
        line = r"\s+".join(map(re.escape, (title, *figures)))
        assert any(re.search(rf"^{line}\s*$", each) for each in first), (title, first)


def test_the_terminal_shows_one_screen_with_the_rest_beneath():
    told = printed(report())
    assert len(told.splitlines()) <= 24
    words = " ".join(told.split())
    for part in (
        "at most 3.4 requests a second over a job (each task builds its own view), and can answer",
        "12.0 s (4.0, 4.0, 4.0), look-ups 0.75 s, with the embedded service, 12.0 s",
        "process 12): 16 of 16 tasks were answered by it, 0 by views of their own; 25 requests",
        "6 of 6 readings",
        "loaded the table once: 25 requests",
        "spark.python.worker.reuse=false",
        "here by 1 lists and 1 other calls a task",
    ):
        assert part in words
    assert "FAILED" not in told


def test_a_busy_server_leaves_requests_alone_to_compare(tmp_path):
    found = report(capacity=6)
    page = write(found, tmp_path)[0].read_text()
    for told in (printed(found), page):
        assert told.count("not compared") >= 6
        assert "Only requests are compared" in " ".join(told.split())
    assert "25 requests\n" in printed(found).replace(".\n", "\n")


def test_the_pages_first_table_has_the_three_ways(tmp_path):
    page, numbers = write(report(), tmp_path)
    assert read(tmp_path) == report()
    assert numbers.name == "metrics.json"
    first = page.read_text().partition("</table>")[0]
    for title, figures in FIGURES:
        row = next(each for each in first.split("<tr>") if title in each)
        assert tuple(re.findall(r'class="number">([^<]*)<', row)) == figures
    assert '<section class="card"><h2>' not in first


def test_a_failure_stands_before_the_figures(tmp_path):
    bad = replace(report(), killed=(11, 11))
    assert "FAILED  the service's process 11 was not replaced" in printed(bad)
    first = write(bad, tmp_path)[0].read_text().partition("<table>")[0]
    assert "Failed: the service&#x27;s process 11 was not replaced" in first


def test_the_page_needs_nothing_but_itself_and_scrolls_on_a_phone(tmp_path):
    text = write(report(), tmp_path)[0].read_text()
    parser = Resources()
    parser.feed(text)
    assert parser.loads == []
    assert parser.open == []
    assert "url(" not in text
    assert "@import" not in text
    # Each table lies in what scrolls, and says so on a narrow screen.
    assert text.count("<table") == text.count('<div class="wide" tabindex="0"') > 3
    assert "The table scrolls sideways" in text
    assert 'name="viewport" content="width=device-width' in text


def test_a_table_without_files_has_no_life(tmp_path):
    assert "life of a data file" not in write(replace(report(), life=None), tmp_path)[0].read_text()
