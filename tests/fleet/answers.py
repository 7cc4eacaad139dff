"""Questions about a table at its newest instant, and what a view that is built anew answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from fsview.local_view import LocalView
from fsview.table_view import TableView
from fsview.wire.routes import BY_NAME
from tests.conformance.view_suite import canonical, without_times
from tests.fsview.subject import LocalClient
from timeline.storage.base import Storage

LATEST, SLICES, NEWEST = (
    BY_NAME[name] for name in ("latest_base_files", "latest_file_slices", "last_instant")
)


@dataclass(frozen=True)
class Question:
    """A question of a client that reads a table's timeline now.

    Attributes:
        path: Of the route.
        params: With the client's instant and hash.
        wanted: What a view that was built anew answers.
    """

    path: str
    params: Mapping[str, str]
    wanted: bytes

    def check(self, body: bytes, who: str) -> None:
        """Fail if an answer is another one."""
        got, should = shown(body), shown(self.wanted)
        assert got == should, f"{who} {self.params}: {got}, not {should}"


def built_anew(storage: Storage, partitions: Iterable[str]) -> list[Question]:
    """Return questions about partitions at the newest instant of a table."""
    view = TableView(storage)
    view.sync()
    LocalView.newest(view).load_all_partitions()
    timeline = view.newest().timeline.client_timeline()
    assert timeline.last is not None
    pin = {
        "basepath": storage.base_path,
        "lastinstantts": timeline.last.requested_time,
        "timelinehash": timeline.hash,
    }
    asked = LocalClient(view)
    found = []
    for route in (LATEST, SLICES):
        for partition in partitions:
            params = {**pin, "partition": partition}
            status, body = asked.ask("GET", route.path, params)
            assert status == 200, body
            found.append(Question(route.path, params, body))
    return found


def shown(body: bytes) -> Any:
    """Return an answer in a form in which right ones are equal."""
    return canonical(without_times(orjson.loads(body)))
