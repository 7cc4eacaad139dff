"""The text of docs/python.md, from signatures and docstrings; written by ``tests.kit.reference``.

Modules that import pyspark, which most environments don't have, are read as source.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from executor_proxy import LookupReport, Patience, Timeouts, ViewLocation, connect
from executor_proxy.view_location import LocatedView
from strandline import LocalEngine, Table, TimelineService, WriteClient
from strandline.client import RestClient
from strandline.fleet.table_servers import servers_of
from strandline.read.scan import PinnedTable, Scan
from strandline.table_api.history import CommitSummary
from strandline.table_api.inspect import Inspect
from strandline.write.result import WriteResult
from timeline import errors
from timeline.errors import StrandlineError

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "python.md"
HEAD = """\
# Reference: Python names and errors

What jobs import: signatures with types and defaults, and the first sentence of each docstring;
`help(Table.scan)` has parameters, shapes and errors. Other names may change without notice. This
page is generated from the code by `python -m tests.kit.reference --write`; edit the docstrings.
"""
CLASSES = {
    "`from strandline import`": (Table, WriteClient, LocalEngine, TimelineService),
    "Their methods return it": (Scan, Inspect, PinnedTable, CommitSummary, WriteResult),
    "`from executor_proxy import`": (ViewLocation, LookupReport, Timeouts, Patience),
    "`connect` returns it": (LocatedView,),
    "`from strandline.client import`": (RestClient,),
}
FUNCTIONS = (connect, servers_of)
OF_SPARK = {"strandline.spark": ("read",), "strandline.stream": ("write",)}
"""Public functions of modules that import pyspark."""
SOURCES = {"strandline.spark_source": ("StrandlineDataSource",)}
ERRORS_HEAD = """
## Errors

All are in `timeline.errors` and descend from `StrandlineError`: indented ones from the one above.
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


def python_reference() -> str:
    """Return the document."""
    parts = [HEAD]
    for how, classes in CLASSES.items():
        for each in classes:
            parts += [
                "",
                f"## {each.__name__}",
                "",
                f"({how})" if how else "",
                "",
                _first(each),
                "",
            ]
            parts += [_table(("name", "what it is"), rows)] if (rows := [*_members(each)]) else []
    parts += ["", "## Functions", "", _table(("name", "what it does"), _functions())]
    parts += [ERRORS_HEAD, _table(("error", "code", "status", "retryable", "means"), _errors())]
    refusals = ((f"`{code}`", str(status), text) for (code, status), text in REFUSALS.items())
    parts += [REFUSALS_HEAD, _table(("code", "status", "means"), refusals)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)) + "\n"


def _members(kind: type) -> Iterator[tuple[str, str]]:
    """Yield the public members of a class, methods with their parameters."""
    told = _attributes(inspect.getdoc(kind) or "")
    yield from ((f"`{name}`", text) for name, text in told.items())
    for name, member in sorted(vars(kind).items()):
        if name.startswith("_") or name in told:
            continue
        if isinstance(member, property):
            yield f"`{name}`", _first(member)
        elif isinstance(member, staticmethod | classmethod) or inspect.isfunction(member):
            function = getattr(member, "__func__", member)
            yield f"`{name}{_signature(function)}`", _first(function)
    if dataclasses.is_dataclass(kind):
        missing = {each.name for each in dataclasses.fields(kind)} - told.keys()
        assert not {name for name in missing if not name.startswith("_")}, (kind, missing)


def _attributes(doc: str) -> dict[str, str]:
    """Return what a docstring's section `Attributes` says of each, as one line."""
    section = re.search(r"^Attributes:\n((?:    .*\n|\n)+)", doc + "\n", re.MULTILINE)
    if section is None:
        return {}
    found = re.findall(r"^(\w+): ((?:.|\n(?= ))+)", textwrap.dedent(section[1]), re.MULTILINE)
    return {name: _sentence(text) for name, text in found}


def _signature(function: Any) -> str:
    """Return parameters with types and defaults, and what is returned."""
    source = textwrap.dedent(inspect.getsource(function))
    definition = next(n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef))
    return _of_source(definition)


def _functions() -> Iterator[tuple[str, str]]:
    for each in FUNCTIONS:
        package = each.__module__ if "fleet" in each.__module__ else "executor_proxy"
        yield f"`{package}.{each.__name__}{_signature(each)}`", _first(each)
    for module, names in (OF_SPARK | SOURCES).items():
        path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in names:
                doc = ast.get_docstring(node) or ""
                called = _of_source(node) if isinstance(node, ast.FunctionDef) else ""
                yield f"`{module}.{node.name}{called}`", _sentence(doc)


def _of_source(definition: ast.FunctionDef) -> str:
    """Return a function's parameters and its result as in the source, without ``self``."""
    arguments = definition.args
    for plain in (arguments.posonlyargs, arguments.args):
        plain[:] = [each for each in plain if each.arg not in ("self", "cls")]
    returns = "" if definition.returns is None else f" -> {ast.unparse(definition.returns)}"
    if "contextmanager" in map(ast.unparse, definition.decorator_list):
        returns = returns.replace("Iterator", "AbstractContextManager", 1)
    # All parameters have types, so that Python's style has spaces around defaults.
    return f"({ast.unparse(arguments).replace('=', ' = ')}){returns}"


def _errors(kind: type[StrandlineError] = StrandlineError, depth: int = 0) -> Iterator[Any]:
    indent = "&emsp;" * depth
    retryable = "yes" if kind.retryable else ""
    yield f"{indent}`{kind.__name__}`", f"`{kind.code}`", str(kind.status), retryable, _first(kind)
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from _errors(below, depth + 1)


def _first(thing: Any) -> str:
    return _sentence(inspect.getdoc(thing) or "")


def _sentence(doc: str) -> str:
    """Return a docstring's first paragraph in Markdown."""
    return " ".join(doc.partition("\n\n")[0].split()).replace("``", "`")


def _table(head: tuple[str, ...], rows: Any) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )
