"""``RestEndpoint``: answers the requests below ``/v2``.

Requests about a table are answered on its threads, with a snapshot that is at most ``watch.secs``
old; watchers wait on the loop. Errors of any kind have one JSON shape. In a fleet a request about a
table arrives at its owner (``strandline.server.api.forwarding``); the figures of all servers are
merged here, and watchers of a table that another server owns share one watch there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from http import HTTPStatus
from importlib import import_module
from typing import Any, Final
from urllib.parse import urlencode

from prometheus_client import ProcessCollector

from fsview.local_view import InspectedView
from fsview.metrics import Metrics
from fsview.query.queries import latest_file_slices_before_or_on
from fsview.query.sums import NEWEST, partition_sums
from fsview.table_view import Lease
from fsview.view_manager import ViewManager, not_served
from fsview.wire.param import TABLE, WATCH_PATH
from strandline.fleet.current import CurrentFleet
from strandline.fleet.forward import Forwarded, Forwarder
from strandline.server.api.metrics import Scrape
from strandline.server.http.reply import JSON, Reply, compressed
from strandline.server.http.request import REQUEST_ID, Request
from strandline.server.log_format import of_request
from strandline.server.lookup.answer import AnswerCache, check_wanted, refusing_if_closed
from strandline.server.rest.figures import ordered, server_figures, silent, table_rows
from strandline.server.rest.listing import (
    FIRST,
    HELD_S,
    Cursors,
    Listing,
    Place,
    blocks,
    cursor_text,
    one_block,
    page,
    row_filter,
)
from strandline.server.rest.openapi import document
from strandline.server.rest.operation import (
    BY_PATH,
    MOST_ROWS,
    Operation,
    refused_path,
)
from strandline.server.rest.parameter import Refusal, bad
from strandline.server.rest.reply_form import (
    METHODS,
    arrow_reply,
    is_arrow,
    json_of,
    plain_rows,
    refusal,
    summary_reply,
    tag_of,
    tagged,
    unchanged,
)
from strandline.server.rest.watch import (
    Look,
    TableMark,
    Watches,
    look_at_owner,
    may_be_newer,
    refused_by_owner,
)
from strandline.server.table_threads import NO_TABLE, TableThreads
from strandline.version import __version__
from timeline.clock import Clock
from timeline.encoding.json_text import bounded_loads
from timeline.errors import (
    BadAnswerError,
    InstantNotFoundError,
    StrandlineError,
    ViewBehindError,
)
from timeline.storage.table_id import TableId

CAUSE: Final = "inspect"
"""Of syncs for these routes."""
MEMBER_S: Final = 5.0
"""How long another server's figures may take."""
_TOGETHER: Final = 16
"""Most servers asked at once."""
_OF_A_PAGE: Final = frozenset({"order", "limit", "once"})
"""Parameters that say which rows of a fleet a page has."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """One request for an operation.

    Attributes:
        operation: The operation.
        arguments: Of the request, or of that for the first page; those that are missing have
            their defaults.
        given: The parameters that were sent.
        request: The request.
    """

    operation: Operation
    arguments: Mapping[str, Any]
    given: Mapping[str, str]
    request: Request


class RestEndpoint:
    """Answers on a server's loop.

    Args:
        views: The tables.
        metrics: Their counters.
        cache: Counts what is kept with partitions.
        scrape: Returns the figures of this server, with those of the table that is named; for any
            thread.
        clock: Measures how long cursors are held.
        watch_s: How old the newest state may be, by whether a table is on an object store.
        forwarder: Asks the other servers of a fleet; ``None``: no fleet.
        current: Knows them.
        gzip: Whether answers are compressed for clients that accept it.

    Attributes:
        watches: The requests that wait.
        cursors: What cursors name.
    """

    def __init__(
        self,
        views: ViewManager,
        metrics: Metrics,
        cache: AnswerCache,
        scrape: Callable[[str | None], Scrape],
        clock: Clock,
        *,
        watch_s: Callable[[TableId], float],
        forwarder: Forwarder | None = None,
        current: CurrentFleet | None = None,
        gzip: bool = True,
    ) -> None:
        self._views, self._metrics, self._cache = views, metrics, cache
        self._scrape = scrape
        self._process = ProcessCollector(registry=None)
        self._watch_s = watch_s
        self._forwarder, self._current = forwarder, current
        self._gzip = gzip
        self.watches = Watches()
        self.cursors = Cursors(clock)
        self._drops = False
        views.on_sync = self.watches.synced

    @property
    def routes(self) -> frozenset[tuple[str, str]]:
        """Method and path of every route."""
        return frozenset(("GET", path) for path in BY_PATH)

    async def answer(self, threads: TableThreads, request: Request) -> Reply:
        """Answer one request; every error has the same shape.

        Args:
            threads: Run what may wait for storage.
            request: An admitted request below ``/v2``.
        """
        try:
            reply = await self._answered(threads, request)
        except Exception as error:  # noqa: BLE001 - the boundary of a request
            reply = refusal(error, request)
        return self._zipped(reply, request)

    def _zipped(self, reply: Reply, request: Request) -> Reply:
        """Return a reply in the form that its client accepts; one that is compressed stays."""
        return compressed(reply) if self._gzip and request.accepted.zipped else reply

    def _made(self, request: Request, make: Callable[[], Reply]) -> Reply:
        """Return a reply made on a thread, and compressed there: it may have megabytes."""
        return self._zipped(make(), request)

    async def _answered(self, threads: TableThreads, request: Request) -> Reply:
        if request.method not in ("GET", "HEAD"):
            message = f"{request.method} isn't allowed here; allowed: {METHODS}"
            raise Refusal(405, "method_not_allowed", message, allowed=METHODS)
        path = request.path.rstrip("/")
        if path not in BY_PATH:
            raise refused_path(request.path)
        operation, given = BY_PATH[path], request.parameters()
        if operation is None:
            return tagged(Reply(HTTPStatus.OK, self._document, JSON), request)
        asked = _Asked(operation, operation.arguments(given), given, request)
        if path == WATCH_PATH:
            return await self._watched(threads, request, asked.arguments)
        if operation.of_table:
            work = partial(self._of_table, asked)
            reply = await threads.run(request.table, self._made, request, work)
            self._drop_later()
            return reply
        work = partial(self._of_all, asked, await self._others(asked))
        # Not on the threads of a table that is named: those may hang, and nothing here waits.
        reply = await threads.run(NO_TABLE, self._made, request, work)
        self._drop_later()
        return reply

    def _drop_later(self) -> None:
        """Have old cursors dropped once they are, whether or not another request comes."""
        if len(self.cursors) and not self._drops:
            self._drops = True
            asyncio.get_running_loop().call_later(HELD_S + 1, self._drop)

    def _drop(self) -> None:
        self._drops = False
        self.cursors.drop_old()
        self._drop_later()

    @cached_property
    def _document(self) -> bytes:
        return json.dumps(document(), indent=1).encode()

    # About one table; on its threads.

    def _of_table(self, asked: _Asked) -> Reply:
        arguments = asked.arguments
        with of_request(asked.request.request_id):
            if arguments.get("cursor") is not None:
                return self._next_page(asked)
            view = self._view(arguments[TABLE], arguments.get("at"))
            with refusing_if_closed(view.table):
                reply = self._from_view(asked, view)
            self._views.close_excess()
            return reply

    def _view(self, base_path: str, at: str | None) -> InspectedView:
        """Return a view of a table, newest or just after an instant."""
        lease = self._views.lease(base_path)
        table = lease.table
        with refusing_if_closed(table):
            newest = table.recent(self._watch_s(table.table_id), CAUSE)
            try:
                use = None if at is None else table.just_after(at)
            except InstantNotFoundError as error:
                raise Refusal(
                    *(404, error.code, error.message),
                    parameter="at",
                    value=at,
                    allowed="the requested time of a completed instant of the active timeline",
                ) from error
            except ViewBehindError as error:
                raise Refusal(
                    *(410, "snapshot_gone", error.message),
                    parameter="at",
                    value=at,
                    allowed="a later instant, or none for the newest state",
                ) from error
        view = InspectedView(table, newest if use is None else use.snapshot, use)
        view.lease = lease
        return view

    def _from_view(self, asked: _Asked, view: InspectedView) -> Reply:
        operation, arguments, request = asked.operation, asked.arguments, asked.request
        tag = None
        is_summary = arguments.get("summary")
        if is_summary and arguments["filter"]:
            raise bad("filter", arguments["filter"], "none beside summary, which takes prefix")
        if operation.is_fixed:
            what = f"{operation.name} {sorted(arguments.items())!r} {is_arrow(request)}"
            at = f"{view.snapshot.mark} {view.snapshot.epoch}"
            tag = tag_of(f"{__version__} {at} {what}".encode("utf-8", "replace"))
            if request.has_tag(tag):
                return unchanged(tag)
        # Loaded when it is first asked: what reads tables lies above the service.
        served_table: Any = import_module("strandline.table_api.served_table")
        name = self._views.as_given(view.table.table_id)
        table = served_table.ServedTable(name, view, partial(self._sums, view))
        if is_summary:
            make = table.summary(operation.name, arguments)
            return tagged(summary_reply(make, arguments["marks"]), request, tag)
        listing = table.listing(operation.name, arguments)
        return self._page(asked, listing, tag=tag)

    def _sums(self, view: InspectedView, partition: str) -> bytes:
        """Return the packed sums of a partition, which are kept with its version."""
        versions, key = view.snapshot.files.versions, (view.snapshot.epoch, "sums")
        version = versions.get(partition)
        kept: bytes | None = None if version is None else version.answers.get(key)
        if kept is not None:
            return kept
        packed = view.inspect(partition_sums, partition).packed()
        version = versions.get(partition)
        if version is None or version.has_ghosts:
            # Refused if it names a file that was removed, whose size isn't known.
            view.inspect(
                latest_file_slices_before_or_on,
                partition,
                max_instant=NEWEST,
                include_pending_compaction=True,
            )
        else:
            self._cache.put(view.table, version.answers, key, packed)
        return packed

    # Pages.

    def _next_page(self, asked: _Asked) -> Reply:
        arguments, given = asked.arguments, asked.given
        name, place, listing, first = self.cursors.find(asked.operation, arguments, given)
        limit = arguments["limit"] if "limit" in given else first["limit"]
        again = replace(asked, arguments={**first, "limit": limit})
        if listing.held is None:
            return self._page(again, listing, place=place, name=name)
        table = listing.held.table
        with refusing_if_closed(table):
            # Also of rows that are in memory: the table may have been refused since.
            if table.is_closed:
                raise not_served(table.table_id)
            return self._page(again, listing, place=place, name=name)

    def _page(
        self,
        asked: _Asked,
        listing: Listing,
        *,
        place: Place = FIRST,
        name: str | None = None,
        tag: str | None = None,
    ) -> Reply:
        """Return a page of a listing.

        Args:
            asked: What is asked.
            listing: The listing.
            place: Where the page begins.
            name: Of the listing, if a cursor names it.
            tag: Of the reply; ``None``: it is made of the body.
        """
        operation, arguments, request = asked.operation, asked.arguments, asked.request
        keep = row_filter(operation, arguments.get("prefix"), arguments.get("filter"))
        limit = arguments.get("limit", MOST_ROWS)
        go_on = partial(check_wanted, request.has_left)
        rows, following = page(listing, place, limit, keep, go_on)
        cursor, is_more = None, following is not None
        if arguments.get("once"):
            following = None
        if following is not None and "cursor" in arguments:
            name = name or self.cursors.hold(operation, arguments, listing)
            cursor = cursor_text(name, following)
        elif following is not None:
            allowed = f"a group of at most {MOST_ROWS} slices"
            raise Refusal(422, "too_many_rows", "there are too many rows", allowed=allowed)
        # A tag of the state doesn't fit a page with a cursor, which others don't share.
        tag = tag if cursor is None else None
        if is_arrow(request):
            more = {} if cursor is None else {"next": cursor}
            more["more"] = str(is_more).lower()
            return tagged(arrow_reply(operation, arguments, listing, rows, more), request, tag)
        rows_shown = plain_rows(operation, rows)
        value = {**listing.head, "rows": rows_shown, "next": cursor, "more": is_more}
        return tagged(Reply(HTTPStatus.OK, json_of(value), JSON), request, tag)

    # About all servers.

    async def _others(self, asked: _Asked) -> dict[str, Any]:
        """Return by URL what the other servers of the fleet answer; text of an error else."""
        forwarder, current = self._forwarder, self._current
        if forwarder is None or current is None or asked.arguments.get("cursor") is not None:
            return {}
        if forwarder.is_passed_on(asked.request.fields):
            return {}
        urls = [each.url for each in current.known.fleet.members if each.url != current.url]
        turns = asyncio.Semaphore(_TOGETHER)

        async def ask(url: str) -> Any:
            async with turns:
                try:
                    return await self._other(forwarder, url, asked)
                except StrandlineError as error:
                    return error.message

        return dict(zip(urls, await asyncio.gather(*map(ask, urls)), strict=True))

    async def _other(self, forwarder: Forwarder, url: str, asked: _Asked) -> Any:
        """Return one server's answer: its rows and how many tables it has open, or its figures.

        Raises:
            BadAnswerError: It gives none.
        """
        operation, arguments = asked.operation, asked.arguments
        params = {k: v for k, v in arguments.items() if v is not None and k not in _OF_A_PAGE}
        if operation.columns:
            params["limit"] = MOST_ROWS
            if arguments["once"] and arguments["limit"] < MOST_ROWS:
                # The first rows of all are among the first of each; one more says that there are.
                first = {"once": "true", "order": arguments["order"]}
                params |= {"limit": arguments["limit"] + 1, **first}
        rows: list[Any] = []
        while True:
            target = f"{operation.path}?{urlencode(params)}".encode("ascii")
            fields = {REQUEST_ID: asked.request.fields.get(REQUEST_ID, b"-")}
            sent = Forwarded("GET", target, fields, within_s=MEMBER_S, may_be_late=True)
            answer = await forwarder.tell(url, sent)
            if answer is not None and answer.status == HTTPStatus.BAD_REQUEST and "once" in params:
                # An older release, while servers are replaced: it has no such parameters.
                params = {k: v for k, v in params.items() if k not in _OF_A_PAGE}
                params["limit"] = MOST_ROWS
                continue
            if answer is None or answer.status != HTTPStatus.OK:
                status = "no answer" if answer is None else f"status {answer.status}"
                raise BadAnswerError(f"{url}: {status}")
            try:
                value = bounded_loads(bytes(answer.body))
                if not operation.columns:
                    return value["servers"][0]
                rows += value["rows"]
                if value["next"] is None:
                    return rows, int(value["tables_open"])
                params = {"cursor": value["next"], "limit": MOST_ROWS}
            except (ValueError, TypeError, KeyError, IndexError) as error:
                raise BadAnswerError(f"{url}: {type(error).__name__}: {error}") from error

    def _of_all(self, asked: _Asked, others: Mapping[str, Any]) -> Reply:
        arguments, current = asked.arguments, self._current
        with of_request(asked.request.request_id):
            if not asked.operation.columns:
                named = arguments[TABLE]
                table = None if named is None else self._label(named)
                scrape, url = self._scrape(table), None if current is None else current.url
                process = self._process.collect()
                own = server_figures(scrape, arguments["names"], table, url, process)
                rest = (silent(u, f) if isinstance(f, str) else f for u, f in others.items())
                value = {"servers": [own, *rest], "fleet": scrape.figures.get("fleet")}
                return tagged(Reply(HTTPStatus.OK, json_of(value), JSON), asked.request)
            if arguments["cursor"] is not None:
                return self._next_page(asked)
            own_rows = table_rows(self._views, self._metrics, self._forwarder, current)
            found = [each for each in others.values() if not isinstance(each, str)]
            all_rows = (*own_rows, *(row for rows, _ in found for row in rows))
            rows = ordered(all_rows, arguments["order"])
            head = {
                "tables_open": len(own_rows) + sum(many for _, many in found),
                "servers": 1 + len(others),
                "unreachable": [url for url, each in others.items() if isinstance(each, str)],
            }
            listing = Listing(head, [*blocks(rows)], one_block(list), 500 * len(rows))
            return self._page(asked, listing)

    def _label(self, base_path: str) -> str:
        """Return the text that metrics name a table by; rows have the text as it was given."""
        text = str(TableId.of(base_path).normal())
        open_ids = (table.table_id for table in self._views.open_tables())
        return next((str(each) for each in open_ids if self._views.as_given(each) == text), text)

    # Watching; on the loop.

    async def _watched(
        self, threads: TableThreads, request: Request, arguments: Mapping[str, Any]
    ) -> Reply:
        base_path, timeout_s = arguments[TABLE], arguments["timeout"]
        forwarder = self._forwarder
        # A watch that another server has passed on looks here, and waits for no other server's.
        is_passed_on = forwarder is not None and forwarder.is_passed_on(request.fields)
        owners = None if is_passed_on else forwarder
        here = partial(threads.run, request.table, self._look_here, base_path)
        looks = partial(self._look, owners, base_path, here)
        state, changed = await self.watches.wait(
            (request.table, is_passed_on), arguments["after"], timeout_s, looks
        )
        value = {
            "table": str(TableId.of(base_path).normal()),
            "instant": None if state is None else state.instant,
            "state": arguments["after"] if state is None else state.mark,
            "hash": None if state is None else state.hashes[-1],
            "changed": changed,
        }
        return Reply(HTTPStatus.OK, json_of(value), JSON)

    async def _look(
        self,
        forwarder: Forwarder | None,
        base_path: str,
        here: Callable[[frozenset[str]], Awaitable[Look]],
        before: TableMark | None,
        newer: frozenset[str],
    ) -> Look:
        """Look at a table for all its watchers: at its owner, or here.

        Args:
            forwarder: Asks the owner; ``None``: the look is here.
            base_path: The table's base path.
            here: Looks here.
            before: See ``Looks``.
            newer: Likewise.
        """
        if forwarder is not None:
            urls, is_theirs = self._owners(forwarder, base_path)
            found = await look_at_owner(forwarder, urls, base_path, before, newer)
            if isinstance(found, TableMark):
                return Look(found)
            if is_theirs:
                raise refused_by_owner(found, base_path)
        return await here(newer)

    def _owners(self, forwarder: Forwarder, base_path: str) -> tuple[tuple[str, ...], bool]:
        """Return the servers that a table is watched at, and whether it can't be watched here.

        That is so if another group has it, below a root that this server doesn't have.
        """
        table, current = str(TableId.of(base_path).normal()), self._current
        urls = forwarder.before(table)
        if current is None or self._views.is_below_root(base_path):
            return urls, False
        known, name = current.known, current.known.group(table)
        group = known.fleet.group(name)
        if name == current.group:
            return urls, False
        if group is not None and not group.may_have(table):
            return (), False  # every server refuses it
        further = (url for url in known.further(table) if url not in urls)
        return (*urls, *further), bool(known.fleet.members)

    def _look_here(self, base_path: str, newer: frozenset[str]) -> Look:
        lease: Lease = self._views.lease(base_path)
        table = lease.table
        pause_s = self._watch_s(table.table_id)
        with refusing_if_closed(table):
            held = table.state.held
            # A little less, so that each look is one, whatever the clock's resolution.
            within_s = 0.9 * pause_s
            if held is None or any(may_be_newer(mark, held) for mark in newer):
                within_s = 0.0
            found = TableMark.of(table.recent(within_s, "watch"))
        return Look(found, pause_s, table)
