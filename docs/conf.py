"""Sphinx's settings, by which `tox -e docs` builds the site from the Markdown of the repository.

The source folder is the repository, so that links between `docs/` and other folders are the same on
the site and in a checkout. Files that aren't Markdown are copied as downloads.
"""

from __future__ import annotations

import re
from pathlib import Path

_VERSION = Path(__file__).resolve().parents[1] / "strandline" / "version.py"

project = "Strandline"
(release,) = re.findall(r'__version__ = "(.+)"', _VERSION.read_text("utf-8"))

extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "benchmarks/README.md",
    "docs/**.md",
    "examples/README.md",
    "tests/golden/README.md",
    "tests/oracle/README.md",
]
exclude_patterns = [".*", "build", "dist", "report"]
myst_heading_anchors = 4  # those that code hosts make, too; the build checks links to them
highlight_language = "text"  # an indented block may be a command, a listing or a file

html_theme = "furo"
html_title = f"Strandline {release}"
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = False  # it would be fetched, which pages opened as files may not
html_use_index = False

linkcheck_ignore = [r"http://127\.0\.0\.1"]  # of a service that a reader starts
