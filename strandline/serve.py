"""``strandline serve``: a service of its own, for Hudi's writers and ours.

Every bad setting is refused before anything is bound, in one line, with exit code 2; a port that is
taken, or a store that can't be used, with exit code 1.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any, TypeVar

import click

from fsview.store.spill.malloc_trim import share_heap
from fsview.store.stores import StoreOptions
from strandline.service.http.authorization import parse_networks, read_token_file
from strandline.service.http.limits import allow_open_files, collect_garbage_seldom
from strandline.service.http.server import ServiceServer
from strandline.service.http.server_options import ServerOptions
from strandline.service.http.tls import server_context
from strandline.service.log_format import escaped, event, log_to
from strandline.service.process.child_main import own_stdout, run_child
from strandline.service.process.options import PartsOptions
from strandline.service.process.parts import Parts
from strandline.settings.command_line import (
    FLAGS,
    HOST,
    LOG_FORMAT,
    LOG_LEVEL,
    NO_TOKEN,
    PORT,
    ROOTS,
    STORAGE_OPTIONS,
    TOKEN_FILE,
    Flag,
)
from strandline.settings.service import ADMIT_NETWORKS, SPILL_DIR
from strandline.settings.setting import shortened
from strandline.settings.sources import ServeSettings
from strandline.settings.view_store import store_options
from timeline.errors import ConfigError, StoreError, StrandlineError
from timeline.storage.open import require_driver
from timeline.storage.table_id import TableId

logger = logging.getLogger(__name__)

Command = TypeVar("Command", bound=click.Command)


class SettingOption(click.Option):
    """A flag of the table; its text is read with all other sources of settings, not by click."""

    def __init__(self, flag: Flag) -> None:
        self.flag = flag
        shown = f"  [default: {flag.default}]" if flag.default else ""
        super().__init__(
            [flag.name],
            help=flag.doc + shown,
            metavar=flag.metavar or None,
            multiple=flag.repeated,
            is_flag=None if flag.metavar else True,
        )


def _with_flags(command: Command) -> Command:
    command.params = [*(SettingOption(flag) for flag in FLAGS), *command.params]
    return command


@_with_flags
@click.command()
@click.option("--child", is_flag=True, hidden=True)
def serve(child: bool, **given: Any) -> None:
    """Serve the tables below some roots until SIGTERM or SIGINT.

    Hudi's writers use it with hoodie.embed.timeline.server=false and
    hoodie.filesystem.view.type=REMOTE_FIRST (or REMOTE_ONLY); GET /healthz answers 200 when it
    can serve. Each setting may also come from a variable of the environment or from the file that
    --config names; docs/operating.md says how.
    """
    if child:
        run_child(os.fdopen(os.dup(0), "rb"), own_stdout())
        return
    share_heap()
    try:
        told = ServeSettings.read(_given(given), os.environ)
        parts_options = _parts_options(told)
        options = ServerOptions.of(told.values, told.get(HOST), told.get(PORT))
        server_context(options.tls_certificate, options.tls_key)
        # From here on there may be something to log: a store that is set aside, for example.
        formatter = log_to(sys.stderr, told.get(LOG_LEVEL), told.get(LOG_FORMAT))
        parts = Parts(parts_options)
    except ConfigError as exc:
        raise click.UsageError(_in_a_line(exc)) from exc
    except StoreError as exc:
        raise click.ClickException(_in_a_line(exc)) from exc
    _run(told, parts, options, formatter)


def _run(
    told: ServeSettings, parts: Parts, options: ServerOptions, formatter: logging.Formatter
) -> None:
    """Serve until a signal; doesn't return."""
    collect_garbage_seldom()
    allow_open_files(options.limits.connections)
    try:
        server = ServiceServer(parts, options)
    except ConfigError as exc:
        raise click.ClickException(_in_a_line(exc)) from exc
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())

    def announce() -> None:
        said = f"serving {', '.join(told.many(ROOTS))} on {server.url} to {parts.admission}"
        json_line = told.get(LOG_FORMAT) == "json"
        click.echo(event(formatter, __name__, said) if json_line else escaped(said), err=True)

    server.run(announce)
    logger.info("stopped")
    sys.stderr.flush()
    # A request stuck in storage has a thread that the interpreter would wait for.
    os._exit(0)


def _in_a_line(error: StrandlineError) -> str:
    """Return what is refused as one line, cut in its middle if a path or a host makes it long."""
    return shortened(escaped(str(error)))


def _given(given: Mapping[str, Any]) -> dict[str, str | tuple[str, ...]]:
    """Return the flags that were given, a flag without a value as ``true``."""
    return {
        key: "true" if value is True else value
        for key, value in given.items()
        if value not in (None, False, ())
    }


def _parts_options(told: ServeSettings) -> PartsOptions:
    roots = _checked_roots(told)
    return PartsOptions.of(
        told.values,
        roots,
        _token(told),
        storage_options=_storage_options(told),
        store=_store(told),
        shown=told.redacted(),
    )


def _checked_roots(told: ServeSettings) -> tuple[str, ...]:
    """Refuse roots that can't be meant, or read."""
    roots, key = told.many(ROOTS), told.key(ROOTS)
    if not roots:
        raise ConfigError("give at least one --root")
    for root in roots:
        if not root:
            raise ConfigError(f"{key} is empty")
        table_id = TableId.of(root)
        if table_id.family != "file":
            require_driver(root, key)
        elif not os.path.isdir(table_id.path):  # a name too long is none, too
            raise ConfigError(f"{key} {root}: no such directory")
    return roots


def _token(told: ServeSettings) -> str | None:
    """Return the token that was asked for; there must be a decision."""
    path, networks = told.get(TOKEN_FILE), told.get(ADMIT_NETWORKS)
    if told.get(NO_TOKEN) == bool(path or networks):
        raise ConfigError(
            "give either --token-file FILE or --no-token; or --no-token-from NETWORK, with or"
            " without a token for all others"
        )
    try:
        parse_networks(networks)
    except ConfigError as exc:
        raise ConfigError(f"{told.key(ADMIT_NETWORKS)}: {exc}") from exc
    return read_token_file(path) if path else None


def _store(told: ServeSettings) -> StoreOptions:
    """Return where views are kept; a directory is refused where no files are, not ignored."""
    directory = told.get(SPILL_DIR) if told.source(SPILL_DIR) == "flag" else ""
    return store_options(told.values, directory=directory or None)


def _storage_options(told: ServeSettings) -> dict[str, Any] | None:
    text = told.get(STORAGE_OPTIONS)
    if not text:
        return None
    try:
        options = json.loads(text)
    except (ValueError, RecursionError):
        options = None
    if not isinstance(options, dict):
        raise ConfigError(
            f"{told.key(STORAGE_OPTIONS)} is ***; allowed: a JSON object of fsspec's options"
        )
    return options
