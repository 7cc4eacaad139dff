"""The command prints what the papers claim, and writes it as a page with drawings."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks.papers.__main__ import main
from benchmarks.papers.page import write_page
from benchmarks.papers.plot import Plot, Series
from benchmarks.papers.rows import Row, Section
from benchmarks.papers.sections import sections
from strandline.fleet.planning.milp import open_solver

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


@pytest.fixture(scope="module")
def found() -> list[Section]:
    return sections(1, 500, 6, open_solver(), paths=300)


def test_the_command_prints_and_writes_the_same_page_each_time(
    found: list[Section], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ["--seed", "2", "--tables", "500", "--rings", "6", "--paths", "300"]
    printed = []
    for name in ("page_1", "page_2"):
        main([*few, "--folder", str(tmp_path / name)])
        said = capsys.readouterr()
        assert str(tmp_path / name / "papers.md") in said.out
        assert "solver: " in said.err
        printed.append(said.out.replace(name, ""))
    assert printed[0] == printed[1]
    for said in ("0.478 %", "0.899 %", "99.999999 %", "7.47e-09", "Figure 11", "user/user1 to SC2"):
        assert said in printed[0]
    files = {file.name: file.read_bytes() for file in (tmp_path / "page_1").iterdir()}
    drawings = {name.removesuffix(".svg") for name in files if name.endswith(".svg")}
    figures = {f"figure_{number}" for number in (6, 7, 8, 9, 11)}
    assert drawings == {"availability", "balance", "racks", *figures}
    for name, content in files.items():
        assert (tmp_path / "page_2" / name).read_bytes() == content
    other_seed = "\n\n".join(section.text() for section in found)
    assert other_seed not in printed[0]


def test_all_rows_agree(found: list[Section]) -> None:
    assert [row.what for section in found for row in section.rows if row.agrees is False] == []


@pytest.mark.parametrize(
    ("package", "arguments", "said"),
    [
        ("matplotlib", ["--folder", "x"], "--folder needs matplotlib"),
        ("scipy.optimize", [], "pip install 'strandline[plan]'"),
    ],
)
def test_a_package_that_is_missing_is_named_at_the_start(
    package: str,
    arguments: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if it weren't installed
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.out == ""


def test_drawings_show_the_values_of_their_rows(found: list[Section]) -> None:
    plots = {section.plot.name: section for section in found if section.plot is not None}
    rows = plots["figure_7"].rows
    shown = [y for series in plots["figure_7"].plot.series for _, y in series.points]
    assert sorted(f"{y:.2f}" for y in shown) == sorted(row.here for row in rows)
    law, *_ = plots["figure_11"].plot.series
    assert [f"{y:.1f} %" for _, y in law.points] == [row.formula for row in plots["figure_11"].rows]
