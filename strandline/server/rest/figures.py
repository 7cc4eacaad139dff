"""The figures that ``/v2/tables`` and ``/v2/status`` answer, of one server; and their merge.

The metrics are those of ``/metrics`` (``strandline.server.api.metrics``), under the same names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from prometheus_client.metrics_core import Metric

from fsview.metrics import Metrics
from fsview.table_view import TableView
from fsview.view_manager import ViewManager
from strandline.fleet.current import CurrentFleet
from strandline.fleet.forward import Forwarder
from strandline.server.api.metrics import Scrape, families

_SUFFIXES: Final = {"counter": "_total", "info": "_info"}
_TABLE: Final = "table"


def table_rows(
    views: ViewManager,
    metrics: Metrics,
    forwarder: Forwarder | None,
    current: CurrentFleet | None,
) -> list[dict[str, Any]]:
    """Return the rows of the tables that this server has open."""
    rows = (_row(views, metrics, table) for table in views.open_tables())
    return [{**row, **_place(row["table"], forwarder, current)} for row in rows]


def _row(views: ViewManager, metrics: Metrics, table: TableView) -> dict[str, Any]:
    label = str(table.table_id)
    status, history = table.status(), table.state.held
    newest = None if history is None else history.newest
    last = None if newest is None else newest.timeline.last
    calls = table.storage.calls.snapshot()
    requests = metrics.get("requests", table=label)
    lists = sum(count for (kind, _), count in calls.items() if kind == "list")
    longest = table.storage.calls.times().longest_s.values()
    return {
        "table": views.as_given(table.table_id),
        "instant": None if last is None else last.requested_time,
        "state": None if newest is None else newest.mark,
        "loaded": newest is not None and newest.files.known is not None,
        **{
            name: status[name]
            for name in ("partitions_loaded", "packed_bytes", "snapshots", "retained_bytes")
        },
        "requests": requests,
        "requests_ready": metrics.get("requests", table=label, way="ready"),
        "syncs": metrics.get("syncs", table=label),
        "reloads": metrics.get("reloads", table=label),
        "storage_calls": sum(calls.values()),
        "storage_calls_saved": max(0, requests - lists),
        "storage_longest_s": max(longest, default=0.0),
    }


def _place(table: str, forwarder: Forwarder | None, current: CurrentFleet | None) -> dict[str, Any]:
    """Return who has a table in a fleet."""
    if forwarder is None or current is None:
        return {"server": None, "owner": None, "is_owner": True, "group": None}
    before = forwarder.before(table)
    return {
        "server": current.url,
        "owner": before[0] if before else current.url,
        "is_owner": forwarder.is_owner(table),
        "group": current.known.group(table) or None,
    }


def server_figures(
    scrape: Scrape,
    names: str | None,
    table: str | None,
    url: str | None,
    process: Iterable[Metric],
) -> dict[str, Any]:
    """Return what ``/v2/status`` says of one server.

    Args:
        scrape: Its figures.
        names: What names of metrics begin with, separated by commas; ``None``: all.
        table: Only samples of this table, and those of none; ``None``: all.
        url: Its address in a fleet.
        process: Metrics of its process.
    """
    figures = scrape.figures
    reasons = figures["ready"]["reasons"]
    wanted = tuple(filter(None, (names or "").split(","))) or ("",)
    metrics = {}
    for metric in (*process, *families(scrape)):
        name = f"{metric.name}{_SUFFIXES.get(metric.type, '')}"
        if name.startswith(wanted):
            metrics[name] = _metric(metric, name, table)
    return {
        "server": url,
        "error": None,
        "version": scrape.version,
        "ready": not reasons,
        "reasons": list(reasons),
        **{name: figures[name] for name in _FIGURES},
        "metrics": metrics,
    }


_FIGURES: Final = (
    *("pid", "uptime_s", "restarts", "roots", "awaited_roots", "settings"),
    *("hanging", "newest_refusals"),
)


def silent(url: str, error: str) -> dict[str, Any]:
    """Return what ``/v2/status`` says of a server that doesn't answer."""
    empty = dict.fromkeys(("version", "ready", *_FIGURES))
    return {"server": url, "error": error, **empty, "reasons": [], "metrics": {}}


def _metric(metric: Metric, name: str, table: str | None) -> dict[str, Any]:
    samples = [
        {
            **({} if sample.name == name else {"name": sample.name}),
            "labels": dict(sample.labels),
            "value": sample.value,
        }
        for sample in metric.samples
        if table is None or sample.labels.get(_TABLE, table) in (table, "")
    ]
    return {"type": metric.type, "help": metric.documentation, "samples": samples}


def ordered(rows: Iterable[Mapping[str, Any]], order: str) -> list[Mapping[str, Any]]:
    """Return the rows of the tables of all servers by ``order``, a choice of the operation.

    Rows with the same figure are by name and server.
    """
    counted = _COUNTED[order]

    def key(row: Mapping[str, Any]) -> tuple[int, str, str]:
        return -sum(row[name] for name in counted), str(row["table"]), str(row["server"])

    return sorted(rows, key=key)


_COUNTED: Final[Mapping[str, tuple[str, ...]]] = {
    "name": (),
    "requests": ("requests",),
    "bytes": ("packed_bytes", "retained_bytes"),
}
"""Order → the columns whose sum is greatest in the first row."""
