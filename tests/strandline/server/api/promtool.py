"""Has Debian's ``promtool`` check ``/metrics`` of a fleet's server, alert rules and dashboard.

``alert_cases.yaml`` has events and the alerts that they fire.

``python -m tests.strandline.server.api.promtool`` installs the tool if need be, as root, and fails
if that or a check fails.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import yaml

from tests.kit.debian import program
from tests.kit.servers.live_service import HttpClient, known
from tests.kit.tables.small_table import SmallTable
from tests.strandline.fleet.serve_fleet import FleetServer, wait_for_seats
from timeline.storage.local import LocalStorage

LATEST: Final = "/v1/hoodie/view/datafiles/latest/partition/"
EXAMPLES: Final = Path(__file__).parents[4] / "examples"
ALERTS: Final = EXAMPLES / "prometheus" / "alerts.yaml"
CASES: Final = Path(__file__).with_name("alert_cases.yaml")
DASHBOARD: Final = EXAMPLES / "grafana" / "strandline.json"
STRANGE: Final = 'with "quotes", \\n and {braces}\n'
"""Name of a table whose label needs every escape."""


def scrape_of_a_fleet(folder: Path) -> bytes:
    """Return what a server of a fleet answers after look-ups, a write's marker and refusals."""
    lake = folder / "lake"
    tables = [SmallTable(LocalStorage(f"{lake}/{name}")) for name in ("t", "u", STRANGE)]
    for table in tables:
        table.write(("p=1", "a-0"))
    (folder / "views").mkdir()
    store = ("--storage", "sql", "--store-url", f"sqlite://{folder}/views/views.db")
    with (
        FleetServer(lake, folder, "a", *store) as a,
        FleetServer(lake, folder, "b", *store) as b,
        HttpClient(a.port, None) as client,
    ):
        assert isinstance(a, FleetServer)
        assert isinstance(b, FleetServer)
        wait_for_seats((a, b), {0: a.url, 1: b.url})
        for table in tables:
            asked = known(table.storage, partition="p=1")
            for server in (a, b):
                for _ in range(2):
                    assert server.ask(LATEST, asked).status == 200
        marker = {
            "markerdirpath": f"{lake}/t/.hoodie/.temp/20260101000000000",
            "markername": "p=1/f1_0-1-0_20260101000000000.parquet.marker.CREATE",
        }
        assert a.ask("/v1/hoodie/marker/create", marker, "POST").status == 200
        assert a.ask(LATEST, {"basepath": "/elsewhere"}).status == 403
        return client.request("GET", "/metrics").body


def alerts() -> list[dict[str, Any]]:
    """Return the alert rules."""
    groups = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    """Return the dashboard's panels that draw something."""
    found = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def dashboard_expressions() -> list[str]:
    """Return the dashboard's expressions, with values in place of Grafana's variables."""
    values = {"$job": "strandline", "$instance": ".*", "$__rate_interval": "5m"}
    found = [target["expr"] for panel in panels() for target in panel["targets"]]
    for name, value in values.items():
        found = [expression.replace(name, value) for expression in found]
    return found


def as_rules(expressions: list[str]) -> dict[str, Any]:
    """Return recording rules with these expressions."""
    rules = [{"record": f"drawn:{n}", "expr": each} for n, each in enumerate(expressions)]
    return {"groups": [{"name": "dashboard", "rules": rules}]}


def main() -> int:
    """Check; return the exit code."""
    tool = program("promtool", "prometheus")
    with tempfile.TemporaryDirectory() as folder:
        scrape = scrape_of_a_fleet(Path(folder))
        drawn = Path(folder) / "dashboard.yaml"
        drawn.write_text(yaml.safe_dump(as_rules(dashboard_expressions())))
        return max(
            checked([tool, "check", "metrics"], scrape),
            checked([tool, "check", "rules", str(ALERTS)]),
            checked([tool, "test", "rules", str(CASES)]),
            checked([tool, "check", "rules", str(drawn)]),
        )


def checked(command: list[str], data: bytes = b"") -> int:
    """Run a check; return its exit code."""
    code = subprocess.run(command, input=data, check=False).returncode
    print(f"{' '.join(command)}: exit code {code}")
    return code


if __name__ == "__main__":
    sys.exit(main())
