"""``table_command``: the TABLE argument and the options that all commands of tables have.

A command's function gets ``source``, a ``TableSource``, and ``output``, for ``print_rows``; further
options are added below the decorator::

    @click.command()
    @table_command
    @limit_option
    def pins(source: TableSource, output: str, limit: int | None) -> None: ...

TABLE is a path, a URL, or a name of ``strandline.cli.tables_file``.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click
from click.shell_completion import CompletionItem

from strandline.cli.late_module import LateModule
from strandline.cli.output import FORMATS
from strandline.cli.tables_file import named_tables, tables_file
from strandline.settings.setting import nearest
from timeline.errors import ConfigError, StrandlineError, TableNotFoundError

if TYPE_CHECKING:
    from strandline.table_api import discovery
    from strandline.table_api.table import Table
    from strandline.write.client import WriteClient
    from timeline.storage import open as opening
    from timeline.storage import table_id
else:
    discovery = LateModule("strandline.table_api.discovery")
    opening = LateModule("timeline.storage.open")
    table_id = LateModule("timeline.storage.table_id")

Command = TypeVar("Command", bound=Callable[..., Any])

_NAME: Final = re.compile(r"[^/:\\]+")
_MEANING: Final = {
    "table": "TABLE is a path, a URL, or a name of ~/.config/strandline/tables.toml.",
    "root": "ROOT is a path or a URL.",
}
"""Argument → the last line of the help, unless the help says it itself."""
_JSON: Final = ("true", "false", "null")
_SHOWN: Final = 5
"""Most tables below a path that an error names."""


@dataclass(frozen=True, slots=True)
class TableSource:
    """Where a table is, and what opening it needs.

    Attributes:
        path: Its base path, a path or a URL.
        storage_options: Options of fsspec.
        service: URL of a timeline service that serves it, or ``None``.
        token: The service's token.
        missing: Why the argument isn't a name, for the error if there is no table either.
    """

    path: str
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    service: str | None = None
    token: str | None = field(default=None, repr=False)
    missing: str = ""

    def open(self) -> Table:
        """Open the table.

        Raises:
            TableNotFoundError: There is none; it says what was looked for, and what is near.
            StrandlineError: As ``Table``.
        """
        module = import_module("strandline.table_api.table")  # half a second, which help saves
        try:
            table: Table = module.Table(
                self.path, self.storage_options, service=self.service, token=self.token
            )
        except TableNotFoundError as error:
            hints = [error.hint or self._near(), self.missing]
            hint = "; ".join(filter(None, hints)) or None
            raise TableNotFoundError(error.message, hint=hint) from error
        return table

    def writer(self, options: Mapping[str, str]) -> WriteClient:
        """Open a writer of the table on this machine, to be used in a ``with`` statement.

        Args:
            options: The writer's.
        """
        client = import_module("strandline.write.client")
        engine = import_module("strandline.write.engine.local").LocalEngine()
        made: WriteClient = client.WriteClient(
            engine, self.path, options, storage_options=self.storage_options
        )
        return made

    def _near(self) -> str:
        """Return which tables are below the path, or that it isn't there, and what is near."""
        with suppress(StrandlineError):
            storage = opening.open_storage(self.path, self.storage_options)
            found = (
                path for path, problem in discovery.tables_below(storage, 1) if problem is None
            )
            below = list(islice(found, _SHOWN))
            if below:
                return f"tables below it: {', '.join(below)}"
        parent, _, name = table_id.absolute(self.path).rstrip("/").rpartition("/")
        if not parent.strip("/") or parent.endswith(":/"):  # a bucket has no folder above it
            return ""
        with suppress(StrandlineError):
            beside = opening.open_storage(parent, self.storage_options).list("")
            names = [each.name for each in beside if each.is_dir]
            if name not in names:
                near = nearest(name, names)
                more = f"; the nearest is {near!r}" if near else ""
                return f"there is no folder {table_id.absolute(self.path)}{more}"
        return ""


def table_command(command: Command) -> Command:
    """Add TABLE, ``--output``, ``--storage-option``, ``--service``, ``--token-file``.

    Args:
        command: The command's function, which gets ``source`` and ``output`` by name.
    """
    return _located(command, "table")


def root_command(command: Command) -> Command:
    """Add ROOT, below which tables lie, and the options that open it; as ``table_command``."""
    return _located(command, "root")


def _located(command: Command, argument: str) -> Command:
    @functools.wraps(command)
    def run(
        storage_options: dict[str, Any],
        service: str | None = None,
        token_file: str | None = None,
        **others: Any,
    ) -> Any:
        source = source_of(others.pop(argument), storage_options, service, token_file)
        return command(source=source, **others)

    if f"{argument.upper()} is" not in (command.__doc__ or ""):
        run.__doc__ = f"{inspect.cleandoc(command.__doc__ or '')}\n\n{_MEANING[argument]}"
    options = (*(_SERVICE if argument == "table" else ()), _STORAGE, _OUTPUT)
    place = click.argument(argument, type=click.Path(), shell_complete=_complete_table)
    added: Any = run
    for decorated in (*options, place):
        added = decorated(added)
    return cast("Command", added)


def source_of(
    argument: str,
    storage_options: Mapping[str, Any],
    service: str | None,
    token_file: str | None,
) -> TableSource:
    """Return the source that arguments of the command line mean.

    Args:
        argument: A path, a URL or a name. A folder with a name's text is ``./NAME``.
        storage_options: Options of the command line, which go before the file's.
        service: As of ``TableSource``, or ``None`` for the file's.
        token_file: File with the service's token, or ``None`` for the file's, if its service is
            asked.

    Raises:
        ConfigError: The file of tables, or the token's, can't be used; or there is a token without
            a service.
    """
    missing = ""
    if _NAME.fullmatch(argument):
        file = tables_file()
        tables = named_tables(file)
        if (named := tables.get(argument)) is not None:
            own = {**named.storage_options, **storage_options}
            path = os.path.expanduser(named.path)
            # Another service than the file's doesn't get the token of that one.
            kept = named.token_file if service in (None, named.service) else None
            token = token_file or kept
            return TableSource(path, own, *_served(service or named.service, token))
        near = nearest(argument, tables)
        more = f"; the nearest is {near!r}" if near else ""
        missing = f"no name {argument!r} in {file}{more}" if tables else f"no names in {file}"
    return TableSource(argument, storage_options, *_served(service, token_file), missing)


def _served(service: str | None, token_file: str | None) -> tuple[str | None, str | None]:
    if token_file is None:
        return service, None
    if service is None:
        raise ConfigError("--token-file is given without --service, whose token it has")
    authorization = import_module("strandline.server.http.authorization")  # it takes asyncio
    token: str = authorization.read_token_file(os.path.expanduser(token_file))[0]
    return service, token


def _complete_table(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a name of the file, or else let the shell complete a path."""
    with suppress(ConfigError):  # a file that can't be used has no names
        names = [name for name in named_tables(tables_file()) if name.startswith(incomplete)]
        if names:
            return [*map(CompletionItem, names)]
    return [CompletionItem(incomplete, type="file")]


def _storage_options(
    _: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, Any]:
    """Parse ``KEY=VALUE``: ``true``, ``false``, ``null``, objects and lists are JSON, else text."""
    found: dict[str, Any] = {}
    for given in values:
        key, equals, text = given.partition("=")
        if not equals or not key:  # not shown: it may be a secret
            raise click.BadParameter("allowed: KEY=VALUE, such as anon=true", param=param)
        is_json = text in _JSON or text.startswith(("{", "["))
        try:
            found[key] = json.loads(text) if is_json else text
        except ValueError as error:
            why = f"the value of {key} begins like JSON, and isn't"
            raise click.BadParameter(why, param=param) from error
    return found


def _output(_: click.Context, __: click.Parameter, value: str) -> str:
    """Refuse what can't be printed, before the command does anything."""
    if value == "arrow" and sys.stdout.isatty():
        raise ConfigError("--output is arrow, which is binary; allowed: into a pipe or a file")
    return value


def _columns(_: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    """Parse names that are separated by commas."""
    if value is None:
        return None
    names = tuple(filter(None, map(str.strip, value.split(","))))
    twice = [name for name in names if names.count(name) > 1]
    if not names or twice:
        why = f"{twice[0]!r} is named twice" if twice else "there is no name"
        raise click.BadParameter(f"{why}; allowed: names, separated by commas", param=param)
    return names


_OUTPUT: Final = click.option(
    "--output",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    callback=_output,
    help="Columns for people (on a terminal that is too narrow, a line for each value), one"
    " JSON object, a JSON object a line, CSV, or an Arrow IPC stream.",
)
_STORAGE: Final = click.option(
    "--storage-option",
    "storage_options",
    multiple=True,
    callback=_storage_options,
    metavar="KEY=VALUE",
    help="An option of fsspec. Repeatable.",
)
_SERVICE: Final = (
    click.option("--token-file", metavar="FILE", help="File with the service's token."),
    click.option(
        "--service",
        metavar="URL",
        help="A timeline service that is asked for files before storage is listed.",
    ),
)
as_of_option: Final = click.option(
    "--as-of",
    metavar="TIME",
    help="The table as it was: an instant's requested time, or ISO 8601 (in the table's time zone"
    " unless it has one).",
)
since_option: Final = click.option(
    "--since",
    metavar="TIME",
    help="From this time on: an instant's requested time, or ISO 8601 (in the table's time zone"
    " unless it has one).",
)
until_option: Final = click.option(
    "--until", metavar="TIME", help="Up to this time; without it, to the newest."
)
filter_option: Final = click.option(
    "--filter",
    metavar="SQL",
    help="Only rows for which this is true, such as \"price > 9 and day = 'mon'\".",
)
partition_filter_option: Final = click.option(
    "--filter",
    metavar="SQL",
    help="Only of partitions that may have such rows: a condition on partition columns, such as"
    " \"day = 'mon'\".",
)
limit_option: Final = click.option(
    "--limit", type=click.IntRange(min=0), metavar="N", help="Most rows that are printed."
)
columns_option: Final = click.option(
    "--columns",
    callback=_columns,
    metavar="NAMES",
    help="Columns to print, in this order, separated by commas.",
)
