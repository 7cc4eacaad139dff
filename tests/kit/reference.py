"""Makes docs/reference.md from the code: ``python -m tests.kit.reference --write``.

Commands come from click, routes from the running app's own map, settings from the tables of
settings, so the document can't say what the code doesn't. ``tests/test_docs.py`` fails when it is
out of date.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from fsview.wire.routes import ROUTES
from strandline.__main__ import main as command_line
from strandline.clean.policy import CLEAN_SETTINGS
from strandline.serve import SettingOption
from strandline.service.process.options import PartsOptions
from strandline.service.process.parts import Parts
from strandline.settings.command_line import SERVE_SETTINGS
from strandline.settings.service import SERVICE_SETTINGS
from strandline.settings.setting import Setting
from strandline.write.settings import ALIASES, WRITE_SETTINGS

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference.md"
HEAD = """\
# Reference: commands, settings, routes

Made from the code by `python -m tests.kit.reference --write`; edit the docstrings and tables there.
"""
SETTINGS = """\
## Settings

Options of `WriteClient(spark, base_path, options)`, as text or as values. `strandline serve` takes
those of the table above, from flags, the environment or a file ([operating.md](operating.md)).
Names and defaults are Hudi's unless the last column says why not; what only Strandline has begins
with `strandline.`.
*Scope* says who reads a setting: the `service`, the `table`, the writing `client` in the driver, or
its `executor`s. Options that begin with `hoodie.` and aren't here are named in one warning; a value
that isn't allowed is a `ConfigError` before anything is written.
"""
ROUTES_HEAD = """\
## Routes

Every view route takes `basepath`, `lastinstantts` and `timelinehash` in the query string, besides
what is listed; without a `timelinehash` the answer is of the newest state, and its headers
`Strandline-Last-Instant` and `Strandline-Timeline-Hash` say which that is. A route is *hot* when
the service answers it from ready bytes without going through Flask. With a token every request but
`/` and `/healthz` must carry `Authorization: Bearer TOKEN`, else the answer is 401. A client whose
timeline the service neither holds nor can derive gets 400.
"""
OTHER_ROUTES = {
    "GET /": "greets, as Hudi's server does; needs no token",
    "GET /healthz": "200 when the service can serve, else 503 with the reasons; needs no token",
    "GET /v1/strandline/status": "counters as JSON, of the service and of each of its tables",
    "POST /v1/hoodie/marker/create": (
        "`markerdirpath`, `markername`: make a durable marker; answers whether it is new; with"
        " `basepath` also `false` for an early conflict ([markers.md](markers.md))"
    ),
    "GET /v1/hoodie/marker/all": "`markerdirpath`: all markers of an instant",
    "GET /v1/hoodie/marker/create-and-merge": "`markerdirpath`: those of files created or merged",
    "GET /v1/hoodie/marker/append": "`markerdirpath`: those of logs appended to",
    "GET /v1/hoodie/marker/dir/exists": "`markerdirpath`: whether it exists",
    "POST /v1/hoodie/marker/dir/delete": "`markerdirpath`: delete it",
    "GET /v1/hoodie/partitioner/getpartitionindex": (
        "`partitionpath`, `partitionnum`, `numbuckets`: where the buckets of a partition begin"
    ),
    "GET /v1/hoodie/instantstate/all": "`instantstatedirpath`: messages of Flink's writers",
    "POST /v1/hoodie/instantstate/refresh": "`instantstatedirpath`: list them anew",
}


def settings() -> tuple[Setting[Any], ...]:
    """Every setting of the writer, the cleaner and the service."""
    return (*WRITE_SETTINGS, *CLEAN_SETTINGS, *SERVICE_SETTINGS, *SERVE_SETTINGS)


def served() -> set[str]:
    """``METHOD /path`` of every rule that the app has, without trailing slashes."""
    app = Parts(PartsOptions((), None)).flask
    return {
        f"{method} {rule.rule.rstrip('/') or '/'}"
        for rule in app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }


def commands(group: click.Group = command_line) -> Iterator[tuple[str, click.Command]]:
    """Name and command of every verb."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None and not command.hidden:
            yield name, command


def reference() -> str:
    """Return the document."""
    return "\n".join([HEAD, *_commands(), SETTINGS, *_settings(), ROUTES_HEAD, *_routes()]) + "\n"


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
        return f"`{', '.join(option.opts)}`", "", "", option.help or ""
    flag = option.flag
    spelled = f"{flag.name} {flag.metavar}".strip()
    names = ", ".join(f"`{setting.name}`" for setting in flag.settings)
    return f"`{spelled}`", names, f"`{flag.default}`" if flag.default else "", flag.doc


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


def _routes() -> Iterator[str]:
    view_routes = []
    for route in ROUTES:
        names = ", ".join(f"`{param.name}`" for param in route.params)
        hot = "yes" if route.hot else ""
        view_routes.append((f"`{route.method} {route.path}`", names, f"`{route.name}`", hot))
    yield "### The view\n"
    yield _table(("route", "parameters", "method of `FileSystemView`", "hot"), view_routes) + "\n"
    yield "### Markers and the service itself\n"
    yield _table(("route", "what"), ((f"`{route}`", what) for route, what in OTHER_ROUTES.items()))


def main(arguments: Sequence[str]) -> int:
    """Print the document; with ``--write`` write it, once all of it is made."""
    if arguments == ["--write"]:
        made = reference()
        DOCUMENT.write_text(made, "utf-8")
        print(f"written: {DOCUMENT}")
        return 0
    if arguments:
        print("usage: python -m tests.kit.reference [--write]", file=sys.stderr)
        return 2
    sys.stdout.write(reference())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
