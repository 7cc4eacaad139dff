"""The sections as a page with drawings; needs matplotlib."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks.papers.plot import Plot
from benchmarks.papers.rows import Section

PAGE: Final = "papers.md"
_INCHES: Final = (7.0, 4.0)


def write_page(folder: Path, sections: Sequence[Section]) -> Path:
    """Write the sections in Markdown with their drawings beside it (SVG); return its path.

    The same sections make the same bytes.

    Raises:
        FileExistsError: ``folder`` is a file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for section in sections:
        if section.plot is not None:
            draw(section.plot, folder / f"{section.plot.name}.svg")
    page = folder / PAGE
    page.write_text("\n\n".join(_with_drawings(sections)) + "\n", "utf-8")
    return page


def draw(plot: Plot, file: Path) -> None:
    """Draw a plot into an SVG file."""
    import matplotlib as mpl  # noqa: PLC0415 - only drawings need it
    from matplotlib.figure import Figure  # noqa: PLC0415 - as above

    with mpl.rc_context({"svg.hashsalt": plot.name, "svg.fonttype": "none"}):
        figure = Figure(figsize=_INCHES, layout="constrained")
        axes = figure.subplots()
        for series in plot.series:
            xs, ys = zip(*series.points, strict=True)
            style = (
                {"linestyle": "none", "marker": "x", "zorder": 3}
                if series.is_paper
                else {"marker": "."}
            )
            axes.plot(xs, ys, label=series.name, **style)
        axes.set(xlabel=plot.x, ylabel=plot.y)
        axes.set_xscale("log") if plot.log_x else None
        axes.set_yscale("log") if plot.log_y else axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        figure.legend(loc="outside upper center", ncols=2)
        figure.savefig(file, metadata={"Date": None})


def _with_drawings(sections: Sequence[Section]) -> Iterator[str]:
    for section in sections:
        yield section.text()
        if section.plot is not None:
            names = ", ".join(series.name for series in section.plot.series)
            yield f"![{names}]({section.plot.name}.svg)"
