"""Each fault that operators meet, of a live service: the page names its cause, table and client."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from strandline.server.http.limits import Limits
from strandline.server.http.server import ServiceServer
from strandline.server.http.server_options import ServerOptions
from strandline.server.process.composition_root import Parts
from strandline.server.process.options import PartsOptions
from tests.fsview.shared_work import wait_until
from tests.kit.servers.live_service import TOKEN, running
from tests.kit.tables.small_table import SmallTable
from tests.strandline.server.api.test_metrics import Stuck
from tests.strandline.server.faults.test_faults_shown import PEER, Lake
from tests.ui.browser import visiting
from tests.ui.test_page import panel
from timeline.storage.base import Storage
from timeline.storage.local import LocalStorage
from timeline.storage.open import open_storage


def test_every_fault_is_named_with_table_and_client(
    browser: Browser, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stuck = Stuck(f"{tmp_path}/lake/stuck")
    SmallTable(LocalStorage(stuck.base_path)).write(("p=1", "a-0"))

    def opener(base_path: str, options: Mapping[str, Any] | None) -> Storage:
        return stuck if base_path.endswith("stuck") else open_storage(base_path, options)

    parts = Parts(PartsOptions((f"{tmp_path}/lake",), TOKEN, ui=True), opener=opener)
    options = ServerOptions(hangs_s=1.0, limits=Limits(write_s=0.1))
    with (
        running(ServiceServer(parts, options)) as server,
        visiting(browser, server.url) as visit,
        ThreadPoolExecutor(1) as pool,
        ExitStack() as ends,
    ):
        ends.callback(stuck.go.set)
        lake = Lake(tmp_path / "lake", server, caplog)
        assert lake.asked() == 200
        elsewhere = f"{tmp_path}/elsewhere/t"
        assert lake.asked(elsewhere) == 403
        assert lake.asked(token="of another service") == 401
        assert lake.asked(lastinstantts="20200101000000000", timelinehash="unknown") == 400
        lake.corrupt()
        assert lake.asked() == 500
        waiting = pool.submit(lake.asked, f"{lake.path}/stuck")
        wait_until(lambda: parts.hanging() != [])
        # So that the page itself is never refused, which would be the newest 401.
        visit.page.add_init_script(f"sessionStorage.setItem('strandline.token', '{TOKEN}')")
        visit.go()
        notice = visit.page.locator(".notice")
        expect(notice).to_contain_text(f"{lake.path}/stuck: a request has held a thread for")
        expect(notice).to_contain_text(f"waited for by {PEER}")
        rows = panel(visit, "Newest refusals").splitlines()
        for code, table in (
            ("403 root_not_allowed", elsewhere),
            ("401 unauthorized", lake.name),
            ("400 view_behind", lake.name),
            ("500 corrupt_metadata", lake.name),
        ):
            (row,) = [each for each in rows if code in each]
            assert table in row
            assert PEER in row
        assert visit.wrong() == []
        stuck.go.set()
        assert waiting.result() == 200
