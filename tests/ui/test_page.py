"""The page in chromium: each view draws its data, in every theme and width, and nothing else.

``Visit.wrong`` has what must never happen: errors and exceptions, requests to other servers,
reports of the content security policy, and violations that axe-core finds.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, expect

from benchmarks.servers.big_table import Shape
from strandline.server.http.server import ServiceServer
from tests.kit.servers.live_service import TOKEN, HttpClient
from tests.kit.servers.serve_process import ServeProcess
from tests.kit.tables.small_table import SmallTable
from tests.strandline.fleet.serve_fleet import FleetServer, wait_for_seats
from tests.ui.browser import Visit, visiting
from tests.ui.conftest import LARGE
from tests.ui.first_picture import measured
from tests.ui.lake import MANY, RICH, SCRIPT
from timeline.storage.local import LocalStorage

LATEST = "/v1/hoodie/view/slices/partition/latest"
LOOKS = [("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390)]


def entered(visit: Visit, view: str = "") -> None:
    """Open a view and give the token that it asks for."""
    visit.page.goto(f"{visit.url}/ui/#/{view}")
    visit.page.fill("#token-text", TOKEN)
    visit.page.keyboard.press("Enter")
    visit.settle()


def of(table: str | Path, view: str = "table", **more: str) -> str:
    return f"{view}?{urlencode({'table': str(table), **more})}"


def panel(visit: Visit, title: str) -> str:
    """Return the text of the table in a panel."""
    section = visit.page.get_by_role("region", name=f"{title}: table")
    return str(section.inner_text())


@pytest.mark.parametrize(("theme", "width"), LOOKS)
def test_views_are_drawn_in_each_theme_and_width(
    browser: Browser, service: ServiceServer, root: Path, theme: str, width: int
) -> None:
    trips = root / "trips"
    with HttpClient(service.port) as client:
        for _ in range(3):
            asked = {"basepath": str(trips), "partition": "region=asia/day=2026-11-01"}
            assert client.request("GET", f"{LATEST}/", asked).status == 200
            assert client.request("GET", LATEST, {"basepath": "/elsewhere"}).status == 403
    with visiting(browser, service.url, theme=theme, width=width) as visit:
        entered(visit, of(trips))
        for view, drawings in (
            (of(trips), 2),
            (of(trips, prefix="", partition="region=latam/day=2026-11-01"), 3),
            ("", 6),
            ("tables", 0),
            ("fleet", 0),
        ):
            visit.go(view)
            visit.drawn(drawings)
            assert visit.wrong() == [], view
            assert visit.overflow() <= 0, view


def test_a_table_shows_its_timeline_and_what_holds_it_up(
    browser: Browser, service: ServiceServer, root: Path
) -> None:
    with visiting(browser, service.url) as visit:
        entered(visit, of(root / "trips"))
        told = panel(visit, "Timeline")
        assert {"deltacommit", "clean", "compaction"} <= set(told.split())
        assert "compaction" in panel(visit, "Held up by writers")
        assert "requested" in panel(visit, "Held up by writers")
        assert re.search(r"and [1-9]\d* in the archive", drawing(visit, "Timeline"))
        # Down to one partition and one file group, by the keyboard.
        row = visit.page.get_by_role("link", name="region=latam/day=2026-11-01")
        row.focus()
        visit.page.keyboard.press("Enter")
        title = visit.page.get_by_role("heading", name="Slices of region=latam/day=2026-11-01")
        expect(title).to_be_visible()
        visit.settle()
        group = visit.page.get_by_role("region", name="Slices: table").get_by_role("link").first
        file_id = group.inner_text()
        group.click()
        expect(visit.page.get_by_role("heading", name=file_id)).to_be_visible()
        visit.settle()
        assert "newest" in panel(visit, "Slices")
        visit.drawn(1)
        assert visit.wrong() == []
        visit.page.go_back()
        expect(title).to_be_visible()


def drawing(visit: Visit, title: str) -> str:
    """Return what a drawing says to those who don't see it."""
    section = visit.page.get_by_role("region", name=title, exact=True)
    return str(section.get_by_role("img").first.get_attribute("aria-label"))


def test_a_large_table_is_drawn_by_prefixes(browser: Browser, service: ServiceServer) -> None:
    with visiting(browser, service.url) as visit:
        entered(visit, of(LARGE))
        assert f"{MANY:,} partitions" in drawing(visit, "Partitions")
        rows = visit.page.get_by_role("region", name="Partitions: table").get_by_role("row")
        assert rows.count() <= 2001
        visit.drawn(2)
        visit.go(of(LARGE, prefix="p=007/"))
        assert "50 partitions" in drawing(visit, "Partitions")
        assert visit.wrong() == []


def test_names_are_only_text(browser: Browser, service: ServiceServer, root: Path) -> None:
    table = root / SCRIPT
    with visiting(browser, service.url) as visit:
        entered(visit, of(table))
        assert visit.page.locator("h1").inner_text() == SCRIPT
        assert f"p={SCRIPT}" in panel(visit, "Partitions")
        assert f"p={RICH}" in panel(visit, "Partitions")
        chart = visit.page.get_by_role("region", name="Partitions", exact=True).get_by_role("img")
        for part in (0.1, 0.3, 0.5, 0.7, 0.9):
            box = chart.bounding_box()
            assert box is not None
            visit.page.mouse.move(box["x"] + part * box["width"], box["y"] + 0.5 * box["height"])
        visit.go(of(table, partition=f"p={SCRIPT}"))
        assert "a-0" in panel(visit, "Slices")
        visit.go(of(table, "group", partition=f"p={SCRIPT}", file_id="a-0"))
        assert f"p={SCRIPT}" in visit.page.locator(".trail").inner_text()
        for view in ("tables", ""):
            visit.go(view)
        assert visit.page.locator("img:not([src='icon.svg'])").count() == 0
        assert visit.wrong() == []


def test_a_commit_appears_by_itself(browser: Browser, service: ServiceServer, root: Path) -> None:
    path = root / "followed"
    table = SmallTable(LocalStorage(str(path)))
    table.write(("p=1", "a-0"))
    with visiting(browser, service.url) as visit:
        entered(visit, of(path))
        time = table.write(("p=2", "b-0"))
        expect(visit.page.get_by_role("region", name="Timeline: table")).to_contain_text(time)
        expect(visit.page.get_by_role("link", name="p=2")).to_be_visible()


def test_a_refused_token_is_asked_for_again(browser: Browser, service: ServiceServer) -> None:
    with visiting(browser, service.url) as visit:
        visit.page.goto(f"{service.url}/ui/")
        expect(visit.page.get_by_role("status").filter(has_text="Token wanted")).to_be_visible()
        assert visit.wrong() == []
        visit.page.fill("#token-text", "wrong")
        visit.page.keyboard.press("Enter")
        wrong = visit.page.get_by_role("alert").filter(has_text="The server refused this token")
        expect(wrong).to_be_visible()
        assert visit.wrong() == []
        visit.page.fill("#token-text", TOKEN)
        visit.page.keyboard.press("Enter")
        visit.settle()
        expect(visit.page.get_by_text("Live")).to_be_visible()
        # It is kept for this tab, and until it is forgotten.
        visit.page.reload()
        visit.settle()
        visit.page.get_by_role("button", name="Forget token").click()
        expect(visit.page.locator("#token-text")).to_be_visible()


def test_a_lost_server_is_named_and_tried_again(
    browser: Browser, tmp_path: Path, root: Path
) -> None:
    with (
        ServeProcess(root, tmp_path / "log") as server,
        visiting(browser, f"http://127.0.0.1:{server.port}") as visit,
    ):
        visit.go(of(root / "trips"))
        server.kill()
        lost = visit.page.get_by_text(re.compile("The server doesn.t answer"))
        expect(lost).to_be_visible()
        server.start()
        expect(visit.page.get_by_text("Live")).to_be_visible()


def test_errors_are_shown_once_with_what_is_allowed(
    browser: Browser, service: ServiceServer
) -> None:
    with visiting(browser, service.url) as visit:
        entered(visit, of("/elsewhere/t"))
        failed = visit.page.locator(".failed")
        expect(failed).to_have_count(1)
        expect(failed).to_contain_text("403 root_not_allowed")
        assert [each for each in visit.wrong() if not each.startswith("failed: ")] == []
        visit.go("nothing")
        expect(visit.page.get_by_role("heading", name="Not found")).to_be_visible()


def test_a_fleet_shows_its_seats_and_owners(browser: Browser, tmp_path: Path, root: Path) -> None:
    with (
        FleetServer(root, tmp_path, "a") as a,
        FleetServer(root, tmp_path, "b") as b,
        FleetServer(root, tmp_path, "s", "--standby") as standby,
    ):
        servers = [each for each in (a, b, standby) if isinstance(each, FleetServer)]
        wait_for_seats(servers, {0: servers[0].url, 1: servers[1].url})
        for each in (SCRIPT, "trips"):
            asked = {"basepath": f"{root}/{each}", "partition": "p=1"}
            assert servers[0].ask(f"{LATEST}/", asked).status == 200
        for theme, width in LOOKS:
            with visiting(browser, servers[1].url, theme=theme, width=width) as visit:
                visit.go("fleet")
                # The standby joins when it likes, and the page reads again.
                states = visit.page.get_by_role("region", name="Ring: table").locator(".tag")
                expect(states).to_have_text(["ready", "ready", "standby"])
                assert f"{root}/{SCRIPT}" in panel(visit, "Owners")
                visit.drawn(1)
                assert visit.wrong() == []
                assert visit.overflow() <= 0
        with visiting(browser, servers[1].url) as visit:
            visit.go("")
            glance = visit.page.get_by_label("At a glance")
            expect(glance).to_contain_text("3 servers")
            visit.page.get_by_label("Server").select_option(servers[2].url)
            expect(glance).not_to_contain_text("servers")
            expect(visit.page.get_by_text("Nothing was looked up yet")).to_be_visible()
            assert visit.wrong() == []


def test_the_first_picture_and_answers_of_a_table_are_measured(
    browser: Browser, tmp_path: Path
) -> None:
    found = measured(browser, tmp_path, Shape(20, 5))
    assert found.first_s > 0 < found.first_cpu_s
    assert found.commit_s > 0
    assert {"timeline", "partitions", "clean", "leases", "pending"} == set(found.answers)
    assert found.marks == 20
