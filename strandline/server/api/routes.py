"""The routes: of the view, of markers, other ones for writers, and those between a fleet's servers.

Those of the view come from ``fsview.wire.routes``; batched look-ups are Strandline's own. The
creation of markers is in ``strandline.server.api.marker_creation``.

Source: Hudi 1.2.0 ``RequestHandler`` (partitioner, since 1.1), ``MarkerHandler``; 1.0.2 (Flink's
instant states, until 1.0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from http import HTTPStatus
from typing import Final

from fsview.record.stream import record_stream
from fsview.view_manager import ViewManager
from fsview.wire.lookup_form import LOOKUP_PATH, read_queries
from fsview.wire.marker_form import DELETE_DIRECTORY, DIRECTORY_EXISTS, MARKER_DIRECTORY, MARKERS
from fsview.wire.param import BASE_PATH
from fsview.wire.routes import BY_NAME, ROUTES, Route
from strandline.fleet.current import CurrentFleet
from strandline.fleet.moving.neighbours import RECORD, TABLES
from strandline.fleet.safe_mode import RENEWED, Renewed
from strandline.server.api.dispatcher import LoopRow, RouteRow, json_body, required, shown
from strandline.server.api.instant_states import InstantStates
from strandline.server.api.remote_partitioner import BucketRange, RemotePartitioner, count_of
from strandline.server.http.reply import JSON, Reply, json_reply
from strandline.server.http.request import INSTANT_STATES, STATES_DIRECTORY, Request
from strandline.server.lookup.answer import Answers, Question
from strandline.server.lookup.batched_answers import BatchedAnswers
from strandline.server.marker.registry import MarkerService
from timeline.errors import TableNotFoundError

_BASE_FILE_ON: Final = BY_NAME["base_file_on"]
_NO_INSTANT: Final = b'{"instant":[{"message":"NULLCHECK_FAILED","args":{},"value":null}]}'
"""Hudi's answer to ``datafile/on/latest/`` without ``instant``, the only parameter it checks."""

PARTITION_INDEX: Final = "/v1/hoodie/partitioner/getpartitionindex"

_BUCKETS: Final = "numbuckets"
_PARTITIONS: Final = "partitionnum"
_PATH: Final = "partitionpath"

_BYTES: Final = "application/octet-stream"


def view_rows(answers: Answers) -> Iterator[RouteRow]:
    """Yield every route of ``fsview.wire.routes``."""
    for route in ROUTES:
        yield route.method, route.path, partial(_answer, answers, route)


def lookup_row(batches: BatchedAnswers) -> RouteRow:
    """Return the route of batched look-ups, which Hudi doesn't have."""

    def answer(request: Request) -> Reply:
        queries = read_queries(request.body)
        return batches.reply(
            queries, request.parameters(), zipped=request.accepted.zipped, has_left=request.has_left
        )

    return "POST", LOOKUP_PATH, answer


def _answer(answers: Answers, route: Route, request: Request) -> Reply:
    params = request.parameters()
    if route is _BASE_FILE_ON and "instant" not in params:
        return Reply(HTTPStatus.BAD_REQUEST, _NO_INSTANT, JSON)
    question = Question.of(route, params, request.accepted)
    return answers.reply(question, has_left=request.has_left)


def marker_rows(markers: MarkerService) -> Iterator[RouteRow]:
    """Yield the five routes of markers that are answered on threads."""

    def directory(request: Request) -> str:
        return required(request.parameters(), MARKER_DIRECTORY)

    def named(keep: Callable[[str], bool], request: Request) -> Reply:
        found = [name for name in markers.names(directory(request)) if keep(name)]
        return shown(json_body(found), request.parameters())

    yield "GET", f"{MARKERS}/all", partial(named, lambda _: True)
    yield "GET", f"{MARKERS}/create-and-merge", partial(named, lambda n: not n.endswith("APPEND"))
    yield "GET", f"{MARKERS}/append", partial(named, lambda n: n.endswith("APPEND"))
    yield "GET", DIRECTORY_EXISTS, lambda r: json_body(markers.exists(directory(r)))
    yield "POST", DELETE_DIRECTORY, lambda r: json_body(markers.delete(directory(r)))


def writer_rows(partitioner: RemotePartitioner, states: InstantStates) -> Iterator[RouteRow]:
    """Yield the route of the partitioner and the two of instant states."""

    def index(request: Request) -> Reply:
        params = request.parameters()
        buckets, partitions = (
            count_of(required(params, name), name) for name in (_BUCKETS, _PARTITIONS)
        )
        asked = BucketRange(params.get(_PATH, ""), buckets, partitions)
        return json_body(partitioner.index(asked))

    def refresh(request: Request) -> Reply:
        states.refresh(required(request.parameters(), STATES_DIRECTORY))
        return json_body(value=True)

    def all_states(request: Request) -> Reply:
        params = request.parameters()
        found = states.all(required(params, STATES_DIRECTORY))
        return shown(json_body(list(map(asdict, found))), params)

    yield "GET", PARTITION_INDEX, index
    yield "GET", f"{INSTANT_STATES}/all", all_states
    yield "POST", f"{INSTANT_STATES}/refresh/", refresh


def fleet_rows(views: ViewManager) -> Iterator[RouteRow]:
    """Yield the routes; neither opens a table."""

    def tables(_: Request) -> Reply:
        return json_reply([views.as_given(table.table_id) for table in views.open_tables()])

    def record(request: Request) -> Reply:
        base_path = required(request.parameters(), BASE_PATH)
        table = views.open_table(base_path)
        lease = None if table is None else views.lease_of(table)
        recorded = None if lease is None else lease.table.state.recordable()
        if lease is None or recorded is None:
            raise TableNotFoundError(f"no view of the table {base_path!r} is open here")
        stream = record_stream(lease.table.table_id, recorded)
        return Reply(200, b"", _BYTES, rest=_leased(stream, lease))

    yield "GET", TABLES, tables
    yield "GET", RECORD, record


def renewed_row(current: CurrentFleet) -> LoopRow:
    """Return the row of the route that says whether this server has renewed its membership.

    Its answer is JSON, see ``strandline.fleet.safe_mode.Renewed``.
    """

    async def renewed(_: Request) -> Reply:
        return json_reply(asdict(Renewed(current.is_sure(), current.known.epoch)))

    return "GET", RENEWED, renewed


def _leased(stream: Iterator[bytes], lease: object) -> Iterator[bytes]:
    """Yield a stream, and hold what keeps its table open until it ends."""
    yield from stream
    del lease
