"""``strandline top``: what a running service does, again and again, in a terminal.

Each frame is made of two readings of ``/v2/status`` and ``/v2/tables``: rates and latencies are
of the time between them, in a fleet of all its servers together. ``figures`` and ``as_lines`` are
pure.
"""

from __future__ import annotations

import math
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from strandline.cli.late_module import LateModule
from strandline.cli.output import as_json, counted
from strandline.server.http.authorization import read_token_file
from strandline.server.log_format import escaped, hanging_line
from strandline.settings.setting import shortened
from timeline.clock import Clock, SystemClock
from timeline.errors import BadAnswerError, ServiceError

if TYPE_CHECKING:
    from strandline import client as v2
else:
    v2 = LateModule("strandline.client")

STATUS: Final = "status"
TABLES: Final = "tables"
METRICS: Final = (
    "strandline_requests",
    "strandline_request_duration_seconds",
    "strandline_refusals",
    "strandline_syncs",
    "strandline_memory",
)
"""What begins the names of the metrics that are read."""
_TABLES: Final = 1000
"""Most tables of a reading."""
_REASON_CHARACTERS: Final = 300
_SERVER_CHARACTERS: Final = 32
_HANGING: Final = 5
"""Most tables of a server whose hanging requests have a line."""

Read = Callable[..., Mapping[str, Any]]
"""``RestClient.get``."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a service answered at one time.

    Attributes:
        at_s: By a monotonic clock.
        status: The answer of ``STATUS``.
        tables: The answer of ``TABLES``.
    """

    at_s: float
    status: Mapping[str, Any]
    tables: Mapping[str, Any]

    @classmethod
    def take(cls, read: Read, clock: Clock) -> Reading:
        """Ask now."""
        status = read(STATUS, names=",".join(METRICS))
        return cls(
            clock.monotonic(), status, read(TABLES, order="requests", limit=_TABLES, once=True)
        )

    def sums(self, metric: str, *labels: str) -> Counter[tuple[str, ...]]:
        """Return the sums of a metric's samples over all servers, by the values of labels."""
        found: Counter[tuple[str, ...]] = Counter()
        for server in self.status["servers"]:
            found.update(_sums_of(server, metric, *labels))
        return found

    def since(self, before: Reading, metric: str, *labels: str) -> Counter[tuple[str, ...]]:
        """Return by how much the sums grew, of the servers that answered both times.

        Counters of a server that fell count from 0, as it has begun anew.
        """
        answered = {s["server"]: s for s in before.status["servers"] if not s["error"]}
        found: Counter[tuple[str, ...]] = Counter()
        for server in self.status["servers"]:
            if earlier := answered.get(server["server"]):
                old = _sums_of(earlier, metric, *labels)
                new = _sums_of(server, metric, *labels)
                found.update({k: n - old[k] if n >= old[k] else n for k, n in new.items()})
        return found


def _sums_of(server: Mapping[str, Any], metric: str, *labels: str) -> Counter[tuple[str, ...]]:
    """Return the sums of a metric's samples of one server, by the values of labels."""
    found: Counter[tuple[str, ...]] = Counter()
    for sample in (server["metrics"] or {}).get(metric, {"samples": ()})["samples"]:
        key = tuple(sample["labels"].get(label, "") for label in labels)
        # Of a histogram, the buckets alone have a bound.
        if "le" not in labels or "le" in sample["labels"]:
            found[key] += sample["value"]
    return found


def figures(before: Reading, now: Reading) -> dict[str, Any]:
    """Return what a frame shows, as values for JSON; times in seconds, sizes in bytes.

    Args:
        before: An earlier reading; a server or a table that isn't in it has no rate yet.
        now: The reading that is shown.
    """
    passed_s = max(now.at_s - before.at_s, 1e-9)
    servers = now.status["servers"]

    def rows(metric: str, *labels: str) -> list[dict[str, Any]]:
        recent = now.since(before, metric, *labels)
        return [
            {**dict(zip(labels, key, strict=True)), "total": n, "per_s": recent[key] / passed_s}
            for key, n in now.sums(metric, *labels).most_common()
            if n
        ]

    ways = now.since(before, "strandline_requests_total", "way")
    accounts = {key[0]: n for key, n in now.sums("strandline_memory_bytes", "account").items()}
    limit = sum(now.sums("strandline_memory_limit_bytes").values())
    earlier = {(t["table"], t["server"]): t["requests"] for t in before.tables["rows"]}
    return {
        "seconds": round(passed_s, 3),
        "servers": [
            {
                **{
                    name: each[name] for name in ("server", "error", "ready", "reasons", "uptime_s")
                },
                "hanging": [*map(_hanging, each["hanging"] or ())],
            }
            for each in servers
        ],
        "lookups_per_s": sum(ways.values()) / passed_s,
        "ready_share": ways["ready",] / sum(ways.values()) if any(ways.values()) else None,
        "routes": _routes(before, now, passed_s),
        "refusals": rows("strandline_refusals_total", "route", "status", "code"),
        "syncs": rows("strandline_syncs_total", "cause"),
        "memory": {"bytes": sum(accounts.values()), "limit_bytes": limit, "accounts": accounts},
        "tables_open": now.tables["tables_open"],
        "tables": [
            {
                **{name: table[name] for name in _OF_TABLES},
                "per_s": max(0, n - earlier.get((table["table"], table["server"]), n)) / passed_s,
            }
            for table in sorted(now.tables["rows"], key=lambda each: -each["requests"])
            for n in (table["requests"],)
        ],
    }


def _hanging(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``hanging_line`` reads of a row, so that another form is found here."""
    calls = [
        {"kind": call["kind"], "cause": call["cause"], "seconds": float(call["seconds"])}
        for call in row["calls"]
    ]
    clients = [*map(str, row["clients"])]
    taken = {"seconds": float(row["seconds"]), "calls": calls, "clients": clients}
    return {"table": row["table"], **taken}


_OF_TABLES: Final = (
    *("table", "server", "instant", "requests", "requests_ready", "syncs"),
    *("partitions_loaded", "packed_bytes", "storage_calls", "storage_calls_saved"),
)
_TOOK: Final = "strandline_request_duration_seconds"


def _routes(before: Reading, now: Reading, passed_s: float) -> list[dict[str, Any]]:
    """Return requests and latencies by route and way, the busiest first."""
    recent: dict[tuple[str, ...], dict[float, float]] = {}
    for (*key, bound), n in now.since(before, _TOOK, "route", "way", "le").items():
        recent.setdefault(tuple(key), {})[float(bound.replace("+Inf", "inf"))] = n
    totals = {
        (route, way): n
        for (route, way, bound), n in now.sums(_TOOK, "route", "way", "le").items()
        if bound == "+Inf" and n
    }
    found = [
        {
            "route": key[0],
            "way": key[1],
            "total": total,
            "per_s": counts[math.inf] / passed_s,
            "p50_s": quantile(counts, 0.5),
            "p99_s": quantile(counts, 0.99),
        }
        for key, total in totals.items()
        for counts in (recent.get(key, {math.inf: 0.0}),)
    ]
    return sorted(found, key=lambda each: (-each["per_s"], -each["total"]))


def quantile(cumulative: Mapping[float, float], share: float) -> float | None:
    """Return the quantile of a histogram, by a straight line within a bucket.

    Args:
        cumulative: Upper bound of each bucket → count up to it; with infinity.
        share: Such as 0.99.

    Returns:
        ``None`` if nothing was counted; beyond the last finite bound, that bound.
    """
    wanted = share * cumulative[math.inf]
    below = counted = 0.0
    for bound, count in sorted(cumulative.items()):
        if wanted and count >= wanted:
            if bound == math.inf:
                return below
            return below + (bound - below) * (wanted - counted) / (count - counted)
        below, counted = bound, count
    return None


def as_lines(url: str, shown: Mapping[str, Any], trouble: str = "") -> Iterator[str]:
    """Yield what ``figures`` returned as lines for people.

    Args:
        url: Of the service.
        shown: The figures.
        trouble: Why there are no newer ones; empty: there is no trouble.
    """
    servers = shown["servers"]
    ready = sum(bool(each["ready"]) for each in servers)
    state = "ready" if ready == len(servers) else f"{ready} of {len(servers)} servers ready"
    up_s = max((each["uptime_s"] or 0 for each in servers), default=0)
    yield f"{url}  {state}, {len(servers)} server{'s' * (len(servers) != 1)}, up {_time(up_s)}"
    if trouble:
        yield f"no answer: {trouble}"
    for each in servers:
        name = f"{each['server']}: " if each["server"] else ""
        hanging = each["hanging"][:_HANGING]  # the longest first
        troubles = (each["error"], *(each["reasons"] or ()), *map(hanging_line, hanging))
        for reason in filter(None, troubles):
            yield escaped(f"{name}{shortened(reason, _REASON_CHARACTERS)}")
        if more := len(each["hanging"]) - len(hanging):
            yield escaped(f"{name}{counted(more, 'more table')} hang{'s' * (more == 1)}")
    memory, ready_share = shown["memory"], shown["ready_share"]
    many = len(shown["tables"])
    yield (
        f"look-ups {shown['lookups_per_s']:.1f}/s"
        + ("" if ready_share is None else f", {100 * ready_share:.1f} % ready")
        + f"   refusals {sum(each['per_s'] for each in shown['refusals']):.1f}/s"
        + f"   memory {_size(memory['bytes'])} of {_size(memory['limit_bytes'])}"
        + f"   tables {shown['tables_open']}"
        + (f", the {many} most asked" if many < shown["tables_open"] else "")
    )
    yield from _columns(
        ("ROUTE", "WAY", "/S", "REQUESTS", "HALF", "99 %"),
        (
            (
                r["route"],
                r["way"],
                f"{r['per_s']:.1f}",
                r["total"],
                _time(r["p50_s"]),
                _time(r["p99_s"]),
            )
            for r in shown["routes"]
        ),
    )
    yield from _columns(
        ("REFUSED", "STATUS", "CODE", "/S", "REQUESTS"),
        (
            (r["route"], r["status"], r["code"], f"{r['per_s']:.1f}", r["total"])
            for r in shown["refusals"]
        ),
    )
    yield from _columns(
        ("SYNCS BY CAUSE", "/S", "SYNCS"),
        ((r["cause"], f"{r['per_s']:.2f}", r["total"]) for r in shown["syncs"]),
    )
    limit = memory["limit_bytes"] or math.inf
    yield from _columns(
        ("MEMORY", "BYTES", "SHARE"),
        ((name, _size(n), f"{100 * n / limit:.1f} %") for name, n in memory["accounts"].items()),
    )
    in_fleet = any(t["server"] for t in shown["tables"])
    yield from _columns(
        (
            *("TABLE", *(("SERVER",) if in_fleet else ()), "/S", "LOOK-UPS", "SYNCS"),
            *("MEMORY", "CALLS", "SAVED", "INSTANT"),
        ),
        (
            (
                *(t["table"], *((_place(t["server"]),) if in_fleet else ())),
                *(f"{t['per_s']:.1f}", t["requests"], t["syncs"]),
                *(_size(t["packed_bytes"]), t["storage_calls"], t["storage_calls_saved"]),
                t["instant"] or "none",
            )
            for t in shown["tables"]
        ),
    )


def _place(url: str) -> str:
    """Return host and port of a server's address, their middle cut out if they are long."""
    return shortened(url.rpartition("://")[2], _SERVER_CHARACTERS)


def _columns(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yield a table after an empty line; numbers and what ends in a unit are set to the right."""
    body = [[escaped(str(int(c) if isinstance(c, float) else c)) for c in row] for row in rows]
    if not body:
        return
    yield ""
    widths = [max(len(row[at]) for row in (head, *body)) for at in range(len(head))]
    right = [
        all(row[at][:1].isdigit() or row[at] == "-" for row in body) for at in range(len(head))
    ]
    for row in (head, *body):
        cells = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        )
        yield "  ".join(cells).rstrip()


def _size(count: float) -> str:
    """Return bytes in a unit of three digits at most."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.{int(unit != 'B' and count < 9.95)}f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _time(seconds: float | None) -> str:
    """Return a duration in a unit of three digits at most."""
    if seconds is None:
        return "-"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1), ("ms", 1e-3)):
        if seconds >= (2 if size >= 60 else 1) * size:
            return (
                f"{seconds / size:.3g} {unit}"
                if seconds < 1000 * size
                else f"{seconds / size:.0f} {unit}"
            )
    return f"{1e6 * seconds:.0f} µs"


def watched(
    read: Read, clock: Clock, wait: Callable[[float], object], interval_s: float
) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield a service's figures after each interval, and why there are no newer ones, or "".

    Args:
        read: Asks the service.
        clock: Measures the time between readings.
        wait: Waits for a number of seconds.
        interval_s: Between two readings.

    Raises:
        ServiceError: The first two readings fail.
    """
    before = Reading.take(read, clock)
    shown: dict[str, Any] | None = None
    while True:
        wait(interval_s)
        try:
            now = Reading.take(read, clock)
            shown = _checked(before, now)
        except ServiceError as error:
            if shown is None:
                raise
            yield shown, str(error)
        else:
            yield shown, ""
            before = now


def _checked(before: Reading, now: Reading) -> dict[str, Any]:
    try:
        return figures(before, now)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadAnswerError(f"the service's status has another form: {error!r}") from error


@click.command()
@click.argument("url")
@click.option("--token-file", type=click.Path(), help="File with the service's token.")
@click.option("--ca", help="PEM file of the authorities to trust; by default the system's.")
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two readings.",
)
@click.option("--once", is_flag=True, help="Print the first frame, and end.")
@click.option(
    "--output",
    type=click.Choice(("table", "json")),
    default="table",
    show_default=True,
    help="Columns for people, or a JSON object a line.",
)
def top(
    url: str, token_file: str | None, ca: str | None, interval: float, once: bool, output: str
) -> None:
    """Show what a running service does: requests, latencies, refusals, memory, tables.

    URL is the address of a service, such as http://127.0.0.1:26754; in a fleet the figures are of
    all its servers, and a table has a line for each server that has it open. Rates and latencies
    are of the time between two readings. Tables whose storage hangs are named first, of each server
    those that hang for longest, with the calls under way and the clients that wait.
    """
    token = read_token_file(token_file)[0] if token_file else None
    client = v2.RestClient(url.rstrip("/"), token, ca_file=ca)
    try:
        for shown, trouble in watched(client.get, SystemClock(), threading.Event().wait, interval):
            _print(url, shown, trouble, output)
            if once:
                return
    except KeyboardInterrupt:
        return


def _print(url: str, shown: Mapping[str, Any], trouble: str, output: str) -> None:
    """Print a frame; a terminal is cleared first, and shows as many lines as fit."""
    if output == "json":
        click.echo(as_json({**shown, "trouble": trouble or None}))
        return
    lines = list(as_lines(url, shown, escaped(trouble)))
    if sys.stdout.isatty():
        columns, rows = shutil.get_terminal_size()
        lines = [line[:columns] for line in lines[: rows - 1]]
        click.clear()
    click.echo("\n".join(lines))
