"""``pinned``: the state that a new scan reads, told by a service or listed while others write."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any

from executor_proxy.view_location import ViewLocation
from strandline.read.state.changed_table import CHANGED, of_one_state
from strandline.read.state.pin import Pin
from timeline.errors import CorruptMetadataError
from timeline.meta_client import TableMetaClient


def pinned(
    meta: TableMetaClient,
    as_of: str | datetime | None,
    filter: Any = None,
    service: ViewLocation | None = None,
) -> Pin:
    """Return a table's state; arguments and errors as in ``Pin.at``.

    It is listed, and again if the table has changed meanwhile, where the service's answer doesn't
    suit storage.
    """
    if service is not None:
        # What the service knows of may be archived or cleaned by now; it doesn't tell which
        # instants were upgraded from an older layout, whose files have another encoding.
        with suppress(*CHANGED, CorruptMetadataError):
            return Pin.at(meta, as_of, filter, service)
    return of_one_state(lambda: Pin.at(meta, as_of, filter))
