"""Build the site of the documents: ``python -m tests.kit.site``, with ``--external`` for all links.

Warnings are errors, dead links and anchors among them. The site must work without a network, so no
page may load anything from another host. ``--external`` also asks for the links to other hosts.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "docs"
FRONT = """\
<!doctype html>
<meta charset="utf-8">
<title>Strandline</title>
<meta http-equiv="refresh" content="0; url=docs/index.html">
<a href="docs/index.html">Strandline</a>
"""
"""The site's first page: the source folder is the repository, so the documents lie in `docs/`."""

_LOADING = {"src", "data", "poster", "srcset"}
"""Attributes whose URL a browser loads at once, of whatever element; of links `href`, too."""
_ELSEWHERE = re.compile(r"\s*(?:https?:)?//", re.IGNORECASE)
_IN_STYLE = re.compile(
    r"""(?:url\(\s*|@import\s+)["']?\s*((?:https?:)?//[^"')\s]+)""", re.IGNORECASE
)


class _Loads(HTMLParser):
    """Collects what a page loads from other hosts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in _LOADING or (tag == "link" and name == "href"):
                self.found += [value] * bool(_ELSEWHERE.match(value or ""))


def loads_elsewhere(text: str, suffix: str) -> list[str]:
    """Return the URLs on other hosts that a file of the site loads.

    Args:
        text: Its content.
        suffix: ``.html`` or ``.css``.
    """
    if suffix == ".css":
        return _IN_STYLE.findall(text)
    page = _Loads()
    page.feed(text)
    return [*page.found, *_IN_STYLE.findall("\n".join(re.findall(r"(?s)<style.*?</style>", text)))]


def all_loads(site: Path) -> Iterator[str]:
    """Yield ``file: URL`` of what the site's pages and styles load from other hosts."""
    for path in sorted((*site.rglob("*.html"), *site.rglob("*.css"))):
        for url in loads_elsewhere(path.read_text("utf-8"), path.suffix):
            yield f"{path.relative_to(site)}: {url}"


def searches_offline(site: Path) -> bool:
    """Return whether the search works in a page opened as a file, which may load scripts alone.

    So the index must be a script, and no summary of a page that was found may be fetched.
    """
    index = 'src="searchindex.js"' in (site / "search.html").read_text("utf-8")
    options = (site / "_static" / "documentation_options.js").read_text("utf-8")
    return index and "SHOW_SEARCH_SUMMARY: false" in options


def _sphinx(builder: str, folder: Path) -> int:
    # Of pages that haven't changed since an earlier run Sphinx would not warn again.
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs"]
    return subprocess.run([*command, "-b", builder, ".", folder], cwd=ROOT, check=False).returncode


def main(arguments: Sequence[str]) -> int:
    """Build and check the site; return 0 if all is well, 1 if not, 2 for a wrong argument."""
    if set(arguments) - {"--external"}:
        print("usage: python -m tests.kit.site [--external]", file=sys.stderr)
        return 2
    failed = _sphinx("html", SITE)
    SITE.mkdir(parents=True, exist_ok=True)
    (SITE / "index.html").write_text(FRONT, "utf-8")
    loads = list(all_loads(SITE))
    for each in loads:
        print(f"loaded from another host: {each}")
    if not failed and not searches_offline(SITE):
        print("the search needs a server")
        failed = 1
    if arguments:
        failed |= _sphinx("linkcheck", ROOT / "build" / "linkcheck")
    print(f"{'failed' if failed or loads else 'built'}: {SITE / 'index.html'}")
    return 1 if failed or loads else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
