"""The texts of docs/python/: whole docstrings, a page for each part; by ``tests.kit.reference``.

Each page begins with an example, which `tests/test_document_code.py` runs after the code of the
first tutorial.
Modules that import pyspark, which most environments don't have, are read as source.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import executor_proxy
import strandline
from executor_proxy import LookupReport, Patience, Timeouts, ViewLocation, connect
from executor_proxy.report import Fallback, Lookup
from executor_proxy.view_location import LocatedView
from fsview.model.file_group import BaseFile, FileSlice, LogFile
from fsview.model.file_system_view import FileSystemView
from strandline import LocalEngine, Table, TimelineService, WriteClient
from strandline.client import RestClient
from strandline.fleet.table_servers import servers_of
from strandline.read.scan import PinnedTable, Scan
from strandline.table_api.history import CommitSummary
from strandline.table_api.inspect import Inspect
from strandline.table_services.archive.run import ArchiveResult
from strandline.table_services.clean.execution import CleanResult
from strandline.table_services.clean.preview import CleanPreview, FileFate
from strandline.table_services.compact.planner import CompactionResult
from strandline.table_services.doctor.repair import Repair
from strandline.write.result import WriteResult
from tests.kit.docstring_markdown import markdown

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "python"
WIDTH = 88
"""The longest signature on one line."""
FOOT = """\
---

[All names, errors](../python.md). Made from docstrings: `python -m tests.kit.reference --write`.
"""


class OfSpark(NamedTuple):
    """A public name of a module that imports pyspark."""

    module: str
    name: str


class Described(NamedTuple):
    """What a page says of one name: its heading, signature (``""`` for a value), docstring."""

    heading: str
    signature: str
    doc: str


class Page(NamedTuple):
    """A page: its title, a sentence, an example, what that prints, and what the page describes."""

    title: str
    about: str
    example: str
    printed: str
    things: tuple[Any, ...]


PAGES = {
    "table": Page(
        "Table: files, history, faults",
        "A `Table` reads the table at a path or URL, and changes nothing.",
        """\
from strandline import Table

table = Table("/tmp/lake/flights")
print(table.partitions()["partition"].to_pylist())
print(table.history()["operation"].to_pylist())
print(table.doctor().num_rows, "faults")
""",
        """\
['mon', 'tue']
['INSERT', 'UPSERT']
0 faults
""",
        (Table, CommitSummary, CleanPreview, FileFate),
    ),
    "scan": Page(
        "Scan: rows of one time",
        "`Table.scan` and `Table.incremental` return a `Scan`. It reads when you ask for rows.",
        """\
from strandline import Table

table = Table("/tmp/lake/flights")
late = table.scan(["id", "late"], filter="late > 10")
print(late.to_arrow().sort_by("id").to_pylist())
print(late.count(), "late, of", table.scan().count())
""",
        """\
[{'id': 'AF007', 'late': 55}, {'id': 'LH401', 'late': 12}]
2 late, of 5
""",
        (Scan, PinnedTable),
    ),
    "inspect": Page(
        "Inspect: metadata as tables",
        "`Table.inspect` shows what lies in the table's metadata folder.",
        """\
from strandline import Table

inspect = Table("/tmp/lake/flights").inspect
print(inspect.instants()["action"].unique().to_pylist())
""",
        """\
['commit']
""",
        (Inspect,),
    ),
    "write-client": Page(
        "WriteClient: writes and table services",
        "A `WriteClient` writes one table. Close it, or use it in a `with` block.",
        """\
import pyarrow as pa
from strandline import LocalEngine, WriteClient

options = {
    "hoodie.table.name": "flights",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "day",
    "hoodie.table.ordering.fields": "ts",
}
rows = pa.table({"id": ["LH400"], "day": ["mon"], "ts": [5], "late": [3]})
with WriteClient(LocalEngine(), "/tmp/lake/flights", options) as client:
    result = client.upsert(rows, extra_metadata={"feed.offset": "1042"})
    print(result.rows_updated, "updated")
    print(client.delete(rows).rows_deleted, "deleted")
""",
        """\
1 updated
1 deleted
""",
        (
            WriteClient,
            LocalEngine,
            WriteResult,
            CleanResult,
            CompactionResult,
            ArchiveResult,
            Repair,
        ),
    ),
    "service": Page(
        "TimelineService, RestClient, fleets",
        "A `TimelineService` runs in a child of this process; a `RestClient` asks any service.",
        """\
from strandline import TimelineService
from strandline.client import RestClient

with TimelineService(["/tmp/lake"]) as service:
    client = RestClient(service.local_url, service.token)
    for row in client.rows("partitions", table="/tmp/lake/flights"):
        print(row["partition"], row["file_groups"])
""",
        """\
mon 1
tue 1
""",
        (TimelineService, RestClient, servers_of),
    ),
    "look-ups": Page(
        "connect: look-ups in a service",
        "`connect` returns a view, whose methods answer which files are read at one instant.",
        """\
from executor_proxy import connect
from strandline import TimelineService

with TimelineService(["/tmp/lake"]) as service:
    view = connect(service.local_url, "/tmp/lake/flights", token=service.token)
    print(len(list(view.latest_file_slices("mon"))), "slice of monday")
    view.close()
""",
        """\
1 slice of monday
""",
        (
            connect,
            LocatedView,
            FileSystemView,
            ViewLocation,
            Timeouts,
            Patience,
            LookupReport,
            Lookup,
            Fallback,
            FileSlice,
            BaseFile,
            LogFile,
        ),
    ),
    "spark": Page(
        "Spark: read, streams, a data source",
        "In a PySpark job, pass the `SparkSession` to `WriteClient`. Reading and streams have"
        " modules of their own, which need PySpark: examples of [reading](../reading.md#on-spark)"
        " and of [a stream](../tutorials/stream.md).",
        "",
        "",
        tuple(
            OfSpark(f"strandline.{module}", name)
            for module, name in (
                ("spark", "read"),
                ("stream", "write"),
                ("stream", "TableStream"),
                ("write.stream_sink", "BatchProgress"),
                ("spark_source", "StrandlineDataSource"),
            )
        ),
    ),
}


ELSEWHERE = (RestClient, servers_of)
"""Public names of other modules than the packages themselves."""


def described(thing: Any) -> list[Described]:
    """Return a name and, of a class, its public members by name."""
    return [*(_of_source(thing) if isinstance(thing, OfSpark) else _of_object(thing))]


def page(name: str) -> str:
    """Return the text of a page by its name."""
    about = PAGES[name]
    parts = [f"# {about.title}", about.about]
    if about.example:
        parts += [f"```python\n{about.example}```", f"```text\n{about.printed}```"]
    for thing in about.things:
        for level, (heading, called, doc) in enumerate(described(thing)):
            parts.append(f"{'###' if level else '##'} {heading}")
            parts += [f"```pyi\n{called}\n```"] * bool(called)
            parts.append(markdown(doc, "../.."))
    return "\n\n".join([*parts, FOOT])


def _of_object(thing: Any) -> Iterator[Described]:
    """Yield a function, or a class and its public members, by name."""
    name = thing.__name__
    module = _import(thing)
    if not isinstance(thing, type):
        yield Described(name, f"{module}\n{_signature(thing)}", inspect.getdoc(thing) or "")
        return
    yield Described(name, module + _constructor(thing), inspect.getdoc(thing) or "")
    for member, value in sorted(vars(thing).items()):
        if member.startswith("_"):
            continue
        doc = inspect.getdoc(value) or ""
        if isinstance(value, property):
            yield Described(f"{name}.{member}", "", doc)
        elif isinstance(value, staticmethod | classmethod) or inspect.isfunction(value):
            called = _signature(getattr(value, "__func__", value))
            yield Described(f"{name}.{member}", called, doc)


def _of_source(thing: OfSpark) -> Iterator[Described]:
    """Yield the same of a module that may not be imported."""
    path = ROOT.joinpath(*thing.module.split(".")).with_suffix(".py")
    (found,) = (
        node
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == thing.name
    )
    module = f"from {thing.module} import {thing.name}"
    doc = ast.get_docstring(found) or ""
    if isinstance(found, ast.FunctionDef):
        yield Described(f"{thing.module}.{thing.name}", f"{module}\n{_shown(found)}", doc)
        return
    yield Described(f"{thing.module}.{thing.name}", module, doc)
    for node in found.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            told = ast.get_docstring(node) or ""
            yield Described(f"{thing.name}.{node.name}", _shown(node), told)


def _import(thing: Any) -> str:
    """Return how a name is imported, ``""`` if others return its values."""
    for module in (strandline, executor_proxy):
        if thing.__name__ in module.__all__:
            return f"from {module.__name__} import {thing.__name__}"
    return f"from {thing.__module__} import {thing.__name__}" if thing in ELSEWHERE else ""


def _constructor(kind: type) -> str:
    """Return how a class is called, if callers make its instances."""
    if not _import(kind):
        return ""
    if dataclasses.is_dataclass(kind):
        fields = (
            f"{each.name}: {each.type}"
            + ("" if each.default is dataclasses.MISSING else f" = {each.default!r}")
            for each in dataclasses.fields(kind)
            if each.init and not each.name.startswith("_")
        )
        return "\n" + _lines(f"{kind.__name__}(", [*fields], ")")
    called = _definition(kind.__init__)
    called.name, called.returns = kind.__name__, None
    return f"\n{_shown(called)}"


def _signature(function: Any) -> str:
    """Return a function's parameters with types and defaults, and what it returns."""
    return _shown(_definition(function))


def _definition(function: Any) -> ast.FunctionDef:
    source = textwrap.dedent(inspect.getsource(function))
    return next(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))


def _shown(definition: ast.FunctionDef) -> str:
    """Return a function's signature without ``self``, on several lines if it is long."""
    ours = definition.args
    for plain in (ours.posonlyargs, ours.args):
        plain[:] = [each for each in plain if each.arg not in ("self", "cls")]
    returns = "" if definition.returns is None else f" -> {ast.unparse(definition.returns)}"
    if "contextmanager" in map(ast.unparse, definition.decorator_list):
        returns = returns.replace("Iterator", "AbstractContextManager", 1)
    positional = [*ours.posonlyargs, *ours.args]
    defaults = [None] * (len(positional) - len(ours.defaults)) + [*ours.defaults]
    given = [*zip(positional, defaults, strict=True)]
    parameters = [_parameter(each, default) for each, default in given]
    if ours.vararg or ours.kwonlyargs:
        parameters.append(f"*{_parameter(ours.vararg, None) if ours.vararg else ''}")
    parameters += map(_parameter, ours.kwonlyargs, ours.kw_defaults)
    if ours.kwarg:
        parameters.append(f"**{_parameter(ours.kwarg, None)}")
    return _lines(f"{definition.name}(", parameters, f"){returns}")


def _parameter(each: ast.arg, default: ast.expr | None) -> str:
    kind = f": {ast.unparse(each.annotation)}" if each.annotation else ""
    return f"{each.arg}{kind}" + ("" if default is None else f" = {ast.unparse(default)}")


def _lines(begin: str, parameters: list[str], end: str) -> str:
    short = f"{begin}{', '.join(parameters)}{end}"
    if len(short) <= WIDTH:
        return short
    return "\n".join([begin, *(f"    {each}," for each in parameters), end])
