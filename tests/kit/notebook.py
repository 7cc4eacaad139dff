"""Make the first tutorial's notebook from its page: ``python -m tests.kit.notebook --write``.

``tests/test_document_code.py`` fails if the notebook is out of date. It has no outputs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.kit.document_page import blocks

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "first-table.md"
NOTEBOOK = PAGE.with_name("first_table.ipynb")
_ABOUT = "The same steps are in a notebook"


def notebook(page: str) -> str:
    """Return the notebook of a page: a cell for each block of Python, and for the text between."""
    cells = [*_cells(page)]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    found = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def _cells(page: str) -> Iterator[dict[str, Any]]:
    lines = page.splitlines()
    last = 0
    for block in [*blocks(page), None]:
        begin = len(lines) if block is None else block.line - 2
        prose = "\n".join(lines[last:begin]).strip()
        paragraphs = [each for each in prose.split("\n\n") if not each.startswith(_ABOUT)]
        if prose:
            yield {"cell_type": "markdown", "metadata": {}, "source": "\n\n".join(paragraphs)}
        if block is None:
            return
        last = block.line + block.code.count("\n")
        if block.language == "python":
            yield {
                "cell_type": "code",
                "execution_count": None,
                "metadata": {},
                "outputs": [],
                "source": block.code.rstrip(),
            }


def main(arguments: Sequence[str]) -> int:
    """Print the notebook, or with ``--write`` write its file."""
    made = notebook(PAGE.read_text("utf-8"))
    if arguments == ["--write"]:
        NOTEBOOK.write_text(made, "utf-8")
    else:
        sys.stdout.write(made)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
