"""``strandline serve``, a standalone service for Hudi's writers and Strandline's.

A bad setting is refused in one line before anything is bound, with exit code 2; a port in use, an
unusable store, or a fleet that can't be joined, with exit code 1.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from fsview.store.stores import StoreOptions
from strandline.server.http.authorization import (
    UI,
    is_readable_by_all,
    parse_networks,
    read_token_file,
)
from strandline.server.http.limits import (
    Limits,
    allow_open_files,
    check_open_files,
    collect_garbage_seldom,
    free_files,
)
from strandline.server.http.server import ServiceServer
from strandline.server.http.server_options import ServerOptions
from strandline.server.http.tls import server_context
from strandline.server.log_format import STDERR, LogWriter, escaped, event, log_to
from strandline.server.process.child_main import own_stdout, run_child
from strandline.server.process.composition_root import Parts
from strandline.server.process.fleet_part import FleetOptions, FleetPart
from strandline.server.process.options import PartsOptions
from strandline.server.process.span_export import FLUSH_S, SpanExport, begin_export
from strandline.settings.command_line import (
    FLAGS,
    LOG_LEVEL,
    ROOTS,
    STORAGE_OPTIONS,
    Flag,
)
from strandline.settings.fleet import ROUTER
from strandline.settings.service import (
    ADMIT_NETWORKS,
    BODY_BYTES,
    HEADER_BYTES,
    HEADER_COUNT,
    KEEP_ALIVE,
    MAX_CONNECTIONS,
    MAX_PIPELINED,
    REQUEST_LINE_BYTES,
    REQUEST_TIMEOUT,
    SPILL_DIR,
    TLS_CERTIFICATE,
    TLS_KEY,
    WRITE_TIMEOUT,
)
from strandline.settings.setting import Setting, refusal, shortened
from strandline.settings.sources import ServeSettings
from strandline.settings.view_store import store_options
from timeline.errors import ConfigError, FleetError, StoreError, StrandlineError
from timeline.malloc_trim import share_heap
from timeline.storage.open import require_driver
from timeline.storage.table_id import TableId
from timeline.table.partition_metadata import PATH_CHARACTERS

logger = logging.getLogger(__name__)


class SettingOption(click.Option):
    """A row of ``FLAGS``; its text is parsed with the other sources of settings, not by click."""

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


@click.command(params=[SettingOption(flag) for flag in FLAGS])
@click.option("--child", is_flag=True, hidden=True)
def serve(child: bool, **given: Any) -> None:
    """Serve the tables below the given roots until SIGTERM or SIGINT.

    Hudi's writers use the service with hoodie.embed.timeline.server=false and
    hoodie.filesystem.view.type=REMOTE_ONLY or REMOTE_FIRST. GET /healthz answers 200 when it can
    serve any root. Settings can also be given by environment variables or in the file that --config
    names; see docs/operating.md.
    """
    if child:
        run_child(os.fdopen(os.dup(0), "rb"), own_stdout(), os.environ)
        return
    share_heap()
    with HangUp() as hang_up:
        _serve(_given(given), hang_up)


def _serve(given: Mapping[str, str | tuple[str, ...]], hang_up: HangUp) -> None:
    """Check all settings, make the parts, and serve."""
    try:
        settings = ServeSettings.read(given, os.environ)
        parts_options = _parts_options(settings)
        options = ServerOptions.of(settings.values, settings.own.host, settings.own.port)
        server_context(options.tls_certificate, options.tls_key)
        fleet_options = FleetOptions.of(settings)
        # Set up before the parts, whose store may log.
        log = log_to(STDERR, settings.own.log_level, settings.own.log_format)
        export = begin_export(os.environ)
        fleet = None
        if fleet_options is not None:
            tokens = (parts_options.token, parts_options.other_token)
            given_tokens = [token for token in tokens if token is not None]
            fleet = FleetPart(fleet_options, given_tokens, parts_options.roots)
        parts = _parts(parts_options, fleet)
        try:
            _allow_files(parts, options)
            _find_roots(settings, parts)
            if settings.own.token_file:
                warn_of_readers(settings.own.token_file)
        except ConfigError:
            parts.close()
            _close(fleet)
            raise
    except ConfigError as exc:
        raise click.UsageError(_in_a_line(exc)) from exc
    except (FleetError, StoreError) as exc:
        raise click.ClickException(_in_a_line(exc)) from exc
    parts.log = log.status
    _run(given, hang_up, settings, parts, options, log, fleet, export)


def _allow_files(parts: Parts, options: ServerOptions) -> None:
    """Have connections and tables share the files that this process may open."""
    allow_open_files(options.limits.connections, parts.table_files)
    check_open_files()
    free = free_files()
    if free is not None:
        parts.limit_table_files(free)


def load_ahead() -> None:
    """Load what the first page or archive needs, so that no request waits for an import.

    A driver's child doesn't: it starts while a write waits for it, and lives as long as its driver.
    """
    for name in ("strandline.server.api.pages", "timeline.archive.history_file"):
        import_module(name)


def _run(
    given: Mapping[str, str | tuple[str, ...]],
    hang_up: HangUp,
    settings: ServeSettings,
    parts: Parts,
    options: ServerOptions,
    log: LogWriter,
    fleet: FleetPart | None,
    export: SpanExport | None,
) -> None:
    """Serve until SIGTERM or SIGINT, then end the process."""
    load_ahead()
    collect_garbage_seldom()
    server: ServiceServer | None = None
    is_stopped = False

    def stop(number: int, _: object) -> None:
        nonlocal is_stopped
        is_first, is_stopped = not is_stopped, True
        if server is not None:
            # It stays a member of its fleet until it answers no more.
            if is_first and number == signal.SIGTERM and settings.own.drain_s:
                logger.info("draining for %g s at most: probes fail", settings.own.drain_s)
            server.drain(settings.own.drain_s if number == signal.SIGTERM else 0.0)
        elif fleet is not None:
            fleet.interrupt()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    if fleet is not None:
        # Before the port is bound: after a refused connection clients try the next server, and it
        # may take a while until an earlier process with this address counts as dead.
        _join(fleet, parts)
    try:
        # Before the server reads it: one that takes its place meanwhile is used by the next reload.
        certificate = certificate_of(settings)
        server = ServiceServer(parts, options)
    except ConfigError as exc:
        _close(fleet)
        raise click.ClickException(_in_a_line(exc)) from exc
    if is_stopped:
        server.stop()

    def announce() -> None:
        # Before the line that reports it: a program that has read it may send the signal.
        hang_up.leads_to(Reload(given, settings, parts, server, log, fleet, certificate).start)
        what = ", ".join(settings.many(ROOTS)) or "as a router"
        text = f"serving {what} on {server.url} to {parts.admission}"
        if server.metrics_port is not None:
            text += f", metrics on {options.url(server.metrics_port)}/metrics"
        if settings.own.ui:
            text += f", page at {server.url}{UI}"
        log.write(event(settings.own.log_format, __name__, text, has_time=False))

    server.run(announce)
    _close(fleet)
    if export is not None:
        export.close(FLUSH_S)
    logger.info("stopped")
    log.flush()
    # A normal exit would wait for the threads of requests stuck in storage.
    os._exit(0)


class HangUp:
    """SIGHUP: one that comes before the service listens has it reload as soon as it does.

    A context manager, which heeds the signal within its block; under nohup it stays ignored.
    """

    def __init__(self) -> None:
        self._reload: Callable[[], None] | None = None
        self._is_due = False
        self._before = signal.getsignal(signal.SIGHUP) or signal.SIG_DFL

    def __enter__(self) -> HangUp:
        if self._before != signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self.heard)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGHUP, self._before)

    def heard(self, *_: object) -> None:
        """Reload, or note that it is due; a signal handler."""
        self._is_due = True
        if self._reload is not None:
            self._reload()

    def leads_to(self, reload: Callable[[], None]) -> None:
        """Have each signal from now on call ``reload``, and call it if one came before."""
        self._reload = reload
        if self._is_due:
            reload()


class Reload:
    """Reloads on SIGHUP: token, certificate, roots, limits, log level; each whole or not at all.

    ``_lock`` is held during one reload, and guards the values read last.

    Args:
        given: The flags.
        settings: The settings at the start, from the flags and other sources.
        parts: The service.
        server: Its server.
        log: Gets a line for each reload, whatever the level is.
        fleet: The fleet; all its servers must have the same roots, and share a token.
        certificate: Content of the certificate's files, as old as the server's or older.
    """

    def __init__(
        self,
        given: Mapping[str, str | tuple[str, ...]],
        settings: ServeSettings,
        parts: Parts,
        server: ServiceServer,
        log: LogWriter,
        fleet: FleetPart | None,
        certificate: tuple[bytes, ...],
    ) -> None:
        self._given, self._settings = given, settings
        self._parts, self._server, self._log = parts, server, log
        self._fleet = fleet
        self._lock = threading.Lock()
        self._certificate = certificate
        self._limited = settings

    def start(self) -> None:
        """Reload on a separate thread, as files and roots may hang; for a signal handler."""
        threading.Thread(target=self.run, name="reload", daemon=True).start()

    def run(self) -> None:
        """Read all again, and log what has changed and what is refused."""
        with self._lock:
            said: list[str] = []
            try:
                fresh = ServeSettings.read(self._given, os.environ)
            except ConfigError as error:
                said.append(f"nothing is read again: {error}")
            else:
                for read in (self._token, self._tls, self._roots, self._limits, self._level):
                    try:
                        said += read(fresh)
                    except ConfigError as error:
                        said.append(f"kept as before: {error}")
            text = f"SIGHUP: {'; '.join(said) or 'nothing has changed'}"
            self._log.write(event(self._settings.own.log_format, __name__, text))

    def _token(self, fresh: ServeSettings) -> Iterator[str]:
        path, before = fresh.own.token_file, self._settings.own.token_file
        if bool(path) != bool(before):
            raise ConfigError("whether there is a token is decided at the start")
        if not path:
            return
        tokens, admission = read_token_file(path), self._parts.admission
        warn_of_readers(path)
        now = admission.tokens
        if self._fleet is not None and (tokens[0] not in now or now[0] not in tokens):
            raise ConfigError(
                f"the token in {path}: all servers of a fleet have the same; allowed: a second one"
                " below it, at all servers; then the two in the other order; then the second alone"
            )
        if admission.renew(tokens):
            if self._fleet is not None:
                self._fleet.use_tokens(tokens)
            is_first_the_same = tokens[0] == now[0]
            yield "the second token has changed" if is_first_the_same else "the token has changed"

    def _tls(self, fresh: ServeSettings) -> Iterator[str]:
        certificate = certificate_of(fresh)
        if certificate == self._certificate:
            return
        paths = fresh.get(TLS_CERTIFICATE), fresh.get(TLS_KEY)
        self._server.use_certificate(*paths)
        self._certificate = certificate
        self._show(fresh, TLS_CERTIFICATE, TLS_KEY)
        yield f"the certificate has changed ({paths[0]})"

    def _roots(self, fresh: ServeSettings) -> Iterator[str]:
        before, roots = self._settings.many(ROOTS), _checked_roots(fresh)
        added = [root for root in roots if root not in before]
        removed = [root for root in before if root not in roots]
        if not added and not removed:
            return
        if self._fleet is not None:
            raise ConfigError(f"roots {', '.join(roots)}: all servers of a group have the same")
        local = [root for root in added if TableId.of(root).family == "file"]
        missing = [root for root in local if not os.path.isdir(TableId.of(root).path)]
        if fresh.own.requires_roots and missing:
            raise ConfigError(f"{fresh.key(ROOTS)}: {missing[0]}: it is not there, or no directory")
        for root in added:
            if root in local:
                self._parts.views.await_root(root)
            else:
                self._parts.add_root(root)
        for root in removed:
            self._parts.remove_root(root)
        self._settings = fresh
        self._show(fresh, ROOTS)
        self._parts.find_roots()
        yield from (f"root {root} is served" for root in added if root not in missing)
        yield from (f"root {root} is served once it is there" for root in missing)
        yield from (f"root {root} isn't served any more" for root in removed)

    def _limits(self, fresh: ServeSettings) -> Iterator[str]:
        changed = [each for each in _LIMITS if fresh.get(each) != self._limited.get(each)]
        if not changed:
            return
        limits = fresh.values.read(Limits)
        allow_open_files(limits.connections, self._parts.table_files)
        self._server.use_limits(limits, fresh.get(KEEP_ALIVE))
        self._limited = fresh
        self._show(fresh, *changed)
        yield from (f"{each.name} is {fresh.get(each)}" for each in changed)

    def _level(self, fresh: ServeSettings) -> Iterator[str]:
        level = fresh.own.log_level
        root = logging.getLogger()
        if logging.getLevelName(root.level) != level:
            root.setLevel(level)
            self._show(fresh, LOG_LEVEL)
            yield f"the log level is {level}"

    def _show(self, fresh: ServeSettings, *settings: Setting[Any]) -> None:
        shown = fresh.redacted()
        self._parts.show_settings({each.name: shown[each.name] for each in settings})


_LIMITS: Final[tuple[Setting[Any], ...]] = (
    REQUEST_LINE_BYTES,
    HEADER_BYTES,
    HEADER_COUNT,
    BODY_BYTES,
    REQUEST_TIMEOUT,
    WRITE_TIMEOUT,
    MAX_CONNECTIONS,
    MAX_PIPELINED,
    KEEP_ALIVE,
)
"""The settings of what one client may use, which a reload reads again."""


def certificate_of(settings: ServeSettings) -> tuple[bytes, ...]:
    """Return the content of the certificate's files; none without TLS, or if they can't be read."""
    paths = settings.get(TLS_CERTIFICATE), settings.get(TLS_KEY)
    try:
        return tuple(Path(path).read_bytes() for path in paths if path)
    except OSError as exc:
        raise ConfigError(f"TLS file {exc.filename}: {exc.strerror}") from exc


def warn_of_readers(path: str) -> None:
    """Warn of a token file that every user of the machine may read."""
    if is_readable_by_all(path):
        logger.warning("token file %s can be read by every user; allow its owner alone", path)


def _join(fleet: FleetPart, parts: Parts) -> None:
    try:
        fleet.start(parts.load, parts.views, parts.forget_markers)
    except (ConfigError, FleetError) as exc:
        _close(fleet)
        message = _in_a_line(exc)
        if isinstance(exc, ConfigError):
            raise click.UsageError(message) from exc
        raise click.ClickException(message) from exc


def _close(fleet: FleetPart | None) -> None:
    if fleet is not None:
        fleet.close()


def _in_a_line(error: StrandlineError) -> str:
    """Return an error's message as one line, shortened if a path or a host makes it long."""
    return shortened(escaped(str(error)))


def _given(given: Mapping[str, Any]) -> dict[str, str | tuple[str, ...]]:
    """Return the given flags; one without a value is ``true``."""
    return {
        key: "true" if value is True else value
        for key, value in given.items()
        if value not in (None, False, ())
    }


def _parts_options(settings: ServeSettings) -> PartsOptions:
    roots, tokens = _checked_roots(settings), _tokens(settings)
    options = PartsOptions.of(
        settings.values,
        roots,
        tokens[0] if tokens else None,
        storage_options=_storage_options(settings),
        store=_store(settings),
        shown=settings.redacted(),
    )
    required = settings.own.requires_roots
    other = tokens[1] if len(tokens) > 1 else None
    return replace(
        options,
        other_token=other,
        awaits_roots=True,
        requires_roots=required,
        ui=settings.own.ui,
    )


def _parts(options: PartsOptions, fleet: FleetPart | None) -> Parts:
    if fleet is None:
        return Parts(options)
    try:
        return Parts(options, forwarder=fleet.forwarder, current=fleet.current, fleet=fleet.status)
    except BaseException:
        fleet.close()
        raise


def _find_roots(settings: ServeSettings, parts: Parts) -> None:
    """Search for the roots; missing ones are logged, or refused if all are required."""
    reasons = parts.readiness.ask().result().reasons
    away = parts.views.awaited_roots()
    if settings.own.requires_roots and away:
        why = next(reason for reason in reasons if reason.startswith(f"root {away[0]}: "))
        raise ConfigError(f"{settings.key(ROOTS)}: {why.removeprefix('root ')}")
    parts.find_roots()


def _checked_roots(settings: ServeSettings) -> tuple[str, ...]:
    """Return the roots; refuse invalid ones: empty, too long, or unsupported."""
    roots, key = settings.many(ROOTS), settings.key(ROOTS)
    if settings.get(ROUTER):
        if roots:
            raise ConfigError(f"{key} is {', '.join(roots)}; allowed: none with --router")
        return ()
    if not roots:
        raise ConfigError("give at least one --root")
    for root in roots:
        if not root:
            raise ConfigError(f"{key} is empty")
        if len(root) > PATH_CHARACTERS:
            why = f" has {len(root)} characters; allowed: at most {PATH_CHARACTERS}"
            raise refusal(key, repr(root), why)
        if TableId.of(root).family != "file":
            require_driver(root, key)
    return roots


def _tokens(settings: ServeSettings) -> tuple[str, ...]:
    """Return the tokens; the settings must choose between a token and none."""
    path, networks = settings.own.token_file, settings.get(ADMIT_NETWORKS)
    if settings.own.no_token == bool(path or networks):
        raise ConfigError(
            "give either --token-file FILE or --no-token; or --no-token-from NETWORK, with or"
            " without a token for all others"
        )
    try:
        parse_networks(networks)
    except ConfigError as exc:
        raise ConfigError(f"{settings.key(ADMIT_NETWORKS)}: {exc}") from exc
    return read_token_file(path) if path else ()


def _store(settings: ServeSettings) -> StoreOptions:
    """Return the views' store; a directory given as a flag is refused for a store in memory."""
    directory = settings.get(SPILL_DIR) if settings.source(SPILL_DIR) == "flag" else ""
    return store_options(settings.values, directory=directory or None)


def _storage_options(settings: ServeSettings) -> dict[str, Any] | None:
    text = settings.get(STORAGE_OPTIONS)
    if not text:
        return None
    try:
        options = json.loads(text)
    except (ValueError, RecursionError):
        options = None
    if not isinstance(options, dict):
        raise ConfigError(
            f"{settings.key(STORAGE_OPTIONS)} is ***; allowed: a JSON object of fsspec's options"
        )
    return options
