"""The routes of writers besides markers: the remote partitioner, and Flink's instant states.

Source: Hudi 1.2.0 ``RequestHandler`` (partitioner, since 1.1); 1.0.2 (instant states, until 1.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Final

from strandline.server.api.handler import RouteRow, json_body, required, shown
from strandline.server.api.instant_states import InstantStates
from strandline.server.api.remote_partitioner import BucketRange, RemotePartitioner, count_of
from strandline.server.http.reply import Reply
from strandline.server.http.request import Request
from strandline.server.http.table_of_request import INSTANT_STATES, STATES_DIRECTORY

PARTITION_INDEX: Final = "/v1/hoodie/partitioner/getpartitionindex"

_BUCKETS: Final = "numbuckets"
_PARTITIONS: Final = "partitionnum"
_PATH: Final = "partitionpath"


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
