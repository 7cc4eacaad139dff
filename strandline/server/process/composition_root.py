"""The composition root: creates all objects of one service and injects their dependencies.

These are views, answers, markers, metrics, admission, routes, the hot path. No other module creates
them, so all dependencies are visible here.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from http import HTTPStatus
from importlib import import_module
from itertools import chain
from typing import Any, Final

from fsview.metrics import CounterKey, Latencies, Metrics
from fsview.store.stores import Stores
from fsview.table_view import TableView
from fsview.view_manager import StorageOpener, TablesStatus, ViewManager
from fsview.wire.marker_form import CREATE_MARKER, CREATE_MARKERS
from fsview.wire.routes import ROUTES
from strandline.fleet.copies import Copies
from strandline.fleet.current import CurrentFleet
from strandline.fleet.forward import Forwarder
from strandline.server.api.dispatcher import PAGE_ROUTES, Dispatcher, Handler, greeting
from strandline.server.api.forwarding import Forwarding
from strandline.server.api.instant_states import InstantStates
from strandline.server.api.late_answers import LateAnswers
from strandline.server.api.marker_creation import MarkerCreation
from strandline.server.api.metrics import Scrape, metrics_handler
from strandline.server.api.readiness import RETRY_S, Readiness, ServiceChecks
from strandline.server.api.remote_partitioner import MOST_BYTES, RemotePartitioner
from strandline.server.api.routes import (
    fleet_rows,
    lookup_row,
    marker_rows,
    renewed_row,
    view_rows,
    writer_rows,
)
from strandline.server.api.web_page import web_page_rows
from strandline.server.http.authorization import (
    GREETING,
    HEALTH,
    METRICS_PATH,
    OPEN_PATHS,
    READY,
    UI,
    Admission,
)
from strandline.server.http.refusals import Refusals
from strandline.server.http.reply import NOT_FOUND, Reply, failure
from strandline.server.http.request import Application, Request
from strandline.server.http.request_span import RequestSpans
from strandline.server.http.server_options import HANGS_S
from strandline.server.lookup.answer import REQUESTS, REQUESTS_CPU_US, Answers
from strandline.server.lookup.batched_answers import BatchedAnswers
from strandline.server.lookup.ready_answer import HotCount, HotPath
from strandline.server.lookup.sampling_check import SamplingCheck
from strandline.server.marker.registry import MarkerService
from strandline.server.process.options import PartsOptions
from strandline.server.rest.endpoint import RestEndpoint
from strandline.server.rest.reply_form import refusal
from strandline.server.table_threads import READY_CPU_S, TableLoads, TableThreads
from strandline.version import __version__
from timeline.clock import Clock, SystemClock
from timeline.errors import StrandlineError
from timeline.storage.base import Storage
from timeline.storage.open import open_storage
from timeline.storage.table_id import TableId, id_text

logger = logging.getLogger(__name__)

GIVEN_AWAY_S: Final = 60.0
"""How long a server of a fleet keeps a table open after it has lost the table's seat."""
WATCH_DISK_S: Final = 1.0
"""Seconds between two looks at a table on a disk for its watchers."""
WATCH_STORE_S: Final = 10.0
"""The same on an object store, where each look costs money."""
_LOOKS: Final = 12
"""Interval of the search for such tables."""


class Parts:
    """One service without its server.

    ``_lock`` guards ``_counted`` and ``_called``: the hot path's counts, and each table's storage
    calls, when they were last added to the metrics; and whether a thread searches for roots.

    Attributes:
        connections: Returns figures of the connections; the server sets it.
        threads: Returns figures of the threads; the server sets it.
        hanging: Returns the requests that hang; the server sets it.
        log: Returns figures of the log; the process sets it.
        spans: Records requests; the server sets their scheme.
    """

    def __init__(
        self,
        options: PartsOptions,
        *,
        clock: Clock | None = None,
        opener: StorageOpener | None = None,
        ending: threading.Event | None = None,
        forwarder: Forwarder | None = None,
        copies: Copies | None = None,
        current: CurrentFleet | None = None,
        fleet: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        """Assemble the parts; nothing runs before ``start``.

        Args:
            options: The service's options.
            clock: For every part.
            opener: Opens a table's storage; ``None``: by the scheme of its base path.
            ending: For ``SamplingCheck``.
            forwarder: Forwards requests to the other servers of a fleet; ``None``: no fleet.
            copies: Notifies those servers of changes; ``None``: default ones, in a fleet.
            current: Knows the fleet's groups; ``None``: all its servers have the same roots.
            fleet: Returns what the status shows of the fleet.
        """
        self._clock = clock or SystemClock()
        self._started = self._clock.monotonic()
        self._lock = threading.Lock()
        self._counted: Counter[HotCount] = Counter()
        self._loads = TableLoads()
        self._settings = options.shown
        self._restarts = options.restarts
        self.connections: Callable[[], Mapping[str, int]] = dict
        self.threads: Callable[[], Mapping[str, Any]] = dict
        self.hanging: Callable[[], list[dict[str, Any]]] = list
        self.log: Callable[[], Mapping[str, int]] = dict
        self.metrics = Metrics()
        self.views = ViewManager(
            options.roots,
            storage_options=options.storage_options,
            metrics=self.metrics,
            clock=self._clock,
            opener=opener or partial(open_storage, limits=options.read_limits),
            retained_snapshots=options.retained_snapshots,
            stores=Stores(options.store, self._clock),
            awaits=options.awaits_roots,
            most_open=options.most_open_tables,
            slow_sync_s=options.slow_sync_s,
        )
        self.views.on_close = self._forget_closed
        self.checks = SamplingCheck(
            self.views, self.metrics, interval_s=options.check_interval_s, ending=ending
        )
        self.admission = Admission(
            options.token, options.admit_networks, other_token=options.other_token
        )
        self.markers = MarkerService(
            self.views.storage_of,
            conflicts=options.conflicts,
            clock=self._clock,
            is_one_of_many=forwarder is not None,
        )
        checks = ServiceChecks(self.views)
        self.views.busy_tables = self.markers.tables
        self.readiness = Readiness(
            checks,
            self._clock,
            notes=lambda: checks.notes,
            requires_roots=options.requires_roots,
            root_named=self.views.root_named,
        )
        self._ending = threading.Event()
        self._finds_roots = False
        self.answers = Answers(self.views, self.metrics, gzip=options.gzip)
        self._called: dict[TableView, Counter[CounterKey]] = {}
        self.instant_states = InstantStates(self.views.storage_of)
        self._creation = creation = MarkerCreation(self.markers)
        self.late_answers = LateAnswers()
        self._forwarder = forwarder
        self._copies = None if forwarder is None else copies or Copies(forwarder)
        self._current = current
        self._fleet = fleet
        # Requests for bucket starts name no table, so all servers of a fleet compute the same.
        partitioner = RemotePartitioner(MOST_BYTES if forwarder is None else 0)
        self.rest = RestEndpoint(
            self.views,
            self.metrics,
            self.answers.cache,
            self.scrape_with,
            self._clock,
            watch_s=partial(_watch_s, options.watch_s),
            forwarder=forwarder,
            current=current,
            gzip=options.gzip,
        )
        self.dispatcher = Dispatcher(
            (
                ("GET", GREETING, greeting),
                ("GET", HEALTH, self.readiness.answer),
                ("GET", READY, self.readiness.answer_strictly),
                ("POST", CREATE_MARKER, creation.answer),
                ("POST", CREATE_MARKERS, creation.answer_all),
                *(() if current is None else (renewed_row(current),)),
                *(web_page_rows() if options.ui else ()),
            ),
            (
                *view_rows(self.answers),
                lookup_row(BatchedAnswers(self.answers, gzip=options.gzip)),
                *marker_rows(self.markers),
                *writer_rows(partitioner, self.instant_states),
                *(() if forwarder is None else fleet_rows(self.views)),
                ("GET", METRICS_PATH, metrics_handler(self.scrape)),
            ),
            _pages(self.status_of),
            self.late_answers,
            gzip=options.gzip,
            rest=self.rest.answer,
        )
        self.routes = self.dispatcher.routes | PAGE_ROUTES | self.rest.routes
        paths = {path.rstrip("/") or path for _, path in self.routes}
        self.refusals = Refusals(self._clock, paths, self._count_refusal)
        named = {route.path.rstrip("/"): route.name for route in ROUTES}
        page = UI.rstrip("/")
        names = {path: page if path.startswith(UI) else path for path in paths}
        self.latencies = Latencies({**names, **named}.items())
        self.spans = RequestSpans({path for _, path in self.routes})
        self.hot = HotPath(self.answers, self.latencies, self.spans)

    def application(self, threads: TableThreads) -> Application:
        """Return the application for requests that aren't answered from ready bytes.

        Args:
            threads: Run requests that may wait for storage.
        """
        answer = partial(self.dispatcher.answer, threads)
        if self._forwarder is None or self._copies is None:
            return self.spans.of(answer)
        forwarding = Forwarding(
            self._forwarder,
            self._copies,
            self.answers.newest_hash,
            self.views.is_below_root,
            self._current,
            refusal,
        )
        return self.spans.of(partial(forwarding.answer, answer))

    def metrics_application(self, threads: TableThreads) -> Application:
        """Return the application of the port for metrics: these and probes, no other path."""
        answer = partial(self.dispatcher.answer, threads)

        async def of_metrics(request: Request) -> Reply:
            if request.path in OPEN_PATHS or request.path.rstrip("/") == METRICS_PATH:
                return await answer(request)
            return failure(HTTPStatus.NOT_FOUND, NOT_FOUND, request.accept)

        return of_metrics

    def end_watches(self) -> None:
        """Answer the requests that wait for a change; on the server's loop."""
        self.rest.watches.end()

    def hang_up(self) -> None:
        """End the connections to other servers; on the server's loop."""
        if self._forwarder is not None:
            self._forwarder.close()

    def status(self) -> dict[str, Any]:
        """Return counters and figures of the service and all its tables, in a form for JSON."""
        figures, tables = self.status_of()
        return {**figures, "tables": dict(tables.figures)}

    def status_of(
        self, start: str = "", at_most: int | None = None
    ) -> tuple[dict[str, Any], TablesStatus]:
        """Return counters and figures of the service, and of some of its tables.

        Args:
            start: See ``ViewManager.status``.
            at_most: See ``ViewManager.status``.
        """
        with self._lock:
            self._count_hot()
        figures = {
            "pid": os.getpid(),
            "uptime_s": round(self._clock.monotonic() - self._started, 3),
            "restarts": self._restarts,
            "ready": self.readiness.status(),
            "requests": self.metrics.by_label(REQUESTS, "route"),
            "refusals": self.refusals.status(),
            "client_refusals": self.refusals.by_client(),
            "newest_refusals": self.refusals.newest(),
            "hanging": self.hanging(),
            "fallbacks": self.refusals.fallbacks(),
            "connections": dict(self.connections()),
            "threads": dict(self.threads()),
            "log": dict(self.log()),
            "busy": self.late_answers.status(),
            "watchers": self.rest.watches.count,
            **({} if self._forwarder is None else {"forwarded": self._forwarder.status()}),
            **({} if self._copies is None else {"copies": self._copies.status()}),
            **({} if self._fleet is None else {"fleet": dict(self._fleet())}),
            "ready_answers": self.answers.cache.status(),
            "markers": {**self.markers.status(), **self._creation.status()},
            "store": self.views.store_status(),
            "roots": list(self.views.roots()),
            "awaited_roots": list(self.views.awaited_roots()),
            "settings": dict(self._settings),
        }
        tables = self.views.status(start, at_most)
        if self._forwarder is not None:
            loads = self._loads.figures
            shown = ((name, {**of, "load": loads(name)}) for name, of in tables.figures)
            tables = tables._replace(figures=shown)
        figures["open_tables"] = tables.open
        figures["open_tables_at_most"] = self.views.most_open
        figures["next_table"] = tables.further
        return figures, tables

    def scrape(self) -> Scrape:
        """Return counters and figures for a monitoring system; the next call knows readiness anew.

        Never waits for the checks of readiness, which it begins: storage may hang.
        """
        self.readiness.ask()
        figures, tables = self.status_of()
        label = self.metrics.exported.label
        with self._lock:
            for opened in self.views.open_tables():
                self._count_calls_of(opened)
        return Scrape(
            __version__,
            figures,
            ((label(name), of) for name, of in tables.figures),
            self.metrics.exported.counts(),
            self.latencies.snapshot(),
            self._calls_under_way(),
        )

    def scrape_with(self, table: str | None) -> Scrape:
        """Return what ``scrape`` does, with a table's own figures if all others are one.

        Args:
            table: Its id as text; ``None``, or one that isn't open: as ``scrape``.
        """
        found = self.scrape()
        opened = {str(each.table_id): each for each in self.views.open_tables()}
        if table not in opened or self.metrics.exported.label_of_anybody(table) == table:
            return found
        made = {**self.metrics.counts_of(table), **_calls_of(opened[table])}
        own = (table, opened[table].status())
        counters = {**found.counters, table: made}
        return replace(found, counters=counters, tables=chain(found.tables, (own,)))

    def _storages(self) -> dict[TableId, Storage]:
        """Return the storages of the tables that are open, or are being opened."""
        found = self.views.being_opened()
        return found | {each.table_id: each.storage for each in self.views.open_tables()}

    def calls_under_way_of(self, table: str) -> dict[tuple[str, str], float]:
        """Return kind and cause → seconds of a table's storage calls that haven't ended.

        Args:
            table: Its base path as a request has it.
        """
        wanted, as_given = str(TableId.of(table).normal()), self.views.as_given
        found: dict[tuple[str, str], float] = {}
        for table_id, storage in self._storages().items():
            if wanted in (str(table_id), as_given(table_id)):
                found |= storage.calls.times().longest_s
        return found

    def _calls_under_way(self) -> dict[tuple[str, str, str], float]:
        """Return label of the table, kind and cause → seconds, see ``Scrape``."""
        storages, exported = self._storages(), self.metrics.exported
        longest: dict[tuple[str, str, str], float] = {}
        for table_id, storage in storages.items():
            for (kind, cause), seconds in storage.calls.times().longest_s.items():
                # A client may name a table that doesn't exist, but not have storage hang.
                label = exported.label if seconds >= HANGS_S else exported.label_of_anybody
                key = label(str(table_id)), kind, cause
                longest[key] = max(seconds, longest.get(key, 0.0))
        return longest

    def load(self) -> tuple[int, int]:
        """Return how many tables are open, and the bytes that are held for all of them."""
        return len(self.views.open_tables()), self.views.stores.budget.used

    @property
    def table_files(self) -> int:
        """How many files all tables may have open together."""
        return self.views.most_open * self.views.stores.files_of_a_table

    def limit_table_files(self, files: int) -> None:
        """Have tables open at most half of ``files``."""
        each = self.views.stores.files_of_a_table
        if each:
            self.views.most_open = min(self.views.most_open, max(1, files // 2 // each))

    def show_settings(self, shown: Mapping[str, Any]) -> None:
        """Replace settings that the status shows."""
        self._settings = {**self._settings, **shown}

    def find_roots(self) -> None:
        """Search for the awaited roots now, and from then on until all of them exist."""
        self.readiness.ask().result()
        with self._lock:
            is_needed = self.views.awaited_roots() and not self._finds_roots
            self._finds_roots = self._finds_roots or bool(is_needed)
        if is_needed:
            threading.Thread(target=self._find_roots, name="roots", daemon=True).start()

    def add_root(self, root: str) -> None:
        """Serve the tables at and below a path.

        If it is a root that now resolves to another place, the state of the old place is dropped.
        """
        try:
            has_moved = self.views.add_root(root)
        except BaseException:
            # It may have changed the roots, and failed to close a table.
            self._forget_unserved()
            raise
        if has_moved:
            self._forget_unserved()

    def remove_root(self, root: str) -> None:
        """Refuse the tables at and below a path, and drop their state.

        Tables at or below another root stay.
        """
        try:
            # First, so that the state dropped below isn't created again for a new request.
            self.views.remove_root(root)
        finally:
            self._forget_unserved()

    def start(self) -> None:
        """Start the background work."""
        self.checks.start()
        self.markers.start()
        if self._forwarder is not None:
            threading.Thread(target=self._give_away, name="tables", daemon=True).start()

    def _give_away(self) -> None:
        """Close tables that have belonged to other servers for ``GIVEN_AWAY_S`` seconds.

        Samples of the tables' loads are taken at the same times.
        """
        assert self._forwarder is not None
        while not self._ending.wait(GIVEN_AWAY_S / _LOOKS):
            self.note_loads()
            try:
                self.views.close_foreign(self._has, GIVEN_AWAY_S)
            except StrandlineError as error:
                logger.warning("tables of other servers can't be closed: %s", error)

    def _has(self, table: str) -> bool:
        """Whether this server has a table, by the text of its ``TableId``, or gets it soon."""
        assert self._forwarder is not None
        current = self._current
        moves_here = current is not None and current.known.takes(table, current.url)
        return moves_here or self._forwarder.has(table)

    def forget_markers(self, is_foreign: Callable[[str], bool]) -> None:
        """Drop the markers kept in memory of tables that other servers own.

        Args:
            is_foreign: Whether a table is one, by the text of its ``TableId`` below its root as
                that was given.
        """
        given = self.views.as_given
        # Only then, as all paths are looked up again.
        if any(is_foreign(given(table_id)) for table_id in self.markers.tables()):
            self.markers.forget(lambda table_id: not is_foreign(given(table_id)))

    def note_loads(self) -> None:
        """Take a sample of the CPU time that requests for each open table took."""
        with self._lock:
            self._count_hot()
        count, cpu_s = self.metrics.get, dict[str, float]()
        for opened in self.views.open_tables():
            table = str(opened.table_id)
            ready = count(REQUESTS, table=table, way="ready")
            computed_us = count(REQUESTS_CPU_US, table=table)
            cpu_s[table] = ready * READY_CPU_S + computed_us / 1e6
        self._loads.note(self._clock.monotonic(), cpu_s)

    def _find_roots(self) -> None:
        """Search for missing roots every ``RETRY_S`` seconds, until all exist."""
        while not self._ending.wait(RETRY_S):
            self.readiness.ask().result()
            with self._lock:
                # Under one lock: a caller that awaits a root later starts another thread.
                if not self.views.awaited_roots():
                    self._finds_roots = False
                    return

    def close(self) -> None:
        """Stop the background work and close the views."""
        self._ending.set()
        self.checks.close()
        self.markers.close()
        self.views.close()

    def _forget_unserved(self) -> None:
        """Drop the state of tables that aren't served any more."""
        serves = self.views.serves
        self.answers.forget_unserved()
        self.markers.forget(serves)
        self.instant_states.forget(serves)
        with self._lock:
            self._count_hot()
            self.hot.forget_closed()
            still = {key: n for key, n in self._counted.items() if not key[0].is_closed}
            self._counted = Counter(still)
            for table in [table for table in self._called if table.is_closed]:
                self._forget_calls_of(table)
        self.metrics.merge(lambda text: serves(TableId.of(text)))

    def _forget_closed(self, table: TableView) -> None:
        """Drop the state of a table that was closed, but is still served."""
        self.answers.forget(table)
        with self._lock:
            self._count_hot_of(table)
            self._forget_calls_of(table)
        self.metrics.forget(str(table.table_id))

    def _count_hot_of(self, table: TableView) -> None:
        """Add the hot path's requests of one table to the metrics, and forget it."""
        for name in self.hot.names:
            count = self.hot.counts[table, name] - self._counted.pop((table, name), 0)
            self._add_ready(table, name, count)
        self.hot.forget(table)

    def _add_ready(self, table: TableView, route: str, count: int) -> None:
        if count > 0:
            labels = {"table": str(table.table_id), "route": route, "way": "ready"}
            self.metrics.add(REQUESTS, count, **labels)

    def _count_calls_of(self, table: TableView) -> None:
        """Export a table's storage calls since the last call of this; ``_lock`` is held."""
        made = _calls_of(table)
        new = made - self._called.get(table, Counter())
        self._called[table] = made
        for key, count in new.items():
            self.metrics.exported.add(str(table.table_id), key, count)

    def _count_refusal(self, table: str, code: str) -> None:
        """Export a refusal about a table that a client named."""
        key = "table_refusals", (("code", code),)
        self.metrics.exported.add_of_anybody(id_text(table), key, 1)

    def _forget_calls_of(self, table: TableView) -> None:
        """Export the last calls of a table that was closed; ``_lock`` is held."""
        self._count_calls_of(table)
        del self._called[table]

    def _count_hot(self) -> None:
        """Add the hot path's requests since the last call to the metrics; ``_lock`` is held."""
        # The same copy is added and remembered: the loop continues to count meanwhile.
        counted = Counter(self.hot.counts)
        for key, count in (counted - self._counted).items():
            self._add_ready(*key, count)
        self._counted = counted


def _pages(status: Callable[[str, int], tuple[Mapping[str, Any], TablesStatus]]) -> Handler:
    """Return the handler of the pages, which loads Flask unless it is loaded already."""

    @cache
    def answer() -> Handler:
        pages: Any = import_module("strandline.server.api.pages")
        return partial(pages.reply_of, pages.create_pages(status))

    return lambda request: answer()(request)


def _calls_of(table: TableView) -> Counter[CounterKey]:
    """Return a table's storage calls, and their time, as counters."""
    made: Counter[CounterKey] = Counter()
    for (kind, cause), count in table.storage.calls.snapshot().items():
        made["storage_calls", (("cause", cause), ("kind", kind))] = count
    for (kind, cause), seconds in table.storage.calls.times().ended_s.items():
        made["storage_us", (("cause", cause), ("kind", kind))] = int(seconds * 1e6)
    return made


def _watch_s(given_s: float, table_id: TableId) -> float:
    """Return the seconds between two looks at a table for its watchers."""
    return given_s or (WATCH_DISK_S if table_id.family == "file" else WATCH_STORE_S)
