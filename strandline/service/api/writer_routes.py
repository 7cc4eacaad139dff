"""Routes for writers beyond markers: the remote partitioner, and the instant states of Flink.

Source: Hudi 1.2.0 ``RequestHandler`` (partitioner, since 1.1); 1.0.2 (instant states, until 1.0).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from strandline.service.api.handler import Add, json_body, parameters, required, shown
from strandline.service.api.instant_states import InstantStates
from strandline.service.api.partitioner import BucketRange, RemotePartitioner, count_of
from strandline.service.http.paths import INSTANT_STATES, STATES_DIRECTORY
from strandline.service.http.reply import Reply

PARTITION_INDEX: Final = "/v1/hoodie/partitioner/getpartitionindex"

_BUCKETS: Final = "numbuckets"
_PARTITIONS: Final = "partitionnum"
_PATH: Final = "partitionpath"


def add_writer_routes(add: Add, partitioner: RemotePartitioner, states: InstantStates) -> None:
    """Add the route of the partitioner and the two of instant states."""

    def index() -> Reply:
        params = parameters()
        buckets, partitions = (
            count_of(required(params, name), name) for name in (_BUCKETS, _PARTITIONS)
        )
        asked = BucketRange(params.get(_PATH, ""), buckets, partitions)
        return json_body(partitioner.index(asked))

    def directory() -> str:
        return required(parameters(), STATES_DIRECTORY)

    def refresh() -> Reply:
        states.refresh(directory())
        return json_body(value=True)

    def all_states() -> Reply:
        return shown(json_body(list(map(asdict, states.all(directory())))))

    add("GET", PARTITION_INDEX, index)
    add("GET", f"{INSTANT_STATES}/all", all_states)
    add("POST", f"{INSTANT_STATES}/refresh/", refresh)
