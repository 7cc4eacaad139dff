"""Has Debian's ``promtool`` check what servers of a fleet answer to ``/metrics``.

``python -m tests.strandline.server.api.promtool`` installs the tool if need be, as root, and fails
if that or a check fails.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.kit.servers.live_service import HttpClient, known
from tests.kit.tables.small_table import SmallTable
from tests.strandline.fleet.serve_fleet import FleetServer, wait_for_seats
from timeline.storage.local import LocalStorage

LATEST: Final = "/v1/hoodie/view/datafiles/latest/partition/"
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


def promtool() -> str:
    """Return the path of ``promtool``, of Debian's package; installs it if it is missing."""
    if not shutil.which("promtool"):
        for command in (["apt-get", "update"], ["apt-get", "install", "-y", "prometheus"]):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    found = shutil.which("promtool")
    assert found is not None, "the package prometheus has no promtool"
    return found


def main() -> int:
    """Check; return the exit code."""
    tool = promtool()
    with tempfile.TemporaryDirectory() as folder:
        scrape = scrape_of_a_fleet(Path(folder))
    checked = subprocess.run([tool, "check", "metrics"], input=scrape, check=False)
    print(f"promtool check metrics: {len(scrape)} bytes, exit code {checked.returncode}")
    return checked.returncode


if __name__ == "__main__":
    sys.exit(main())
