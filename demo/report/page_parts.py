"""What the pages of both runs share: their frame, the life of a file, the proofs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final

from demo.record import FileLife, GroupProof, Proof

_STYLE: Final = Path(__file__).with_name("page.css")
WIDE: Final = '<div class="wide" tabindex="0" role="region" aria-label="a table">'
"""Begins what scrolls sideways on a narrow screen, and says so there."""


def framed(title: str, parts: Iterable[str]) -> str:
    """Return a whole page, with its style inline."""
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE.read_text('utf-8')}</style></head><body><main>",
            *parts,
            "</main></body></html>\n",
        ]
    )


def rows(head: Sequence[str], body: Iterable[Sequence[str]], *, texts: int = 1) -> Iterator[str]:
    """Yield a table of plain text.

    Args:
        head: The columns' names.
        body: The cells of each row.
        texts: Number of columns, from the left, that are text and no numbers.
    """
    yield f"{WIDE}<table><thead><tr>"
    for place, name in enumerate(head):
        yield f"<th{_style(place, texts)}>{escape(name)}</th>"
    yield "</tr></thead><tbody>"
    for cells in body:
        yield "<tr>"
        for place, cell in enumerate(cells):
            yield f"<td{_style(place, texts)}>{escape(cell)}</td>"
        yield "</tr>"
    yield "</tbody></table></div>"


def _style(place: int, texts: int) -> str:
    return "" if place < texts else ' class="number"'


def life_section(life: FileLife | None) -> Iterator[str]:
    """Yield the section on the life of a data file; nothing without one."""
    if life is None:
        return
    yield '<section class="card"><h2>The life of a data file</h2>'
    yield f'<p class="quiet">{escape(life.path)}, which is '
    yield f"{'still there' if life.is_there else 'gone'}: told from the timeline and its archive, "
    yield "the last line as <code>strandline why</code> does.</p>"
    found = ((str(number), text) for number, text in life.events)
    yield from rows(("batch", "what happened"), found, texts=2)
    yield "</section>"


def proof_section(
    proofs: Mapping[str, Sequence[Proof]], groups: Mapping[str, GroupProof]
) -> Iterator[str]:
    """Yield the section on the proofs.

    Args:
        proofs: Table → what the readers found.
        groups: Table → its file groups, compared with those of the table ``service on``.
    """
    yield '<section class="card"><h2>Proof against the replay</h2>'
    yield '<p class="quiet">Rows and values as three independent readers see them, compared with a '
    yield "plain replay of the feed; file groups and their slices, compared with those of the run "
    yield f"with the service on.</p>{WIDE}<table><thead><tr><th>table</th>"
    yield '<th class="number">rows</th>'
    for proof in next(iter(proofs.values()), ()):
        yield f"<th>{escape(proof.reader)}</th>"
    yield "<th>file groups</th></tr></thead><tbody>"
    for of, found in proofs.items():
        yield f'<tr><td>{escape(of)}</td><td class="number">{found[0].rows:,}</td>'
        for proof in found:
            yield verdict(proof.difference)
        compared = groups.get(of)
        yield "<td></td>" if compared is None else verdict(compared.difference)
        yield "</tr>"
    yield "</tbody></table></div></section>"


def verdict(difference: str | None) -> str:
    """Return the cell for a comparison."""
    style, result = ("good", "equal") if difference is None else ("bad", "differs")
    return f'<td class="{style}" title="{escape(difference or result)}">{result}</td>'
