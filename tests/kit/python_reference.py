"""The text of docs/python.md: public names, errors, codes; by ``tests.kit.reference``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fsview.store.sql import connections
from fsview.store.sql.sqlite import database
from tests.kit.python_pages import PAGES, described
from timeline import errors
from timeline.errors import StrandlineError

DOCUMENT = Path(__file__).parents[2] / "docs" / "python.md"
HEAD = """\
# Reference: Python names and errors

What jobs import, with the first sentence of each docstring. Each name leads to its page, which has
the whole: parameters, results, errors, costs, and an example. Other names may change without
notice. This page and those are generated from the code by `python -m tests.kit.reference --write`;
edit the docstrings.
"""
ERRORS_HEAD = """
## Errors

All descend from `StrandlineError`, indented ones from the one above, and are in `timeline.errors`,
but for three of stores in SQL, which stay in a service: its log and status have their codes.
`error.hint` says what to do. Services send `code` and `status`, and their client raises the class
again; a `retryable` call may succeed later, unchanged.
"""

REFUSALS_HEAD = """
### Codes without a class

A service answers with these, too. Clients raise `RemoteFailureError` with code and status.
"""
REFUSALS = {
    ("bad_request", 400): "no request by HTTP's rules: its line, its headers, its target",
    ("bad_parameter", 400): "a parameter of `/v2` isn't allowed; `allowed` says what is",
    ("bad_cursor", 400): "a cursor of another route, or with other parameters than its first page",
    ("missing_parameter", 400): "a parameter that must be given isn't",
    ("unknown_parameter", 400): "the operation has no such parameter",
    ("unauthorized", 401): "no token, or another one",
    ("forbidden", 403): "a POST from a web page, which its `Origin` shows",
    ("unknown_route", 404): "`/v2` has no such path",
    ("method_not_allowed", 405): "`/v2` is read by GET alone",
    ("request_timeout", 408): "the request wasn't whole in time",
    ("cursor_gone", 410): "the cursor isn't held any more; begin anew",
    ("snapshot_gone", 410): "the state as of `at` can't be answered any more",
    ("request_entity_too_large", 413): "the body is too long",
    ("request_uri_too_long", 414): "the request's target is too long",
    ("too_many_rows", 422): "an answer would have more rows than one may",
    ("request_header_fields_too_large", 431): "too many headers, or too long ones",
    ("internal_server_error", 500): "a fault of the service, which its log describes",
    ("not_implemented", 501): "a `Transfer-Encoding` that isn't `chunked`",
    ("service_unavailable", 503): "too many connections, or bodies; ask again",
    ("too_many_watchers", 503): "as many requests watch tables as may; ask again",
}
"""Code and status → meaning; ``tests/test_docs.py`` looks for others in the service's source."""


_MODULES = {module.__name__ for module in (errors, connections, database)}
"""The modules that define errors."""


def python_reference() -> str:
    """Return the document."""
    parts = [HEAD]
    for name, page in PAGES.items():
        parts += [
            f"\n## {page.title}\n",
            f"[All of it](python/{name}.md). {page.about}\n".replace("](../", "]("),
        ]
        rows = [(_linked(name, each.heading), _sentence(each.doc)) for each in _all_of(page.things)]
        parts += [_table(("name", "what it is, or does"), rows)]
    parts += [ERRORS_HEAD, _table(("error", "code", "status", "retryable", "means"), _errors())]
    refusals = ((f"`{code}`", str(status), text) for (code, status), text in REFUSALS.items())
    parts += [REFUSALS_HEAD, _table(("code", "status", "means"), refusals)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)) + "\n"


def _all_of(things: tuple[Any, ...]) -> Iterator[Any]:
    for thing in things:
        yield from described(thing)


def _linked(page: str, heading: str) -> str:
    """Return a heading as a link to it, by the anchors that code hosts and Sphinx make."""
    return f"[`{heading}`](python/{page}.md#{heading.replace('.', '').lower()})"


def _errors(kind: type[StrandlineError] = StrandlineError, depth: int = 0) -> Iterator[Any]:
    indent = "&emsp;" * depth
    retryable = "yes" if kind.retryable else ""
    yield (
        f"{indent}`{kind.__name__}`",
        f"`{kind.code}`",
        str(kind.status),
        retryable,
        _meaning(kind),
    )
    for below in kind.__subclasses__():
        if below.__module__ in _MODULES:
            yield from _errors(below, depth + 1)


def _meaning(kind: type[StrandlineError]) -> str:
    """Return the first paragraph of an error's docstring, and its attributes."""
    doc = inspect.getdoc(kind) or ""
    own = re.findall(r"^    (\w+): ", doc.partition("Attributes:")[2], re.MULTILINE)
    more = f" It has {' and '.join(f'`{name}`' for name in own)}." if own else ""
    return _sentence(doc) + more


def _sentence(doc: str) -> str:
    """Return a docstring's first paragraph in Markdown."""
    return " ".join(doc.partition("\n\n")[0].split()).replace("``", "`")


def _table(head: tuple[str, ...], rows: Any) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )
