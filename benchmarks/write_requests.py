"""Requests of a daily upsert to an S3 API server, counted on the server's side.

``python -m benchmarks.write_requests`` prints each request of one upsert of 900 rows into one
partition of a table with some commits, in order, with the cause under which the storage counted
it; then the number of requests of a commit by kind, with the timeline service and without, and the
seconds of a commit when each request takes 30 ms more.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pyarrow as pa

from benchmarks.delay import Proxy, Request, delayed
from benchmarks.s3_server import s3_options, s3_process
from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from timeline.storage.base import StorageCalls
from timeline.storage.fsspec_storage import FsspecStorage

ROWS: Final = 900
KINDS: Final = ("list", "stat", "read", "write", "delete")
_WARM: Final = 5
"""Commits before those that are counted."""
_DRIVER, _SERVICE = "of-driver", "of-service"

OPTIONS: Final = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "month",
    "hoodie.table.ordering.fields": "ts",
}


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


class Commits:
    """Daily upserts of one client into a new table.

    Args:
        proxy: The proxy in front of the store.
        bucket: The table's bucket, which exists.
        service: Whether the client starts its timeline service.
    """

    def __init__(self, proxy: Proxy, bucket: str, *, service: bool) -> None:
        self._proxy = proxy
        url = f"s3://{bucket}/t"
        self._calls = NotedCalls()
        storage = FsspecStorage(url, s3_options(proxy.endpoint, _DRIVER))
        storage.calls = self._calls
        options = {**OPTIONS, "hoodie.embed.timeline.server": str(service).lower()}
        service_options = s3_options(proxy.endpoint, _SERVICE)
        self.client = WriteClient(
            LocalEngine(), url, options, storage=storage, storage_options=service_options
        )
        self._day = 0

    def write(self, days: int) -> Iterator[tuple[float, list[Seen]]]:
        """Write some days; yield the seconds and the requests of each commit."""
        for _ in range(days):
            before = len(self._proxy.requests())
            started = time.perf_counter()
            self.client.upsert(day(self._day))
            seconds = time.perf_counter() - started
            self._day += 1
            yield seconds, [self._seen(each) for each in self._proxy.requests()[before:]]

    def _seen(self, request: Request) -> Seen:
        is_service = _SERVICE in request.agent
        path = request.target.split("/t/", 1)[-1] if "?" not in request.target else request.target
        line = f"{request.method} {request.status} {path}"
        cause = "" if is_service else self._calls.cause_at(request.started_s)
        return Seen("service" if is_service else "driver", kind_of(request), line, cause)


def counted(commits: Iterable[Sequence[Seen]]) -> dict[str, float]:
    """Return the mean number of requests of a commit by kind."""
    given = list(commits)
    counts = Counter(seen.kind for each in given for seen in each)
    return {kind: counts[kind] / len(given) for kind in KINDS}


def _bucket(endpoint: str, name: str) -> str:
    FsspecStorage(f"s3://{name}/t", s3_options(endpoint))._fs.mkdir(name)
    return name


def measured(endpoint: str, folder: Path, *, service: bool, days: int, delay_s: float) -> None:
    """Count the requests of commits and time them; print both."""
    name = "with service" if service else "without service"
    with delayed(endpoint, 0, folder / f"{service}.jsonl") as proxy:
        commits = Commits(proxy, _bucket(endpoint, f"counted-{service}".lower()), service=service)
        with commits.client:
            list(commits.write(_WARM))
            seen = [requests for _, requests in commits.write(days)]
    print(f"\n{name}: the requests of one commit")
    for each in seen[-1]:
        print(f"  {each.who:8}{each.cause:24}{each.line}")
    counts = counted(seen)
    total = sum(counts.values())
    print(f"{name}: {total:.1f} requests a commit; {counts}")
    with delayed(endpoint, delay_s, folder / f"{service}-late.jsonl") as proxy:
        commits = Commits(proxy, _bucket(endpoint, f"timed-{service}".lower()), service=service)
        with commits.client:
            list(commits.write(_WARM))
            seconds = [seconds for seconds, _ in commits.write(days)]
    print(f"{name}: {statistics.median(seconds):.2f} s a commit at {delay_s * 1000:g} ms a request")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.write_requests")
    parser.add_argument("--days", type=int, default=10, help="commits counted (default 10)")
    parser.add_argument("--ms", type=float, default=30.0, help="delay of a request (default 30)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, s3_process() as endpoint:
        for service in (True, False):
            measured(
                endpoint,
                Path(name),
                service=service,
                days=options.days,
                delay_s=options.ms / 1000,
            )


if __name__ == "__main__":
    main()
