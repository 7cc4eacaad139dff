"""``GET /metrics``: the figures of a service for Prometheus and what reads its text format.

``families`` turns the status and the counters into metrics; nothing is counted twice, and no
request pays for a metric but for its count and its duration. Names follow Prometheus' conventions.

A table's label is its id as text, of the first ``EXPORTED_TABLES`` tables that were counted; all
others are ``other`` together. No counter changes its label, or gets smaller. The gauge
``storage_call_longest_seconds`` names a table that is being opened only once its call hangs.
Clients are named where they are refused (``strandline.server.http.refusals`` bounds their number)
or wait for a table that hangs, at most ten of each.
"""

from __future__ import annotations

import platform
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector, CollectorRegistry

from fsview.metrics import BOUNDS_S, Labels, Latency
from strandline.fleet.mounts import OVER, MoveState
from strandline.server.http.reply import Reply
from strandline.server.http.request import Request
from timeline.storage.table_id import TableId

_SLICE: Final = 32
"""Tables between two pauses, see ``strandline.server.api.pages``."""
_PAUSE_S: Final = 0.0005
_US: Final = 1e-6
_MEMBER_STATES: Final = ("ready", "warming", "standby", "drained", "router")


@dataclass(frozen=True, slots=True)
class Scrape:
    """What one answer is made from.

    Attributes:
        version: The package's.
        figures: The service's status, without its tables.
        tables: Label and status of each open table; several may have one label.
        counters: Counters by label of the table, name and labels.
        latencies: How long requests took.
        running: Table's label, kind and cause → how long the storage call under way that has taken
            longest takes already, seconds.
    """

    version: str
    figures: Mapping[str, Any]
    tables: Iterable[tuple[str, Mapping[str, Any]]]
    counters: Mapping[str, Mapping[tuple[str, Labels], int]]
    latencies: Iterable[Latency]
    running: Mapping[tuple[str, str, str], float]


_COUNTERS: Final[Mapping[str, tuple[str, ...]]] = {
    "requests": ("Look-ups by table and way.", "way"),
    "requests_cpu_us": ("CPU time of look-ups that were computed.",),
    "sync_causes": ("Reads of a table's timeline, by cause.", "cause"),
    "sync_failures": ("Reads of a table's timeline that failed, by code of the error.", "code"),
    "sync_us": ("Duration of syncs.",),
    "sync_instants": ("Completed instants that syncs applied.",),
    "adoptions": ("Syncs that used another server's record.",),
    "adopted_instants": ("Completed instants in these records of others.",),
    "reloads": ("Tables loaded anew, by cause.", "cause"),
    "partition_loads": ("Partitions loaded, by source.", "source"),
    "partition_reloads": ("Partitions loaded anew, by cause.", "cause"),
    "record_reads": ("Records read from the store, by cause.", "cause"),
    "timelines_tried": ("Timelines tried for clients that are behind.",),
    "branches": ("Snapshots derived for clients that are behind, by outcome.", "outcome"),
    "checks": ("Comparisons of views with storage, by outcome.", "outcome"),
    "closed_tables": ("Tables closed, by cause.", "cause"),
    "metadata_table_refusals": ("Metadata tables that weren't used, by reason.", "reason"),
    "storage_calls": ("Requests to storage by kind and cause.", "kind", "cause"),
    "storage_us": ("Duration of calls to storage that ended.", "kind", "cause"),
    "table_refusals": (
        "Answers of 400 and more about a table, by code of the error; other: of none that is open.",
        "code",
    ),
}
"""Counter of ``fsview.metrics`` → what it counts, names of its labels beside ``table``; the others
aren't exported."""

_OF_TABLES: Final[Mapping[str, tuple[str, str]]] = {
    "snapshots": ("snapshots", "Snapshots held."),
    "retained_bytes": ("retained_bytes", "Bytes held for older snapshots alone."),
    "partitions_loaded": ("partitions_loaded", "Partitions held at the newest snapshot."),
    "packed_bytes": ("packed_bytes", "Packed size of the partitions held at the newest snapshot."),
}
"""Field of a table's status → name and help of the gauge."""


def metrics_handler(scrape: Callable[[], Scrape]) -> Callable[[Request], Reply]:
    """Return the handler of ``/metrics``; it runs on a thread.

    Args:
        scrape: Returns the figures as they are now.
    """
    process = ProcessCollector(registry=None)

    def answer(request: Request) -> Reply:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(process)
        registry.register(_Collected(scrape()))
        # The content type repeats parts of the header.
        accept = request.accept if request.accept.isascii() else ""
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):
            # It compares the version in the header with numbers, whatever that is.
            encode, content_type = choose_encoder("")
        return Reply(200, encode(registry), content_type)

    return answer


class _Collected(Collector):
    def __init__(self, scrape: Scrape) -> None:
        self._scrape = scrape

    def describe(self) -> Iterable[Metric]:
        """Name nothing ahead: each answer has a registry of its own."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Return the families of one scrape."""
        return families(self._scrape)


def families(scrape: Scrape) -> Iterator[Metric]:
    """Yield all metrics of a service but those of its process."""
    yield InfoMetricFamily(
        "strandline_build",
        "Version of Strandline and of Python.",
        {"version": scrape.version, "python": platform.python_version()},
    )
    yield _durations(scrape.latencies)
    yield from _counters(scrape.counters)
    yield _running(scrape)
    yield from _gauges_of_tables(scrape.tables)
    yield from _gauges(scrape.figures)
    yield from _events(scrape.figures)
    if "fleet" in scrape.figures:
        yield from _of_fleet(scrape.figures)


def _durations(latencies: Iterable[Latency]) -> Metric:
    family = HistogramMetricFamily(
        "strandline_request_duration_seconds",
        "Duration of requests by route; ready: answered from ready bytes.",
        labels=("route", "way"),
    )
    bounds = (*(f"{bound:g}" for bound in BOUNDS_S), "+Inf")
    for each in latencies:
        buckets = list(zip(bounds, each.cumulative, strict=True))
        family.add_metric((each.route, each.way), buckets, each.sum_s)
    return family


def _counters(counters: Mapping[str, Mapping[tuple[str, Labels], int]]) -> Iterator[Metric]:
    """Yield the exported counters, each in the order of its labels."""
    sums: dict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
    for table, counts in counters.items():
        for (name, labels), count in counts.items():
            if name in _COUNTERS:
                has = dict(labels)
                # Labels that aren't exported, such as a request's route, are added up.
                values = (table, *(has[label] for label in _COUNTERS[name][1:]))
                sums[name][values] += count
    for name, (text, *named) in _COUNTERS.items():
        metric, scale = _exported(name)
        family = CounterMetricFamily(f"strandline_{metric}", text, labels=("table", *named))
        for values, count in sorted(sums[name].items()):
            family.add_metric(values, count * scale)
        yield family


def _exported(name: str) -> tuple[str, float]:
    """Return the name of a counter's metric and the metric's value of one."""
    if name.endswith("_us"):
        return f"{name.removesuffix('us')}seconds", _US
    return ("syncs" if name == "sync_causes" else name), 1


def _running(scrape: Scrape) -> Metric:
    """Return the gauge of storage calls that don't end; 0: none of its labels is under way."""
    family = GaugeMetricFamily(
        "strandline_storage_call_longest_seconds",
        "Duration of the call to storage under way that has taken longest: one that only grows"
        " hangs.",
        labels=("table", "kind", "cause"),
    )
    known = {
        (table, dict(labels)["kind"], dict(labels)["cause"])
        for table, counts in scrape.counters.items()
        for name, labels in counts
        if name == "storage_calls"
    }
    for labels in sorted(known | scrape.running.keys()):
        family.add_metric(labels, scrape.running.get(labels, 0.0))
    return family


def _gauges_of_tables(tables: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[Metric]:
    sums: dict[str, Counter[str]] = {field: Counter() for field in _OF_TABLES}
    pause = threading.Event()
    for number, (label, figures) in enumerate(tables, 1):
        for field, counted in sums.items():
            counted[label] += figures[field]
        if number % _SLICE == 0:
            # Never set: a wait gives up the interpreter lock at once.
            pause.wait(_PAUSE_S)
    for field, (name, text) in _OF_TABLES.items():
        family = GaugeMetricFamily(f"strandline_{name}", text, labels=("table",))
        for label, value in sorted(sums[field].items()):
            family.add_metric((label,), value)
        yield family


def _gauges(figures: Mapping[str, Any]) -> Iterator[Metric]:
    budget, threads = figures["store"]["budget"], figures["threads"]
    is_ready = float(not figures["ready"]["reasons"])
    yield _gauge("ready", "1: ready, as of the last probe or scrape.", is_ready)
    yield _gauge("open_tables", "Tables open.", figures["open_tables"])
    yield _gauge("open_tables_limit", "Most open tables.", figures["open_tables_at_most"])
    yield _gauge("awaited_roots", "Roots that don't exist yet.", len(figures["awaited_roots"]))
    yield _gauge("memory_limit_bytes", "Memory budget.", budget["limit_bytes"])
    accounts = "Memory by account: encoded answers, retained snapshots, records of packed files."
    yield _gauges_by("memory_bytes", accounts, "account", budget["accounts"])
    in_memory = figures["store"]["in_memory"]["tables"]
    yield _gauge("store_failing_tables", "Tables in memory, as their store fails.", in_memory)
    yield _gauge(
        "ready_answers", "Answers held as ready bytes.", figures["ready_answers"]["answers"]
    )
    directories = figures["markers"]["directories"]
    yield _gauge("marker_directories", "Directories whose markers are held.", directories)
    connections = figures["connections"]
    yield _gauge("connections", "Open connections.", connections.get("open", 0))
    yield _gauge("connections_limit", "Most connections.", connections.get("at_most", 0))
    yield _gauge("threads_limit", "Threads for requests.", threads.get("at_most", 0))
    yield _gauge("threads_taken", "Threads that answer requests.", threads.get("taken", 0))
    yield _gauge("requests_waiting", "Requests that wait for a thread.", threads.get("waiting", 0))
    longest = {each["base_path"]: each["longest_s"] for each in threads.get("tables", ())}
    yield _gauge(
        "request_longest_seconds",
        "Duration of the request that has held a thread for longest: one that only grows hangs.",
        max(longest.values(), default=0.0),
    )
    hanging = GaugeMetricFamily(
        "strandline_request_hanging_seconds",
        "For how long a request for a table has held a thread, if that is long, by each client that"
        " waits for the table.",
        labels=("table", "client"),
    )
    for each in figures["hanging"]:
        for client in each["clients"]:
            hanging.add_metric((str(TableId.of(each["table"])), client), each["seconds"])
    yield hanging
    yield _gauge("watchers", "Requests that wait for a change.", figures["watchers"])
    unfinished = figures["busy"]["unfinished"]
    yield _gauge("requests_unfinished", "Requests that go on without a client.", unfinished)


def _events(figures: Mapping[str, Any]) -> Iterator[Metric]:
    """Yield the service's counters that aren't about tables."""
    refusals = CounterMetricFamily(
        "strandline_refusals",
        "Answers of 400 and more, by route, status and code of the error.",
        labels=("route", "status", "code"),
    )
    for each in figures["refusals"]:
        labels = (each["route"], str(each["status"]), each["code"])
        refusals.add_metric(labels, each["count"])
    yield refusals
    clients = CounterMetricFamily(
        "strandline_client_refusals",
        "Answers of 400 and more, by code of the error, table and client; other: of further ones.",
        labels=("code", "table", "client"),
    )
    for each in figures["client_refusals"]:
        clients.add_metric((each["code"], each["table"], each["client"]), each["count"])
    yield clients
    connections = dict(figures["connections"])
    for name in ("open", "at_most"):
        connections.pop(name, None)
    text = "Connections accepted, and closed by the service, by cause."
    yield _counters_by("connection_events", text, "event", connections)
    markers = {outcome: figures["markers"][outcome] for outcome in ("created", "refused")}
    text = "Markers that writers asked for: created; refused: there already, or in conflict."
    yield _counters_by("markers", text, "outcome", markers)
    text = "Views of clients that list storage, having given up the service, by cause."
    yield _counters_by("fallbacks", text, "cause", figures["fallbacks"])
    yield _counter("busy_answers", "Answers of 503: ask again.", figures["busy"]["answers"])
    dropped = figures["log"].get("dropped", 0)
    yield _counter("log_lines_dropped", "Log lines that couldn't be written.", dropped)
    yield _counter("restarts", "Processes of this service before this one.", figures["restarts"])
    if "forwarded" in figures:
        text = "Requests for other servers of the fleet, by outcome."
        yield _counters_by("forwarded", text, "outcome", figures["forwarded"])
    if "copies" in figures:
        text = "Notifications of copies, by outcome."
        yield _counters_by("copies", text, "outcome", figures["copies"])


def _state_of(member: Mapping[str, Any], drained: Collection[str]) -> str:
    """Return which of ``_MEMBER_STATES`` a member of the fleet is in."""
    if member["router"]:
        return "router"
    if member["url"] in drained:
        return "drained"
    if member["seat"] is None:
        return "standby"
    return "ready" if member["ready"] else "warming"


def _of_fleet(figures: Mapping[str, Any]) -> Iterator[Metric]:
    fleet = figures["fleet"]
    drained = frozenset(fleet["drained"])
    counted = Counter(_state_of(each, drained) for each in fleet["members"])
    states = {state: counted[state] for state in _MEMBER_STATES}
    yield _gauges_by("fleet_members", "Members of the fleet by state.", "state", states)
    for name, text in (
        ("seats", "Seats of a group of servers."),
        ("vacant", "Seats of a group that nobody holds."),
        ("mounts", "Paths mounted on a group."),
    ):
        by_group = {group: of[name] for group, of in fleet["groups"].items()}
        yield _gauges_by(f"fleet_group_{name}", text, "group", by_group)
    yield _gauge(
        "fleet_epoch", "Changes of mounts, moves and seats' holders so far.", fleet["epoch"]
    )
    yield _gauge("fleet_vacant_seats", "Seats that nobody holds.", len(fleet["vacant"]))
    renewed = float(fleet["renewed"])
    yield _gauge("fleet_renewed", "1: membership renewed lately; 0: safe mode.", renewed)
    text = "Times that the state store couldn't be used."
    yield _counter("fleet_state_outages", text, fleet["outages"])
    is_up = float(fleet["trouble"] is None)
    yield _gauge("fleet_state_up", "1: the state store was reached at the last attempt.", is_up)
    under_way = Counter({state.name: 0 for state in MoveState if state not in OVER})
    under_way.update(each["state"] for each in fleet["moves"])
    text = "Moves of tables that are under way, by state."
    yield _gauges_by("fleet_moves_under_way", text, "state", under_way)
    moved = fleet["moved"]
    text = "Steps of moves that this server has carried out as leader, by the state reached."
    yield _counters_by("fleet_moves", text, "state", moved["reached"])
    text = "Time that these moves have spent in a state."
    yield _counters_by("fleet_move_seconds", text, "state", moved["seconds"])
    text = "Creations of markers whose owner was in doubt or had moved, by outcome."
    yield _counters_by("fleet_creations", text, "outcome", fleet["creations"])
    text = "Records of tables fetched from other servers, by outcome."
    yield _counters_by("fleet_records", text, "outcome", fleet["records"])


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"strandline_{name}", text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"strandline_{name}", text, value=value)


def _gauges_by(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"strandline_{name}", text, labels=(label,))
    for key, value in sorted(values.items()):
        family.add_metric((key,), value)
    return family


def _counters_by(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(f"strandline_{name}", text, labels=(label,))
    for key, value in sorted(values.items()):
        family.add_metric((key,), value)
    return family
