"""Generate docs/reference.md, python.md, python/: ``python -m tests.kit.reference --write``.

Commands come from click, view routes from the route table, settings from the tables of settings.
``tests/test_docs.py`` fails if a document is out of date or lacks a route that is served.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from prometheus_client import Metric

from fsview.wire.routes import ROUTES
from strandline.__main__ import main as command_line
from strandline.cli.serve import SettingOption
from strandline.fleet.forward import Forwarder
from strandline.server.api.metrics import families
from strandline.server.process.composition_root import Parts
from strandline.server.process.options import PartsOptions
from strandline.server.rest.operation import OPENAPI, OPERATIONS
from strandline.settings.command_line import SERVE_SETTINGS
from strandline.settings.setting import Setting
from strandline.write.options.client_options import ALIASES, WRITER_SETTINGS
from strandline.write.options.foreign_options import (
    HARMLESS,
    REFUSED,
    WITHOUT_EFFECT,
    HudiOption,
)
from tests.kit import python_pages, python_reference
from timeline import tracing

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference.md"
HEAD = """\
# Reference: commands, settings, routes

Every command, setting, route, metric and span. This page is generated from the code by
`python -m tests.kit.reference --write`; edit the texts there, not here.
"""
SETTINGS = """\
## Settings

These are options of `WriteClient(spark, base_path, options)`, given as text or as Python values.
`strandline serve` takes those of the table above, from flags, environment variables or a file
([operating.md](operating.md)).

- Names and defaults are Hudi's, unless the last column gives a reason. Settings that only
  Strandline has begin with `strandline.`.
- *Scope* is the part that reads a setting: the `service`, a `table`, the writing `client` in the
  driver, or its `executor`s.
- A value that isn't allowed raises `ConfigError` before anything is written. So does an option of
  Hudi that asks for something the writer doesn't do, a name that differs from a known one by at
  most two letters, and one that begins with `strandline.` and is like another. Other unknown
  options that begin with `hoodie.` or `strandline.` are named in one warning and in the first
  result ([writing.md](writing.md#options)).
"""
HUDI_OPTIONS = """\
### Options of Hudi without a setting

Jobs that were written for Hudi bring these along. A name that ends with `*` stands for all names
that begin with it; the longest entry decides.
"""
ROUTES_HEAD = """\
## Routes

- Every view route takes `basepath`, `lastinstantts` and `timelinehash` in the query string, besides
  the parameters listed.
- Without a `timelinehash` the answer describes the newest state; the headers
  `Strandline-Last-Instant` and `Strandline-Timeline-Hash` name it.
- A client whose timeline the service neither holds nor can derive gets 400.
- With a token, every request except `/`, `/healthz`, `/readyz` and the page's files must carry
  `Authorization: Bearer TOKEN`; otherwise the answer is 401.
- If the request's `Accept` names `application/vnd.strandline.columns+json`, as the proxy's does,
  the newest base files and slices of a partition are answered in columns
  (`fsview/wire/column_form.py`); otherwise in Hudi's form.
- A *hot* route can be answered on the event loop from encoded bytes in memory.
"""
OTHER_ROUTES = {
    "GET /": "`Hello Hudi`, as Hudi's server answers; needs no token",
    "GET /healthz": (
        "200 while the service can serve any of its roots, else 503; with the reasons why it can't"
        " serve all; needs no token"
    ),
    "GET /readyz": "`root`, optional: 200 if this root, or every one, can be served, else 503 with"
    " the reasons; needs no token",
    "GET /metrics": "the [metrics](#metrics), for Prometheus",
    "GET /ui": "the [page](operating.md#the-page) and, below this path, its files; need no token",
    "GET /v1/strandline/status": (
        "`table`, `tables`, optional: counters of the service, of its tables from this base path on"
        " (so many at most; default and maximum 1000), and the settings, as JSON; `next_table`"
        " begins the next page"
    ),
    "POST /v1/strandline/lookup": (
        "`basepath`, `lastinstantts`, `timelinehash` in the query string, and a JSON body such as"
        ' `{"queries": [{"query": "latest_base_files", "partitions": ["p=1", "p=2"]}, {"query":'
        ' "latest_base_file", "partition": "p=1", "file_ids": ["a", "b"]}]}`: many look-ups at one'
        " instant, answered in columns (`fsview/wire/column_form.py`). The other queries are"
        " `latest_file_slices`, `latest_file_slice`, and with `max_instant`"
        " `latest_base_files_before_or_on` and `latest_merged_file_slices_before_or_on`. At most"
        " 100,000 look-ups, none of them twice, and 256 MB of answers"
    ),
    "POST /v1/hoodie/marker/create": (
        "`markerdirpath`, `markername`: create a marker durably; answers `true` if it is new. With"
        " `basepath`, an early conflict is answered with `false` ([markers.md](markers.md))"
    ),
    "POST /v1/hoodie/marker/create-all": (
        "`markerdirpath`, `markernames`, separated by line feeds, in a query of at most 32 KiB:"
        " create markers with one flush; answers a list of what `create` would answer, `basepath`"
        " included. Strandline's own"
    ),
    "GET /v1/hoodie/marker/all": "`markerdirpath`: all its markers",
    "GET /v1/hoodie/marker/create-and-merge": "`markerdirpath`: its CREATE and MERGE markers",
    "GET /v1/hoodie/marker/append": "`markerdirpath`: its APPEND markers",
    "GET /v1/hoodie/marker/dir/exists": "`markerdirpath`: whether the directory exists",
    "POST /v1/hoodie/marker/dir/delete": "`markerdirpath`: delete the directory and its markers",
    "GET /v1/hoodie/partitioner/getpartitionindex": (
        "`partitionpath`, `partitionnum`, `numbuckets`: the Spark partition that writes a partition"
        " path's first bucket, for Hudi's bucket index"
    ),
    "GET /v1/hoodie/instantstate/all": (
        "`instantstatedirpath`: the instant states of Flink's writers, from the last listing"
    ),
    "POST /v1/hoodie/instantstate/refresh": "`instantstatedirpath`: list them again",
}
REST_HEAD = """
### `/v2`

For people and tools ([operating.md](operating.md#looking-inside)): GET, without a timeline hash.
Answers are JSON; rows also come as an Arrow stream, if `Accept` names
`application/vnd.apache.arrow.stream`. Parameters that must be given are in bold type. A bad request
gets a JSON object with `status`, `code`, `error`, and where it helps `parameter`, `value`,
`allowed` and `hint`.
"""


SPANS_HEAD = """
## Spans

A service exports them with the extra `strandline[otel]`, an application by its own provider
([operating.md](operating.md#traces)). These variables of OpenTelemetry decide; its SDK reads them
and all others that it knows:
"""
VARIABLES = {
    "`OTEL_TRACES_EXPORTER`": (
        "`otlp` if there is an endpoint, else `none`; exporters that are installed, such as"
        " `console`, separated by commas"
    ),
    "`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`": (
        "`http://localhost:4318`; the first without the path, the second with it"
    ),
    "`OTEL_EXPORTER_OTLP_PROTOCOL`, `OTEL_EXPORTER_OTLP_TRACES_PROTOCOL`": (
        "`http/protobuf`; `grpc` needs `opentelemetry-exporter-otlp-proto-grpc`"
    ),
    "`OTEL_EXPORTER_OTLP_HEADERS`, `…_CERTIFICATE`, `…_COMPRESSION`, `…_TIMEOUT`": "the SDK's",
    "`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`": (
        "`strandline`; its version and process are added"
    ),
    "`OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG`": "`parentbased_always_on`",
    "`OTEL_BSP_*`": "the SDK's: 2,048 spans queued, sent every 5 s",
    "`OTEL_SDK_DISABLED`": "`false`",
}
SPANS = (
    ("`write OPERATION`", "a write, such as `write upsert`", "`TABLE`, `INSTANT`"),
    ("`step STEP`", "a step of it, named as in `WriteResult.seconds`", ""),
    ("`task TASK`", "a task, such as `task WriteTask`", "`strandline.task.attempt`"),
    (
        "`clean`, `archive`, `compact`, `schedule compaction`, `rollback`, `repair`",
        "a call of the client's method",
        "`TABLE`",
    ),
    (
        "`execute clean`, `execute compaction`, `execute archival`",
        "one, within such a call or a write",
        "`TABLE`; of the first two `INSTANT`, of a clean `strandline.files`, deleted",
    ),
    ("`plan clean`, `carry out clean`", "the parts of a clean", ""),
    (
        "`execute rollback`",
        "a rollback, of the client's method, or in a write's or a clean's repair",
        "`TABLE`, `INSTANT`: its own",
    ),
    (
        "`plan rollback`, `undo instant`, `sweep markers`",
        "the search for a dead write's files, their deletion with the instant, the look for"
        " markers and heartbeats that are left",
        "of the second `strandline.files`, of the plan",
    ),
    (
        "`METHOD ROUTE`, kind `SERVER`",
        "a request to a service",
        "`http.request.method`, `http.route`, `http.response.status_code`, `url.path`,"
        " `url.scheme`, `client.address`, `network.protocol.version`, `TABLE`,"
        " `strandline.request.id`",
    ),
    (
        "`METHOD PATH`, kind `CLIENT`",
        "a request, each time that it is sent",
        "`http.request.method`, `http.response.status_code`, `url.template`, `url.full` without the"
        " query, `server.address`, `server.port`",
    ),
    ("`sync`", "a sync, or the wait for one", "`TABLE`, `CAUSE`, `INSTANT`: the newest"),
    ("`load`", "a load, or the wait for one", "`TABLE`, `strandline.partitions`: how many"),
    (
        "`storage KIND`",
        "a call: `list`, `stat`, `read`, `create`, `replace`, `delete`",
        "`TABLE`, `CAUSE`, `strandline.storage.call`, `strandline.storage.path`",
    ),
    (
        "`database read`, `database write`",
        "a transaction of a store of views in SQL, with the wait for its lock",
        "`TABLE`, `strandline.database`: its name without passwords",
    ),
)
SPANS_FOOT = """
What fails has the status `ERROR` and `error.type`: the code of Strandline's error, the class of
another one, or the HTTP status. A file that isn't there is an error of its call alone.
"""
METRICS_HEAD = """
## Metrics

Of `GET /metrics` ([operating.md](operating.md#monitoring)), beside `process_*` of the process.
Those that begin with `strandline_fleet_`, `_forwarded_` and `_copies_` are of a server in a fleet.
"""
SUFFIXES = {"counter": "_total", "info": "_info"}
NO_FLEET = {
    "members": (),
    "epoch": 0,
    "vacant": (),
    "drained": (),
    "groups": {},
    "renewed": True,
    "trouble": None,
    "outages": 0,
    "records": {},
    "moves": (),
    "moved": {"reached": {}, "seconds": {}},
    "creations": {},
}


def settings() -> tuple[Setting[Any], ...]:
    """Return every setting of the write client and of ``serve``."""
    return (*WRITER_SETTINGS, *SERVE_SETTINGS)


def served() -> set[str]:
    """Return ``METHOD /path`` of every route, without trailing slashes."""
    routes = Parts(PartsOptions((), None, ui=True)).routes
    found = {f"{method} {path.rstrip('/') or '/'}" for method, path in routes}
    return {route for route in found if not route.startswith("GET /ui/")}


def commands(group: click.Group = command_line) -> Iterator[tuple[str, click.Command]]:
    """Yield name and command of every verb, such as ``fleet status``."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from ((f"{name} {below}", verb) for below, verb in commands(command))
        elif command is not None and not command.hidden:
            yield name, command


def reference() -> str:
    """Return the document."""
    parts = [HEAD, *_commands(), SETTINGS, *_settings(), *_hudi_options()]
    parts += [ROUTES_HEAD, *_routes(), METRICS_HEAD, *_metrics(), *_spans()]
    return "\n".join(parts) + "\n"


def _commands() -> Iterator[str]:
    yield "## Commands\n"
    for name, command in commands():
        about = inspect.cleandoc(command.help or "").replace("\n", " ").replace("  ", "\n\n")
        yield f"### strandline {name}\n\n{about}\n"
        options = [
            option
            for option in command.params
            if isinstance(option, click.Option) and not option.hidden
        ]
        head = ("option", "setting", "default", "what it does")
        yield _table(head, map(_option, options)) + "\n"


def _option(option: click.Option) -> tuple[str, str, str, str]:
    if not isinstance(option, SettingOption):
        spelled = ", ".join(option.opts) + ("" if option.is_flag else f" {_metavar(option)}")
        default = f"`{option.default}`" if option.show_default else ""
        return f"`{spelled}`", "", default, option.help or ""
    flag = option.flag
    spelled = f"{flag.name} {flag.metavar}".strip()
    names = ", ".join(f"`{setting.name}`" for setting in flag.settings)
    return f"`{spelled}`", names, f"`{flag.default}`" if flag.default else "", flag.doc


def _metavar(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return f"[{'|'.join(option.type.choices)}]"
    return option.metavar or option.type.name.split()[0].upper()


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def _settings() -> Iterator[str]:
    rows = []
    for setting in sorted(settings(), key=lambda setting: setting.name):
        others = sorted(alias for alias, name in ALIASES.items() if name == setting.name)
        also = f" Also `{'`, `'.join(others)}`." if others else ""
        default = (
            str(setting.default).lower() if isinstance(setting.default, bool) else setting.default
        )
        rows.append(
            (
                f"`{setting.name}`",
                f"`{default}`" if default != "" else "",
                setting.describe_allowed(),
                setting.scope,
                setting.doc + also,
            )
        )
    yield _table(("setting", "default", "allowed", "scope", "what it does"), rows) + "\n"


def _hudi_options() -> Iterator[str]:
    yield HUDI_OPTIONS
    for what, entries in (("refused", REFUSED), ("ignored with a warning", WITHOUT_EFFECT)):
        rows = [
            (
                _names(entry),
                ", ".join(f"`{value}`" for value in entry.asks_nothing if value),
                entry.reason,
            )
            for entry in entries
        ]
        yield _table((what, "unless it is", "because"), rows) + "\n"
    harmless = [(_names(entry), entry.reason) for entry in HARMLESS]
    yield _table(("ignored", "because"), harmless) + "\n"


def _names(entry: HudiOption) -> str:
    """Return an entry's names, the prefixes with a star."""
    starred = (f"{name}*" if name.endswith(".") else name for name in entry.names)
    return ", ".join(f"`{name}`" for name in starred)


def _routes() -> Iterator[str]:
    view_routes = []
    for route in ROUTES:
        names = ", ".join(f"`{param.name}`" for param in route.params)
        hot = "yes" if route.hot else ""
        view_routes.append((f"`{route.method} {route.path}`", names, f"`{route.name}`", hot))
    yield "### The view\n"
    yield _table(("route", "parameters", "method of `FileSystemView`", "hot"), view_routes) + "\n"
    yield "### Markers and the service itself\n"
    yield _table(
        ("route", "parameters, and what it does"),
        ((f"`{route}`", what) for route, what in OTHER_ROUTES.items()),
    )
    yield REST_HEAD
    rest = [(f"`GET {OPENAPI}`", "", "", "OpenAPI 3.1 document of these routes")]
    for each in OPERATIONS:
        names = (f"**`{p.name}`**" if p.required else f"`{p.name}`" for p in each.parameters)
        columns = ", ".join(f"`{column.name}`" for column in each.columns)
        rest.append((f"`GET {each.path}`", ", ".join(names), columns, each.doc))
    yield _table(("route", "parameters", "columns of its rows", "what it answers"), rest) + "\n"
    # One name may mean different things to different routes.
    rows = {
        (
            f"`{p.name}`",
            "" if p.default in (None, "") else f"`{p.schema['default']}`",
            p.allowed,
            p.doc,
        )
        for each in OPERATIONS
        for p in each.parameters
    }
    yield _table(("parameter", "default", "allowed", "what it means"), sorted(rows))


def metrics() -> list[Metric]:
    """Return every metric of a service in a fleet, without samples of tables."""
    forwarder = Forwarder("http://a:1", lambda *_: (), None)
    parts = Parts(PartsOptions((), None), forwarder=forwarder, fleet=lambda: NO_FLEET)
    return list(families(parts.scrape()))


def _metrics() -> Iterator[str]:
    rows = [
        (
            f"`{family.name}{SUFFIXES.get(family.type, '')}`",
            family.type,
            ", ".join(f"`{label}`" for label in getattr(family, "_labelnames", ())),
            family.documentation,
        )
        for family in sorted(metrics(), key=lambda each: each.name)
    ]
    yield _table(("metric", "type", "labels", "what it is"), rows)


def _spans() -> Iterator[str]:
    yield SPANS_HEAD
    yield _table(("variable", "default"), VARIABLES.items())
    yield ""
    rows = [[_with_attributes(cell) for cell in row] for row in SPANS]
    yield _table(("span", "of", "attributes"), rows)
    yield SPANS_FOOT.rstrip()


def _with_attributes(cell: str) -> str:
    for name in ("TABLE", "INSTANT", "CAUSE"):
        cell = cell.replace(f"`{name}`", f"`{getattr(tracing, name)}`")
    return cell


def main(arguments: Sequence[str]) -> int:
    """Print the first document, or with ``--write`` write all once their whole texts are made."""
    if arguments == ["--write"]:
        made = {
            DOCUMENT: reference(),
            python_reference.DOCUMENT: python_reference.python_reference(),
            **{
                python_pages.FOLDER / f"{name}.md": python_pages.page(name)
                for name in python_pages.PAGES
            },
        }
        for document, text in made.items():
            document.write_text(text, "utf-8")
            print(f"written: {document}")
        return 0
    if arguments:
        print("usage: python -m tests.kit.reference [--write]", file=sys.stderr)
        return 2
    sys.stdout.write(reference())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
