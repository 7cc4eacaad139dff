"""Draws docs/images: ``python -m tests.ui.screenshots`` (``tox exec -e ui -- python -m …``).

The pictures are of a service with the medium table, which a few hundred look-ups have asked.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from urllib.parse import urlencode

from strandline.server.http.server import ServiceServer
from strandline.server.http.server_options import ServerOptions
from strandline.server.process.composition_root import Parts
from strandline.server.process.options import PartsOptions
from tests.kit.servers.live_service import HttpClient, known, running
from tests.ui import lake
from tests.ui.browser import launched, visiting
from timeline.storage.local import LocalStorage

IMAGES = Path(__file__).parents[2] / "docs" / "images"
LATEST = "/v1/hoodie/view/slices/partition/latest/"
READINGS = 8
"""Of the service's figures, before its picture."""


def main() -> None:
    """Write the pictures."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        trips = lake.medium(Path(folder) / "lake")
        pin = known(LocalStorage(trips))
        parts = Parts(PartsOptions((f"{folder}/lake",), None, ui=True))
        with running(ServiceServer(parts, ServerOptions())) as server, launched() as browser:
            with visiting(browser, server.url, height=1180) as visit:
                visit.go(f"table?{urlencode({'table': trips})}")
                # Names of folders on this machine don't belong into the documents.
                visit.page.locator(".title p").evaluate(f"(p) => (p.textContent = '{SHOWN}')")
                visit.page.screenshot(path=IMAGES / "page-table.png")
            with (
                visiting(browser, server.url, theme="dark", height=1180) as visit,
                HttpClient(server.port, None) as client,
            ):
                visit.go()
                for reading in range(READINGS):
                    for number in range(40 * (1 + reading % 3)):
                        asked = {**pin, "partition": f"region=asia/day=2026-11-0{1 + number % 5}"}
                        client.request("GET", LATEST, asked)
                    client.request("GET", LATEST, {"basepath": "/elsewhere"})
                    with visit.page.expect_response("**/v2/status*"):
                        pass
                visit.page.screenshot(path=IMAGES / "page-service.png")


SHOWN = "/lake/trips"

if __name__ == "__main__":
    main()
