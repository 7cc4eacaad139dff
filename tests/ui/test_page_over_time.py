"""The page while answers change, come late or never, and while nothing is committed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from playwright.sync_api import Browser, Locator, Route, expect

from strandline import LocalEngine, WriteClient
from strandline.server.http.server import ServiceServer
from tests.kit.servers.live_service import TOKEN
from tests.kit.tables.small_table import SmallTable
from tests.ui.browser import Visit, visiting
from tests.ui.lake import SCRIPT
from tests.ui.test_page import drawing, entered, of, panel
from timeline.storage.local import LocalStorage

A, B, C = (f"http://{name}:1" for name in "abc")
REQUESTS: Final = "strandline_requests_total"
REFUSALS: Final = "strandline_refusals_total"
_SOON_S: Final = 6
"""A bit more than views wait between readings."""


@pytest.fixture
def visit(browser: Browser, service: ServiceServer) -> Iterator[Visit]:
    with visiting(browser, service.url) as found:
        found.page.clock.install()
        yield found


def server(
    url: str, ready: int, refused: int = 0, *, error: str | None = None, up_s: float = 1
) -> dict[str, Any]:
    """Return figures of a server with so many requests."""

    def counter(value: int, **labels: str) -> dict[str, Any]:
        return {"type": "counter", "help": "", "samples": [{"labels": labels, "value": value}]}

    refusals = counter(refused, route="other", status="401", code="no_token")
    metrics = {REQUESTS: counter(ready, way="ready"), REFUSALS: refusals}
    return {
        "server": url,
        "error": error,
        "ready": None if error else True,
        "reasons": [],
        "uptime_s": None if error else up_s,
        "metrics": {} if error else metrics,
    }


def table(number: int, server: str, requests: int) -> dict[str, Any]:
    return {
        "table": f"/lake/t{number:04}",
        "server": server,
        "owner": server,
        "group": "default",
        "instant": None,
        "requests": requests,
        "requests_ready": 0,
        "is_owner": True,
        "storage_calls": 0,
        "storage_calls_saved": requests,
    }


class Answers:
    """What the page gets in place of the service's figures.

    Attributes:
        servers: Of ``/v2/status``.
        fleet: Likewise.
        rows: Of ``/v2/tables``.
    """

    def __init__(self, visit: Visit, *servers: dict[str, Any]) -> None:
        self.servers = servers
        self.fleet: dict[str, Any] | None = None
        self.rows = [table(1, A, 3), table(2, B, 4)]
        self._visit = visit
        visit.page.route("**/v2/status?*", lambda route: route.fulfill(json=self._status()))
        visit.page.route("**/v2/tables?*", lambda route: route.fulfill(json=self._tables()))

    def _status(self) -> dict[str, Any]:
        return {"servers": list(self.servers), "fleet": self.fleet}

    def _tables(self) -> dict[str, Any]:
        return {"rows": self.rows, "tables_open": len(self.rows), "next": None}

    def become(self, *servers: dict[str, Any]) -> None:
        """Give these to the next reading, and wait until it has ended."""
        self.servers = servers
        with self._visit.page.expect_response("**/v2/tables?*"):
            self._visit.page.clock.fast_forward(1000 * _SOON_S)


def glance(visit: Visit) -> Locator:
    return visit.page.get_by_label("At a glance")


def test_a_server_that_was_away_makes_no_peak_and_one_that_left_isnt_ready(visit: Visit) -> None:
    answers = Answers(visit, server(A, 100), server(B, 1_000_000))
    visit.go()
    answers.become(server(A, 102), server(B, 0, error="no answer"))
    expect(glance(visit)).to_contain_text("1 of 2 ready")
    answers.become(server(A, 104), server(B, 1_000_002))
    expect(glance(visit)).to_contain_text("1M in all")
    rate = re.search(r"([0-9.]+\S?) /s", glance(visit).inner_text())
    assert rate is not None
    assert float(rate[1]) < 2
    # Of the chosen server alone, until it is gone.
    choice = visit.page.get_by_label("Server")
    choice.select_option(B)
    assert panel(visit, "Look-ups").split("\n")[-1].startswith("t0002")
    assert "t0001" not in panel(visit, "Storage calls saved")
    answers.become(server(A, 106), server(C, 1))
    expect(glance(visit)).to_contain_text("Gone")
    assert choice.locator("option").all_inner_texts() == ["All servers", "a:1", "c:1", "b:1"]
    assert visit.wrong() == []


def test_what_hangs_or_is_refused_is_named_with_table_and_client(visit: Visit) -> None:
    calls = [{"kind": "list", "cause": "sync", "seconds": 42.0}]
    hanging = {"table": "/lake/t", "seconds": 43.0, "calls": calls, "clients": ["10.0.0.7"]}
    refusal = {
        "at": "2026-11-29T10:00:00.000Z",
        "status": 403,
        "code": "root_not_allowed",
        "route": "/v1/r",
        "table": SCRIPT,
        "client": "10.0.0.8",
        "reason": "outside",
        "request": "5fb67ffa-1",
        "count": 20,
    }
    Answers(visit, server(A, 1) | {"hanging": [hanging], "newest_refusals": [refusal]})
    visit.go()
    notice = visit.page.locator(".notice")
    expect(notice).to_contain_text("/lake/t: a request has held a thread for 43 s")
    expect(notice).to_contain_text("list for sync, 42 s; waited for by 10.0.0.7")
    told = panel(visit, "Newest refusals").split("\n")[-1].split("\t")
    assert told == [
        *("2026-11-29 10:00:00", "403 root_not_allowed", SCRIPT, "10.0.0.8"),
        *("outside", "5fb67ffa-1", "20"),
    ]
    assert visit.wrong() == []


def test_refusals_alone_are_drawn(visit: Visit) -> None:
    answers = Answers(visit, server(A, 100))
    visit.go()
    answers.become(server(A, 100))
    shown = "document.querySelector('.drawing canvas').toDataURL()"
    visit.page.wait_for_function("document.querySelector('.drawing canvas')")
    before = visit.page.evaluate(shown)
    answers.become(server(A, 100, refused=6000))
    visit.page.wait_for_function(f"(before) => {shown} !== before", arg=before)


def test_a_large_fleet_shows_some_tables_and_says_of_how_many(visit: Visit) -> None:
    answers = Answers(visit, server(A, 1))
    member = {"url": A, "seat": 0, "group": "default", "ready": True, "router": False}
    none: dict[str, Any] = {"vacant": [], "drained": [], "moves": [], "trouble": None}
    answers.fleet = {"members": [member], **none, "groups": {}, "epoch": 1, "leader": A}
    answers.rows = [table(number, A, 1) for number in range(3000)]
    visit.go("fleet")
    owners = visit.page.get_by_role("region", name="Owners", exact=True)
    expect(owners).to_contain_text("2,000 of 3,000 tables")
    assert owners.locator("tr").count() == 2001
    # Counters that aren't shown make no new rows.
    owners.locator("tr").nth(7).evaluate("(row) => { row.id = 'kept'; }")
    answers.rows = [table(number, A, 2) for number in range(3000)]
    answers.become(server(A, 2))
    visit.page.evaluate("new Promise((resolve) => requestAnimationFrame(resolve))")
    expect(owners.locator("#kept")).to_have_count(1)


def test_a_late_answer_is_of_no_other_order(visit: Visit) -> None:
    answers = Answers(visit, server(A, 1))
    visit.go("tables")
    late: list[Route] = []
    visit.page.route("**/v2/tables?*order=requests*", lambda route: late.append(route))
    with visit.page.expect_request("**/v2/tables?*order=requests*"):
        visit.page.get_by_role("button", name="Most look-ups").click()
    answers.rows = [table(3, A, 1)]
    visit.page.get_by_role("button", name="Most memory").click()
    shown = visit.page.get_by_role("table", name="Open tables")
    expect(shown).to_contain_text("t0003")
    late[0].fulfill(json={"rows": [table(4, A, 1)], "tables_open": 1, "next": None})
    visit.page.evaluate("fetch('icon.svg').then(() => null)")
    visit.settle()
    assert "t0003" in shown.inner_text()


def test_a_server_that_never_answers_is_named(visit: Visit) -> None:
    visit.page.route("**/v2/status?*", lambda _: None)
    visit.page.goto(f"{visit.url}/ui/")
    visit.page.fill("#token-text", TOKEN)
    visit.page.keyboard.press("Enter")
    visit.page.clock.fast_forward(61_000)
    expect(visit.page.get_by_text(re.compile("The server doesn.t answer"))).to_be_visible()


def test_a_server_that_is_back_is_live_before_a_table_changes(visit: Visit, root: Path) -> None:
    path = root / "awaited"
    SmallTable(LocalStorage(str(path))).write(("p=1", "a-0"))
    asked: list[str] = []
    visit.page.on("request", lambda request: asked.append(request.url))

    def watched(route: Route) -> None:
        """Be away for the first, and answer at once or never."""
        if sum("/v2/watch?" in url for url in asked) == 1:
            route.abort()
        elif "timeout=0" in route.request.url:
            route.fulfill(json={"changed": False, "state": "same"})

    visit.page.route("**/v2/watch?*", watched)
    entered(visit, of(path))
    expect(visit.page.get_by_text(re.compile("The server doesn.t answer"))).to_be_visible()
    assert sum("/v2/leases?" in url for url in asked) == 1
    visit.page.clock.fast_forward(2_000)
    expect(visit.page.get_by_text("Live")).to_be_visible()
    waits = [url.rpartition("timeout=")[2] for url in asked if "/v2/watch?" in url]
    assert waits[:2] == ["30", "0"]


def test_heartbeats_grow_old_without_a_commit(visit: Visit, root: Path) -> None:
    path = root / "silent"
    SmallTable(LocalStorage(str(path))).write(("p=1", "a-0"))
    row = {"requested_time": "20260101000000000", "action": "commit", "state": "INFLIGHT"}
    times = dict.fromkeys(("requested_at", "heartbeat_at"), "2026-01-01T00:00:00.000Z")
    answer = {"rows": [{**row, **times, "file_groups": 1}], "next": None}
    visit.page.route("**/v2/pending?*", lambda route: route.fulfill(json=answer))
    watches: list[Route] = []
    visit.page.route("**/v2/watch?*", lambda route: watches.append(route))
    visit.page.clock.set_fixed_time("2026-01-01T00:00:03Z")
    with visit.page.expect_request("**/v2/watch?*"):
        entered(visit, of(path))
    held = visit.page.get_by_role("region", name="Held up by writers: table")
    expect(held).to_contain_text("3 s ago")
    visit.page.clock.set_fixed_time("2026-01-01T00:10:00Z")
    watches[0].fulfill(json={"changed": False, "state": "same"})
    expect(held).to_contain_text("10 min ago")


def test_many_commits_read_once_what_a_clean_would_delete(visit: Visit, root: Path) -> None:
    path = root / "busy"
    table = SmallTable(LocalStorage(str(path)))
    table.write(("p=1", "a-0"))
    asked: list[str] = []
    visit.page.on("request", lambda request: asked.append(request.url))
    watches: list[Route] = []
    visit.page.route("**/v2/watch?*", lambda route: watches.append(route))

    def watched(**answer: Any) -> None:
        """Answer the newest watch; wait for the next, which follows all that this one led to."""
        many = len(watches)
        watches[-1].fulfill(json=answer)
        while len(watches) == many:
            visit.page.evaluate("new Promise((resolve) => requestAnimationFrame(resolve))")

    def read(name: str) -> int:
        return sum(f"/v2/{name}?" in url for url in asked)

    with visit.page.expect_request("**/v2/watch?*"):
        entered(visit, of(path))
    visit.page.evaluate("fetch('icon.svg').then(() => null)")
    before = read("partitions")
    for number in range(3):
        watched(changed=True, state=f"{number}")
    assert (read("partitions"), read("clean")) == (before + 3, 1)
    visit.page.clock.fast_forward(31_000)
    watched(changed=False, state="2")
    assert read("clean") == 2
    watched(changed=False, state="2")
    assert read("clean") == 2


def test_data_is_shown_while_the_drawings_library_is_loaded_and_without_it(
    visit: Visit, root: Path
) -> None:
    path = root / "undrawn"
    SmallTable(LocalStorage(str(path))).write(("p=1", "a-0"))
    late: list[Route] = []
    visit.page.route("**/vendor/*.js", lambda route: late.append(route))
    beside = visit.page.get_by_role("region", name="Partitions: table")
    told = visit.page.get_by_role("region", name="Partitions", exact=True)
    visit.page.goto(f"{visit.url}/ui/#/{of(path)}", wait_until="commit")
    visit.page.fill("#token-text", TOKEN)
    visit.page.keyboard.press("Enter")
    expect(beside).to_contain_text("p=1")
    busy = told.locator(".drawing[aria-busy]")
    expect(busy).to_have_count(1)
    late.pop().continue_()
    visit.drawn(2)
    visit.settle()
    assert visit.wrong() == []
    visit.page.reload(wait_until="commit")
    expect(busy).to_have_count(1)
    late.pop().abort()
    expect(told.locator(".drawing")).to_contain_text("Nothing can be drawn")
    expect(beside).to_contain_text("p=1")


def test_an_error_of_a_drawing_is_no_missing_library(visit: Visit) -> None:
    """It is reported, and the box is drawn in by what comes next."""
    late: list[Route] = []
    visit.page.route("**/vendor/*.js", lambda route: late.append(route))
    visit.page.goto(f"{visit.url}/ui/", wait_until="commit")
    box = visit.page.locator("#odd")
    visit.page.evaluate(
        """async () => {
          const box = document.createElement("div");
          Object.assign(box, { id: "odd", className: "drawing" });
          box.style = "width: 300px; height: 200px";
          document.body.append(box);
          const { Chart } = await import("/ui/chart.js");
          window.odd = new Chart(box);
          window.odd.draw(() => { throw new Error("odd data"); });
        }"""
    )
    expect(box).to_have_attribute("aria-busy", "true")
    with visit.page.expect_event("pageerror") as thrown:
        late.pop().continue_()
    assert "odd data" in thrown.value.message
    assert any("odd data" in each for each in visit.troubles)
    expect(box).not_to_have_attribute("aria-busy", "true")
    expect(box).not_to_contain_text("Nothing can be drawn")
    visit.page.evaluate(
        "window.odd.draw(() => ({"
        " xAxis: { data: ['a'] }, yAxis: {}, series: [{ type: 'bar', data: [1] }] }))"
    )
    visit.drawn(1)


def test_a_late_answer_is_of_no_other_partition(visit: Visit, root: Path) -> None:
    path = root / "ordered"
    SmallTable(LocalStorage(str(path))).write(("p=1", "a-0"), ("p=2", "b-0"))
    late: list[Route] = []
    visit.page.route(re.compile(r"/v2/slices\?.*p%3D1"), lambda route: late.append(route))
    entered(visit, of(path))
    with visit.page.expect_request("**/v2/slices?*"):
        visit.page.get_by_role("link", name="p=1").click()
    visit.page.get_by_role("link", name="p=2").click()
    slices = visit.page.get_by_role("region", name="Slices: table")
    expect(slices).to_contain_text("b-0")
    late[0].fulfill(json={"rows": [], "next": None})
    visit.page.evaluate("fetch('icon.svg').then(() => null)")
    visit.settle()
    assert "b-0" in panel(visit, "Slices")


def test_what_is_archived_meanwhile_stays_on_the_timeline(visit: Visit, root: Path) -> None:
    path = f"{root}/archiving"
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "",
        "hoodie.metadata.enable": "false",
        "hoodie.clean.commits.retained": "1",
        "hoodie.keep.min.commits": "2",
        "hoodie.keep.max.commits": "3",
    }
    with WriteClient(LocalEngine(), path, options) as client:

        def commit() -> None:
            client.upsert(pa.table({"id": ["1"], "n": [1]}))

        commit()
        entered(visit, of(path))
        assert "and 0 in the archive" in drawing(visit, "Timeline")
        for _ in range(5):
            commit()
    shown = visit.page.get_by_role("region", name="Timeline", exact=True).get_by_role("img").first
    expect(shown).to_have_attribute("aria-label", re.compile(r"and [1-9]\d* in the archive"))


def test_a_token_that_cant_be_sent_is_refused_and_the_question_stays(visit: Visit) -> None:
    visit.page.goto(f"{visit.url}/ui/")
    field = visit.page.locator("#token-text")
    expect(field).to_be_visible()
    for _ in range(2):
        visit.page.keyboard.press("Escape")
    expect(field).to_be_visible()
    field.fill("a\N{EN DASH}b")
    visit.page.keyboard.press("Enter")
    expect(visit.page.get_by_role("alert")).to_contain_text("No token has")
    expect(field).to_be_visible()
    assert visit.wrong() == []


def test_waits_leave_no_listener_and_strange_addresses_are_not_found(visit: Visit) -> None:
    entered(visit)
    assert visit.page.evaluate(_LISTENERS) == 0
    for address in ("constructor", "__proto__", "toString"):
        visit.go(address)
        expect(visit.page.get_by_role("heading", name="Not found")).to_be_visible()
    visit.go("group")
    expect(visit.page.locator(".failed")).to_have_count(2)
    assert visit.troubles == []


_LISTENERS: Final = """
async () => {
  const { sleep } = await import("./api.js");
  const { signal } = new AbortController();
  let count = 0;
  for (const [name, step] of [["addEventListener", 1], ["removeEventListener", -1]]) {
    signal[name] = (...more) => { count += step; EventTarget.prototype[name].apply(signal, more); };
  }
  for (let at = 0; at < 10; at += 1) await sleep(0.001, signal);
  return count;
}
"""
