"""Daily upserts to an S3 API server, whose requests are counted on the server's side."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import pyarrow as pa

from benchmarks.object_store.delay import Proxy, Request
from benchmarks.object_store.s3_server import s3_options
from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from timeline.storage.base import StorageCalls
from timeline.storage.fsspec_storage import FsspecStorage

ROWS: Final = 900
KINDS: Final = ("list", "stat", "read", "write", "delete")
_WARM: Final = 3
"""Commits before those that are counted."""
_DRIVER, _SERVICE = "of-driver", "of-service"

OPTIONS: Final = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "month",
    "hoodie.table.ordering.fields": "ts",
}


@dataclass(frozen=True, slots=True)
class Commit:
    """What one commit took.

    Attributes:
        seconds: From the call to its return.
        requests: Its requests, in the order in which they came.
        round_trips: See ``round_trips``.
    """

    seconds: float
    requests: list[Seen]
    round_trips: int


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as the table shows it.

    Attributes:
        who: ``driver`` or ``service``.
        kind: One of ``KINDS``.
        line: Method, status and key.
        cause: The cause under which the driver counted its last call before this request.
    """

    who: str
    kind: str
    line: str
    cause: str


class NotedCalls(StorageCalls):
    """Counts that also keep the time of each call."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[tuple[float, str]] = []

    def add(self, kind: str, cause: str, n: int = 1) -> None:
        """Book ``n`` calls, and note when."""
        super().add(kind, cause, n)
        self.noted.append((time.monotonic(), f"{cause} ({kind})"))

    def cause_at(self, moment: float) -> str:
        """Return the last call before a time."""
        found = bisect_right(self.noted, (moment, "\uffff"))
        return self.noted[found - 1][1] if found else ""


def kind_of(request: Request) -> str:
    """Return the kind of an S3 request."""
    parts = urlsplit(request.target)
    if request.method == "GET":
        return "list" if "list-type=" in parts.query or "prefix=" in parts.query else "read"
    if request.method == "HEAD":
        return "stat"
    is_delete = request.method == "DELETE" or parts.query.startswith("delete")
    return "delete" if is_delete else "write"


def day(number: int) -> pa.Table:
    """Return the rows of a day: half of them new, all of one month."""
    first = number * ROWS // 2
    ids = [f"key-{each:08}" for each in range(first, first + ROWS)]
    same = {"month": ["2013-01"] * ROWS, "ts": [number] * ROWS, "carrier": ["UA"] * ROWS}
    return pa.table({"id": ids, **same})


class DailyUpserts(ABC):
    """Daily upserts of one side into a new table.

    Args:
        name: The side's name.
        proxy: The proxy in front of the store.
    """

    def __init__(self, name: str, proxy: Proxy) -> None:
        self.name = name
        self._proxy = proxy
        self._day = 0

    def write(self, days: int) -> Iterator[Commit]:
        """Write some days; yield what each commit took."""
        for _ in range(days):
            rows = self._rows(self._day)
            self._day += 1
            first = len(self._proxy.requests())
            started = time.perf_counter()
            self._upsert(rows)
            seconds = time.perf_counter() - started
            made = self._proxy.requests()[first:]
            yield Commit(seconds, [self._seen(each) for each in made], round_trips(made))

    def _rows(self, number: int) -> object:
        return day(number)

    @abstractmethod
    def _upsert(self, rows: object) -> None:
        """Write a day's rows."""

    def close(self) -> None:  # noqa: B027 - not every side holds something open
        """Release what the side holds."""

    def _seen(self, request: Request) -> Seen:
        is_service = _SERVICE in request.agent
        path = request.target.split("/t/", 1)[-1] if "?" not in request.target else request.target
        line = f"{request.method} {request.status} {path}"
        cause = "" if is_service else self._cause_at(request.started_s)
        return Seen("service" if is_service else "driver", kind_of(request), line, cause)

    def _cause_at(self, moment: float) -> str:
        return ""


class Ours(DailyUpserts):
    """Daily upserts by a client of this package.

    Args:
        proxy: The proxy in front of the store.
        bucket: The table's bucket, which exists.
        service: Whether the client starts its timeline service.
        name: The side's name.
        engine: The client's engine or Spark session; ``None``: a ``LocalEngine``.
    """

    more: Mapping[str, str] = {}
    """Options in addition to ``OPTIONS``."""

    def __init__(
        self,
        proxy: Proxy,
        bucket: str,
        *,
        service: bool,
        name: str = "ours, LocalEngine",
        engine: object = None,
    ) -> None:
        super().__init__(f"{name}, {'service' if service else 'no service'}", proxy)
        url = f"s3://{bucket}/t"
        self._calls = NotedCalls()
        storage = FsspecStorage(url, s3_options(proxy.endpoint, _DRIVER))
        storage.calls = self._calls
        options = {**OPTIONS, **self.more, "hoodie.embed.timeline.server": str(service).lower()}
        self._client = WriteClient(
            LocalEngine() if engine is None else engine,
            url,
            options,
            storage=storage,
            storage_options=s3_options(proxy.endpoint, _SERVICE),
        )
        # A running client's commits are measured: its service has started.
        assert bool(self._client.service) == service

    def _upsert(self, rows: object) -> None:
        self._client.upsert(rows)

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    def _cause_at(self, moment: float) -> str:
        return self._calls.cause_at(moment)


def round_trips(requests: Iterable[Request]) -> int:
    """Return how many requests wait for one another: the longest chain of them in time."""
    count, ended = 0, float("-inf")
    for request in sorted(requests, key=lambda each: each.ended_s):
        if request.started_s >= ended:
            count, ended = count + 1, request.ended_s
    return count


def counted(commits: Iterable[Commit]) -> dict[str, float]:
    """Return the mean number of requests of a commit by kind."""
    given = list(commits)
    counts = Counter(seen.kind for each in given for seen in each.requests)
    return {kind: counts[kind] / len(given) for kind in KINDS}


def make_bucket(endpoint: str, name: str) -> str:
    """Make a bucket; return its name."""
    FsspecStorage(f"s3://{name}/t", s3_options(endpoint))._fs.mkdir(name)
    return name


def in_turns(sides: Sequence[DailyUpserts], days: int) -> dict[str, list[Commit]]:
    """Have all sides write the same days, one after the other in an order that rotates.

    Before each counted day a side writes one that isn't: Spark ends Python workers that were idle
    for a minute, which the writes of the other sides may take.
    """
    for side in sides:
        list(side.write(_WARM))
    writes = {side.name: side.write(2 * days) for side in sides}
    found: dict[str, list[Commit]] = {name: [] for name in writes}
    for number in range(days):
        names = list(writes)
        for at in range(len(names)):
            name = names[(number + at) % len(names)]
            next(writes[name])
            found[name].append(next(writes[name]))
    return found
