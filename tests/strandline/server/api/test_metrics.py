"""``/metrics``: each figure is there, follows Prometheus' conventions, and counts what happened."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from fsview.metrics import EXPORTED_TABLES
from strandline.server.api.readiness import STOPPING
from strandline.server.http.authorization import METRICS_PATH
from strandline.server.http.refusals import CLIENTS
from strandline.server.http.server import ServiceServer
from strandline.server.http.server_options import HANGS_S, ServerOptions, bind
from strandline.server.process.composition_root import Parts
from strandline.server.process.options import PartsOptions
from tests.fsview.shared_work import wait_until
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.servers.free_port import free_port
from tests.kit.servers.live_service import (
    TOKEN,
    AppClient,
    GoldenTables,
    HttpClient,
    known,
    parts_of,
    running,
    serving,
)
from tests.kit.tables import golden
from tests.kit.tables.small_table import SmallTable
from timeline.errors import ConfigError
from timeline.storage.base import CallTimes, FileInfo, Storage, StorageCalls, timed
from timeline.storage.local import LocalStorage

TABLES = GoldenTables()
LATEST = "/v1/hoodie/view/datafiles/latest/partition/"
ASKED = TABLES.known("cow_basic_v9", 7, partition="2024-01-01")

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scraped(text: bytes) -> tuple[dict[str, Metric], Samples]:
    """Return the families by name, and the samples by name and labels."""
    families = {each.name: each for each in text_string_to_metric_families(text.decode())}
    samples = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families.values()
        for sample in family.samples
    }
    return families, samples


def scrape(client: HttpClient | AppClient) -> Samples:
    status, body = client.ask("GET", METRICS_PATH, {})
    assert status == 200
    return scraped(body)[1]


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[f"strandline_{name}", frozenset(labels.items())]


@pytest.fixture
def server() -> Iterator[ServiceServer]:
    with serving(TABLES.root, opener=TABLES) as running:
        yield running


def test_it_counts_requests_with_their_durations_and_refusals(server: ServiceServer) -> None:
    with HttpClient(server.port) as client:
        for _ in range(4):
            assert client.request("GET", LATEST, ASKED).status == 200
        assert client.request("GET", LATEST, {"basepath": "/elsewhere"}).status == 403
        assert client.request("GET", "/none").status == 404
        found = scrape(client)
    table = "file:///golden/cow_basic_v9/07"
    assert value(found, "requests_total", table=table, way="ready") == 3
    assert value(found, "requests_total", table=table, way="computed") == 1
    took = "request_duration_seconds"
    assert value(found, f"{took}_count", route="latest_base_files", way="ready") == 3
    assert value(found, f"{took}_bucket", route="latest_base_files", way="ready", le="+Inf") == 3
    assert value(found, f"{took}_sum", route="latest_base_files", way="ready") > 0
    assert value(found, f"{took}_count", route="latest_base_files", way="built") == 2
    assert value(found, f"{took}_count", route="other", way="built") == 1
    refused = {"route": LATEST.rstrip("/"), "status": "403", "code": "root_not_allowed"}
    assert value(found, "refusals_total", **refused) == 1
    assert value(found, "refusals_total", route="other", status="404", code="not_found") == 1
    assert value(found, "syncs_total", table=table, cause="start") == 1
    assert value(found, "table_refusals_total", table="other", code="root_not_allowed") == 1
    assert value(found, "storage_calls_total", table=table, kind="list", cause="lookup") == 1
    assert value(found, "partitions_loaded", table=table) == 1
    assert value(found, "connections") == 1
    assert value(found, "memory_bytes", account="answers") > 0
    assert found["process_cpu_seconds_total", frozenset()] > 0


class Stuck(LocalStorage):
    """A storage whose listings wait.

    Attributes:
        lists: Set once a listing has begun.
        go: Lets listings end.
    """

    def __init__(self, base_path: str) -> None:
        super().__init__(base_path)
        self.lists, self.go = threading.Event(), threading.Event()

    @timed("list")
    def list(self, path: str) -> tuple[FileInfo, ...]:
        self.lists.set()
        assert self.go.wait(PATIENCE_S)
        return super().list(path)


class StuckForLong(StorageCalls):
    """Calls of which one doesn't end."""

    def times(self) -> CallTimes:
        return replace(super().times(), longest_s={("list", "timeline"): HANGS_S})


def test_a_storage_call_that_hangs_is_named_with_its_table_and_its_time_counts_at_its_end(
    tmp_path: Path,
) -> None:
    table = SmallTable(LocalStorage(f"{tmp_path}/t"))
    table.write(("p=1", "a-0"))
    asked = known(table.storage, partition="p=1")
    stuck = Stuck(f"{tmp_path}/t")
    stuck.go.set()
    label = {"table": f"file://{tmp_path}/t", "kind": "list", "cause": "sync"}
    with (
        serving(str(tmp_path), opener=lambda *_: stuck) as server,
        HttpClient(server.port) as client,
        HttpClient(server.port) as scraper,
        ThreadPoolExecutor(1) as pool,
    ):
        assert client.request("GET", LATEST, asked).status == 200
        stuck.lists.clear()
        stuck.go.clear()
        answer = pool.submit(
            client.request, "GET", LATEST, {"basepath": f"{tmp_path}/t", "partition": "p=1"}
        )
        assert stuck.lists.wait(PATIENCE_S)
        hanging = scrape(scraper)
        stuck.go.set()
        assert answer.result().status == 200
        ended = scrape(scraper)
    assert value(hanging, "storage_call_longest_seconds", **label) > 0
    assert value(ended, "storage_call_longest_seconds", **label) == 0
    took = "storage_seconds_total"
    assert value(ended, took, **label) > value(hanging, took, **label) > 0


def test_a_table_that_never_opens_is_named_once_its_storage_hangs_for_long(tmp_path: Path) -> None:
    """Until then it is one of the others, as a client may name what doesn't exist."""
    SmallTable(LocalStorage(f"{tmp_path}/t")).write(("p=1", "a-0"))
    for calls, label in ((StorageCalls(), "other"), (StuckForLong(), f"file://{tmp_path}/t")):
        stuck = Stuck(f"{tmp_path}/t")
        stuck.calls = calls
        with (
            serving(str(tmp_path), opener=lambda *_, stuck=stuck: stuck) as server,
            HttpClient(server.port) as client,
            HttpClient(server.port) as scraper,
            ThreadPoolExecutor(1) as pool,
        ):
            asked = {"basepath": f"{tmp_path}/t", "partition": "p=1"}
            answer = pool.submit(client.request, "GET", LATEST, asked)
            assert stuck.lists.wait(PATIENCE_S)
            found = scrape(scraper)
            stuck.go.set()
            assert answer.result().status == 200
        name = "storage_call_longest_seconds"
        assert value(found, name, table=label, kind="list", cause="timeline") > 0


def test_paths_without_a_table_take_no_label(tmp_path: Path) -> None:
    with serving(str(tmp_path)) as server, HttpClient(server.port) as client:
        for number in range(EXPORTED_TABLES + 1):
            asked = {"basepath": f"{tmp_path}/none{number}", "partition": "p=1"}
            assert client.request("GET", LATEST, asked).status == 404
        found = scrape(client)
    named = [(name, dict(labels)) for name, labels in found if ("client", "127.0.0.1") in labels]
    assert {name for name, _ in named} == {"strandline_client_refusals_total"}
    assert len(named) == CLIENTS
    tables = {dict(labels).get("table", "") for _, labels in found}
    assert tables - {labels["table"] for _, labels in named} == {"", "other"}
    of_others = {"table": "other", "code": "table_not_found"}
    assert value(found, "sync_failures_total", **of_others) > EXPORTED_TABLES
    assert value(found, "table_refusals_total", **of_others) > EXPORTED_TABLES
    further = {"client": "other", **of_others}
    assert value(found, "client_refusals_total", **further) == EXPORTED_TABLES + 1 - CLIENTS


def test_a_corrupt_instant_is_counted_for_its_table(tmp_path: Path) -> None:
    table = SmallTable(LocalStorage(f"{tmp_path}/t"))
    table.write(("p=1", "a-0"))
    asked = {"basepath": f"{tmp_path}/t", "partition": "p=1"}
    with serving(str(tmp_path)) as server, HttpClient(server.port) as client:
        assert client.request("GET", LATEST, asked).status == 200
        commits = set((tmp_path / "t" / ".hoodie").rglob("*.commit"))
        table.write(("p=1", "a-0"))
        (newest,) = set((tmp_path / "t" / ".hoodie").rglob("*.commit")) - commits
        newest.write_bytes(b"{")
        assert client.request("GET", LATEST, asked).status == 500
        found = scrape(client)
    of_table = {"table": f"file://{tmp_path}/t", "code": "corrupt_metadata"}
    assert value(found, "sync_failures_total", **of_table) >= 1
    assert value(found, "table_refusals_total", **of_table) == 1


def test_it_counts_markers_and_the_fallbacks_that_clients_report(tmp_path: Path) -> None:
    table = SmallTable(LocalStorage(f"{tmp_path}/t"))
    table.write(("p=1", "a-0"))
    marker = {
        "markerdirpath": f"{tmp_path}/t/.hoodie/.temp/20260101000000000",
        "markername": "p=1/f1_0-1-0_20260101000000000.parquet.marker.CREATE",
    }
    with serving(str(tmp_path)) as server, HttpClient(server.port) as client:
        for _ in range(2):
            assert client.request("POST", "/v1/hoodie/marker/create", marker).status == 200
        for reported in ("late=2,behind=1", "late=1", "wrong=1", "late=x,behind=9999999", ",=,"):
            client.request("GET", "/", headers={"Strandline-Fallbacks": reported})
        with HttpClient(server.port, None) as stranger:
            headers = {"Strandline-Fallbacks": "late=7"}
            assert stranger.request("GET", METRICS_PATH, headers=headers).status == 401
        with HttpClient(server.port, None) as stranger:
            # Whoever may ask for a path may not report for that alone.
            assert stranger.request("GET", "/", headers=headers).status == 200
        found = scrape(client)
    assert value(found, "markers_total", outcome="created") == 1
    assert value(found, "markers_total", outcome="refused") == 1
    assert value(found, "fallbacks_total", cause="late") == 3
    assert value(found, "fallbacks_total", cause="behind") == 1
    assert value(found, "fallbacks_total", cause="unreachable") == 0


def test_clients_that_may_read_report_fallbacks_and_no_others() -> None:
    reported = {"Strandline-Fallbacks": "late=1"}
    for networks, counted in (("127.0.0.0/8=reads", 1), ("127.0.0.0/8=metrics", 0)):
        with admitting(networks) as server, HttpClient(server.port, None) as client:
            assert client.request("GET", METRICS_PATH, headers=reported).status == 200
            assert server.parts.refusals.fallbacks()["late"] == counted


def test_readiness_needs_no_probes_and_ends_when_the_service_stops(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    parts = Parts(PartsOptions((str(lake),), None))
    client = AppClient(parts)
    lake.rmdir()
    ready = "strandline_ready", frozenset[tuple[str, str]]()
    # Each scrape begins a look that shows in a later one.
    scrape(client)
    wait_until(lambda: bool(parts.readiness.status()["looked"]))
    assert scrape(client)[ready] == 0
    lake.mkdir()
    parts.readiness.stopping = True
    assert parts.status()["ready"]["reasons"] == [STOPPING]
    assert scrape(client)[ready] == 0
    parts.close()


def test_names_and_help_follow_the_conventions(server: ServiceServer) -> None:
    with HttpClient(server.port) as client:
        client.request("GET", LATEST, ASKED)
        families, _ = scraped(client.request("GET", METRICS_PATH).body)
    ours = {name: each for name, each in families.items() if not name.startswith("process_")}
    assert len(ours) > 40
    for name, family in ours.items():
        assert re.fullmatch(r"strandline_[a-z_]+", name), name
        assert family.documentation.endswith("."), name
        assert not re.search(r"_(us|ms|mb|total)$", name), f"{name} has no base unit"
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter"), sample.name


def test_a_scraper_that_asks_for_openmetrics_gets_it(server: ServiceServer) -> None:
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    with HttpClient(server.port) as client:
        answer = client.request("GET", METRICS_PATH, headers=accept)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert {each.name for each in open_metrics(answer.body.decode())} >= {"strandline_syncs"}


def test_a_scraper_that_asks_for_what_nobody_knows_gets_text(
    server: ServiceServer, subtests: pytest.Subtests
) -> None:
    with HttpClient(server.port) as client:
        for accept in (
            "application/openmetrics-text; version=x; escaping=foo",
            'text/plain; version="1.0.0',
            "text/plain; version=",
            "application/openmetrics-text; version=9999999999",
            "application/openmetrics-text; version=2.\xe9",
            ";;=;,,",
            "a" * 5000,
        ):
            with subtests.test(accept=accept[:60]):
                answer = client.request("GET", METRICS_PATH, headers={"Accept": accept})
                assert answer.status == 200
                assert b"strandline_open_tables 0.0" in answer.body


def test_labels_of_strange_paths_are_read_as_they_are(tmp_path: Path) -> None:
    """By readers of both formats; ``promtool`` reads them, too."""
    names = ['quo"te', "back\\slash", "new\nline", "{a=b}", "other", "ünï☃", "cr\r", "\x1b[31m"]
    names.append("x" * 250)
    for name in names:
        SmallTable(LocalStorage(f"{tmp_path}/{name}")).write(("p=1", "a-0"))
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    with serving(str(tmp_path)) as server, HttpClient(server.port) as client:
        for name in names:
            asked = {"basepath": f"{tmp_path}/{name}", "partition": "p=1"}
            assert client.request("GET", LATEST, asked).status == 200
        text = client.request("GET", METRICS_PATH).body.decode()
        of_open_metrics = client.request("GET", METRICS_PATH, headers=accept).body.decode()
    for families in (text_string_to_metric_families(text), open_metrics(of_open_metrics)):
        (snapshots,) = [each for each in families if each.name == "strandline_snapshots"]
        found = {sample.labels["table"] for sample in snapshots.samples}
        assert found == {f"file://{tmp_path}/{name}" for name in names}


def test_it_needs_the_token_or_a_network_with_that_right(subtests: pytest.Subtests) -> None:
    for networks, metrics, status in [
        ("", 401, 401),
        ("127.0.0.0/8=metrics", 200, 401),
        ("127.0.0.0/8=reads", 200, 200),
        ("127.0.0.0/8=markers", 401, 401),
        ("127.0.0.0/8", 200, 200),
    ]:
        with subtests.test(networks=networks), admitting(networks) as server:
            for path, expected in ((METRICS_PATH, metrics), ("/v1/strandline/status", status)):
                with HttpClient(server.port, None) as client:
                    assert client.request("GET", path).status == expected, path


def admitting(networks: str) -> AbstractContextManager[ServiceServer]:
    options = PartsOptions((TABLES.root,), "token", admit_networks=networks)
    return running(ServiceServer(Parts(options, opener=TABLES), ServerOptions()))


def test_a_port_of_its_own_has_metrics_and_probes_alone(tmp_path: Path) -> None:
    table = SmallTable(LocalStorage(f"{tmp_path}/t"))
    table.write(("p=1", "a-0"))
    asked = known(table.storage, partition="p=1")
    options = ServerOptions(metrics_port=0)
    server = ServiceServer(Parts(PartsOptions((str(tmp_path),), TOKEN)), options)
    with running(server):
        assert server.metrics_port is not None
        with HttpClient(server.metrics_port) as client, HttpClient(server.port) as main:
            assert main.request("GET", LATEST, asked).status == 200
            found = scrape(client)
            assert value(found, "open_tables") == 1
            assert client.request("GET", "/healthz").status == 200
            for path in (LATEST, "/v1/strandline/status"):
                assert client.request("GET", path, asked).status == 404
            assert scrape(main)["strandline_open_tables", frozenset()] == 1
        with HttpClient(server.metrics_port, None) as stranger:
            assert stranger.request("GET", METRICS_PATH).status == 401
            assert stranger.request("GET", "/healthz").status == 200


def test_a_port_for_metrics_that_is_taken_is_named_and_the_other_one_is_free_again() -> None:
    with closing(bind("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        port = free_port()
        with pytest.raises(ConfigError, match=f"can't listen on 127.0.0.1 port {number}"):
            ServiceServer(
                Parts(PartsOptions((), None)), ServerOptions(port=port, metrics_port=number)
            )
        bind("127.0.0.1", port).close()


def opened(base_path: str, _: Mapping[str, Any] | None) -> Storage:
    return golden.GoldenStorage("cow_basic_v9", 7, base_path)


def test_no_counter_gets_smaller_when_a_table_is_closed() -> None:
    parts = parts_of("/lake", opener=opened)
    client = AppClient(parts)
    asked = {"basepath": "/lake/t", "partition": "2024-01-01"}
    before: Samples = {}
    for _ in range(3):
        assert client.ask("GET", LATEST, asked)[0] == 200
        assert client.ask("GET", LATEST, {**asked, "basepath": "/lake/u"})[0] == 200
        found = scrape(client)
        counters = {key: n for key, n in found.items() if key[0].endswith("_total")}
        assert all(counters[key] >= n for key, n in before.items())
        before = counters
        parts.views.close_table(next(iter(parts.views.open_tables())), "excess")
    parts.remove_root("/lake")
    after = scrape(client)
    assert all(after[key] >= n for key, n in before.items())
    calls = {"table": "file:///lake/t", "kind": "list", "cause": "lookup"}
    assert value(after, "storage_calls_total", **calls) == 3
    assert value(after, "closed_tables_total", table="", cause="excess") == 3
    parts.close()


def test_many_tables_have_a_bounded_number_of_series() -> None:
    parts = parts_of("/lake", opener=opened)
    client = AppClient(parts)
    for number in range(EXPORTED_TABLES):
        labels = {"table": f"file:///lake/before{number}", "route": "r", "way": "computed"}
        parts.metrics.add("requests", **labels)
    for number in range(3):
        asked = {"basepath": f"/lake/t{number}", "partition": "2024-01-01"}
        assert client.ask("GET", LATEST, asked)[0] == 200
    found = scrape(client)
    tables = {dict(labels).get("table", "") for _, labels in found} - {""}
    assert len(tables) == EXPORTED_TABLES + 1
    assert value(found, "partitions_loaded", table="other") == 3
    assert value(found, "requests_total", table="other", way="computed") == 3
    assert value(found, "open_tables") == 3
    parts.close()


def test_a_fleet_s_figures_are_there() -> None:
    fleet = {
        "members": [
            {"url": "a", "router": False, "seat": 0, "ready": True},
            {"url": "b", "router": False, "seat": 1, "ready": False},
            {"url": "c", "router": False, "seat": None, "ready": True},
            {"url": "d", "router": False, "seat": None, "ready": True},
            {"url": "r", "router": True, "seat": None, "ready": False},
        ],
        "drained": ["d"],
        "groups": {
            "default": {"seats": 2, "vacant": 1, "mounts": 0},
            "hot": {"seats": 1, "vacant": 0, "mounts": 4},
        },
        "epoch": 7,
        "vacant": [2],
        "renewed": False,
        "trouble": "the state store is away",
        "outages": 2,
        "records": {"taken": 3},
        "moves": [{"state": "FLIPPED"}, {"state": "FLIPPED"}, {"state": "WARMING"}],
        "moved": {"reached": {"WARMING": 3, "FLIPPED": 2}, "seconds": {"PLANNED": 0.5}},
        "creations": {"held": 4, "refused": 1},
    }
    parts = Parts(PartsOptions((), None), fleet=lambda: fleet)
    found = scrape(AppClient(parts))
    assert value(found, "fleet_members", state="ready") == 1
    assert value(found, "fleet_members", state="warming") == 1
    for state in ("standby", "drained", "router"):
        assert value(found, "fleet_members", state=state) == 1
    assert value(found, "fleet_group_seats", group="default") == 2
    assert value(found, "fleet_group_vacant", group="default") == 1
    assert value(found, "fleet_group_mounts", group="hot") == 4
    assert value(found, "fleet_epoch") == 7
    assert value(found, "fleet_vacant_seats") == 1
    assert value(found, "fleet_renewed") == 0
    assert value(found, "fleet_state_up") == 0
    assert value(found, "fleet_state_outages_total") == 2
    assert value(found, "fleet_records_total", outcome="taken") == 3
    states = ("PLANNED", "WARMING", "FLIPPED", "DROPPING")
    assert [value(found, "fleet_moves_under_way", state=s) for s in states] == [0, 1, 2, 0]
    assert value(found, "fleet_moves_total", state="FLIPPED") == 2
    assert value(found, "fleet_move_seconds_total", state="PLANNED") == 0.5
    assert value(found, "fleet_creations_total", outcome="held") == 4
    parts.close()
