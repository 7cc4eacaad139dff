"""The command prints what the papers claim, and writes it as a page with drawings."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks.papers.__main__ import main
from benchmarks.papers.page import write_page
from benchmarks.papers.plot import Plot, Series
from benchmarks.papers.rows import Row, Section
from benchmarks.papers.sections import sections

pytestmark = pytest.mark.property

LINES = Series("ours", [(1, 2.0), (2, 3.0), (4, 5.0)])
CROSSES = Series("the paper's", [(1, 2.5)], is_paper=True)


def page_of(folder: Path, *series: Series, **options: bool) -> tuple[str, str]:
    """Return the page and the drawing of one section."""
    section = Section("A", [Row("b")], "c", Plot("d", "x of d", "y of d", series, **options))
    page = write_page(folder, [section, Section("E", [Row("f")])])
    return page.read_text("utf-8"), (folder / "d.svg").read_text("utf-8")


def uses(drawing: str) -> int:
    """Return how many marks there are: the uses of what is defined once."""
    return sum(each.tag.endswith("}use") for each in ET.fromstring(drawing).iter())


def test_a_page_has_the_sections_and_leads_to_their_drawings(tmp_path: Path) -> None:
    page, drawing = page_of(tmp_path, LINES, CROSSES)
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == ["A", "E"]
    assert "![ours, the paper's](d.svg)" in page
    for words in ("x of d", "y of d", "ours", "the paper's"):
        assert f">{words}<" in drawing


def test_each_value_has_a_mark(tmp_path: Path) -> None:
    marks = [
        uses(page_of(tmp_path / name, *series)[1])
        for name, series in {
            "few": (LINES,),
            "more": (Series("ours", [*LINES.points, (3, 4.0)]),),
        }.items()
    ]
    assert marks[1] == marks[0] + 1


def test_words_and_logarithms_are_axes(tmp_path: Path) -> None:
    words = Series("ours", [("table", 1.0), ("partition", 10.0)])
    _, drawing = page_of(tmp_path / "words", words)
    assert ">partition<" in drawing
    _, logarithmic = page_of(tmp_path / "log", LINES, log_x=True, log_y=True)
    _, linear = page_of(tmp_path / "linear", LINES)
    assert logarithmic != linear


def test_the_command_prints_the_same_page_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--tables", "1500", "--rings", "6"]
    assert main(few) == 0
    first = capsys.readouterr().out
    assert main(few) == 0
    assert capsys.readouterr().out == first
    for said in ("0.478 %", "0.899 %", "99.999999 %", "7.47e-09", "Figure 11"):
        assert said in first
    other = "\n\n".join(section.text() for section in sections(seed=2, tables=1500, rings=6))
    assert other != first.rstrip("\n")


def test_the_command_writes_the_page_and_its_drawings_the_same_each_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("first", "second"):
        main(["--tables", "500", "--rings", "2", "--folder", str(tmp_path / name)])
        assert str(tmp_path / name / "papers.md") in capsys.readouterr().out
    files = {file.name: file.read_bytes() for file in (tmp_path / "first").iterdir()}
    drawings = {name.removesuffix(".svg") for name in files if name.endswith(".svg")}
    assert drawings == {"availability", "balance", "figure_7", "figure_8", "figure_11"}
    for name, content in files.items():
        assert (tmp_path / "second" / name).read_bytes() == content


def test_drawings_show_the_values_of_their_rows() -> None:
    found = sections(seed=1, tables=500, rings=2)
    plots = {section.plot.name: section for section in found if section.plot is not None}
    rows = plots["figure_7"].rows
    shown = [y for series in plots["figure_7"].plot.series for _, y in series.points]
    assert sorted(f"{y:.2f}" for y in shown) == sorted(row.here for row in rows)
    law, *_ = plots["figure_11"].plot.series
    assert [f"{y:.1f} %" for _, y in law.points] == [row.formula for row in plots["figure_11"].rows]
