"""Single look-ups of a task through the service, against the least that HTTP takes in Python.

The service is the embedded one, in its child process, with its answers ready. Each look-up opens
a view, as a task does, and asks about a partition or file that this process didn't ask about
before, so that no answer comes from its cache, unless that is what is measured.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from benchmarks.results.ratios import Bound, Ratio, cpu_seconds, seconds
from benchmarks.servers.big_table import BigTable, Shape
from benchmarks.servers.server import target
from executor_proxy import ViewLocation
from executor_proxy.connection import streamed
from executor_proxy.exchange import Endpoint, Outgoing, Timeouts
from executor_proxy.http import HttpSession
from executor_proxy.worker_state import start_anew
from fsview.model.file_system_view import LookupQuery
from fsview.wire.param import REQUEST_ID_HEADER, WAIT_HEADER
from fsview.wire.routes import BY_NAME
from strandline import TimelineService
from strandline.settings.service import SERVICE_SETTINGS, TLS
from strandline.settings.setting import Settings

SIZES: Final = (10, 100, 1000)
BATCH: Final = 1000
FILES: Final = "latest_base_files"
FILE: Final = "latest_base_file"

_GREETING: Final = Outgoing("GET", "/", "/", {"Connection": "close"})
Act = Callable[[], object]


class Lookups:
    """Look-ups in one table through a service; a context manager that closes the bare connection.

    Args:
        url: The service's address.
        token: Its token.
        big: The table.
    """

    def __init__(self, url: str, token: str | None, big: BigTable) -> None:
        self._token = token
        self.big = big
        self.location = location_of(big, (url,), token)
        address = urlsplit(url)
        self._connection = http.client.HTTPConnection(address.hostname or "", address.port)

    def __enter__(self) -> Lookups:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def of_files(self, partition: str) -> int:
        """Open a view, and return the number of a partition's newest base files."""
        return len(self.location.open().latest_base_files(partition))

    def of_file(self, partition: str, file_id: str) -> None:
        """Open a view and look up one file group's newest base file."""
        assert self.location.open().latest_base_file(partition, file_id) is not None

    def of_batch(self, partition: str, file_ids: Sequence[str]) -> None:
        """Open a view and look up many file groups by one request."""
        query = LookupQuery(FILE, (partition,), tuple(file_ids))
        assert None not in self.location.open().look_up([query])[0]

    def bare(self, route: str, partition: str, **arguments: str) -> Act:
        """Return a call of ``http.client`` with the proxy's URL and headers, on a kept connection.

        It reads the body and doesn't decode it.
        """
        state = self.big.state()
        where = target(route, str(self.big.path), state, partition=partition, **arguments)
        headers = {
            "Accept": BY_NAME[route].accept,
            "Accept-Encoding": "gzip",
            "Authorization": f"Bearer {self._token}",
            WAIT_HEADER: "2",
            REQUEST_ID_HEADER: "0000000b-1",
        }

        def call() -> None:
            self._connection.request("GET", where, headers=headers)
            response = self._connection.getresponse()
            response.read()
            assert response.status == http.client.OK, response.status

        return call


def location_of(
    big: BigTable, urls: tuple[str, ...], token: str | None = None, base_path: str | None = None
) -> ViewLocation:
    """Return a table's location for tasks, at its newest instant."""
    state = big.state()
    path = str(big.path) if base_path is None else base_path
    return ViewLocation(path, urls, token, {}, state.last_instant, state.timeline_hash)


def in_pairs(pairs: Iterator[tuple[Act, Act]]) -> tuple[list[float], list[float]]:
    """Measure pairs of calls, in alternating order."""
    found: tuple[list[float], list[float]] = ([], [])
    for number, pair in enumerate(pairs):
        for at in (0, 1) if number % 2 else (1, 0):
            found[at].append(seconds(pair[at]))
    return found


def look_ups(folder: Path, rounds: int) -> Iterator[Ratio]:
    """Measure single look-ups; each figure has ``rounds`` pairs of values."""
    with TimelineService([str(folder)]) as service:
        for size in SIZES:
            big = BigTable.create(folder / f"files-{size}", Shape(rounds, size))
            with Lookups(service.url, service.token, big) as lookups:
                lookups.location.open().load_all_partitions()
                for partition in big.partitions:
                    lookups.bare(FILES, partition)()  # from here on the answers are ready
                if size == SIZES[0]:
                    yield from _one_file(lookups)
                yield from _partitions(lookups, size)
                if size == SIZES[-1]:
                    yield from _cached(lookups)
                    yield from _batches(lookups)


def encrypted(folder: Path, rounds: int) -> Iterator[Ratio]:
    """Measure what a certificate costs: new connections, and look-ups on kept ones."""
    settings = Settings.parse({TLS.name: "auto"}, SERVICE_SETTINGS)
    big = BigTable.create(folder / "files", Shape(2 * rounds + 1, SIZES[0]))
    with (
        TimelineService([str(folder)], settings=settings) as own,
        TimelineService([str(folder)]) as plain,
    ):
        services = (own, plain)
        at = [replace(location_of(big, (s.url,), s.token), ca_file=s.ca_file) for s in services]
        sessions = [HttpSession(s.url, s.token, ca_file=s.ca_file) for s in services]
        for location in at:
            location.open().load_all_partitions()
            for name in big.partitions:
                location.open().latest_base_files(name)
        start_anew()  # else the worker would have the answers now
        for location in at:
            location.open().latest_base_file(big.partitions[0], big.file_ids(big.partitions[0])[0])
        # Of different partitions, as a worker asks once about each.
        pairs = in_pairs(
            (
                lambda name=one: at[0].open().latest_base_files(name),
                lambda name=other: at[1].open().latest_base_files(name),
            )
            for one, other in zip(big.partitions[1::2], big.partitions[2::2], strict=True)
        )
        yield Ratio("warm look-up with TLS, 10 files", pairs[0], "us", "without", pairs[1])

        def connected(session: HttpSession) -> None:
            for _ in streamed(Endpoint.of(session.url, session.ca_file), _GREETING, Timeouts(), 99):
                pass

        pairs = in_pairs(
            (partial(connected, sessions[0]), partial(connected, sessions[1]))
            for _ in big.partitions
        )
        yield Ratio("new connection with TLS", pairs[0], "us", "without", pairs[1])


def _one_file(lookups: Lookups) -> Iterator[Ratio]:
    files = [(name, lookups.big.file_ids(name)[0]) for name in lookups.big.partitions]
    for name, file_id in files:
        lookups.bare(FILE, name, fileid=file_id)()
    pairs = in_pairs(
        (lambda name=name, of=of: lookups.of_file(name, of), lookups.bare(FILE, name, fileid=of))
        for name, of in files
    )
    yield Ratio("warm look-up, 1 file", pairs[0], "us", "bare call", pairs[1], Bound(ratio=2))


def _partitions(lookups: Lookups, size: int) -> Iterator[Ratio]:
    pairs = in_pairs(
        (lambda name=name: lookups.of_files(name), lookups.bare(FILES, name))
        for name in lookups.big.partitions
    )
    bounds = {SIZES[0]: Bound(ratio=2), SIZES[-1]: Bound(value=2e-3)}
    unit = "us" if size < SIZES[-1] else "ms"
    what = f"warm look-up, partition of {size:,} files"
    yield Ratio(what, pairs[0], unit, "bare call", pairs[1], bounds.get(size))
    if size == SIZES[-1]:
        start_anew()  # else the worker would have the answers now
        lookups.of_files(lookups.big.partitions[0])
        cpu = [cpu_seconds(partial(lookups.of_files, name)) for name in lookups.big.partitions[1:]]
        yield Ratio(f"{what}: the client's CPU", cpu, unit, bound=bounds[size])


def _cached(lookups: Lookups) -> Iterator[Ratio]:
    partition, again = lookups.big.partitions[-1], 50
    lookups.of_files(partition)

    def many() -> None:
        for _ in range(again):
            lookups.of_files(partition)

    bare = lookups.bare(FILES, partition)
    pairs = in_pairs((many, bare) for _ in lookups.big.partitions)
    each = [value / again for value in pairs[0]]
    what = "cached look-up, opening the view included"
    yield Ratio(what, each, "us", "bare call", pairs[1], Bound(value=20e-6))


def _batches(lookups: Lookups) -> Iterator[Ratio]:
    ids = {name: lookups.big.file_ids(name)[:BATCH] for name in lookups.big.partitions}
    for name, of in ids.items():
        lookups.of_batch(name, of[1:])
        lookups.bare(FILE, name, fileid=of[0])()
    pairs = in_pairs(
        (
            lambda name=name: lookups.of_batch(name, ids[name]),
            lambda name=name: lookups.of_file(name, ids[name][0]),
        )
        for name in ids
    )
    what = f"{BATCH:,} file ids in one batch"
    yield Ratio(what, pairs[0], "ms", "warm look-up, 1 file", pairs[1], Bound(ratio=20))
