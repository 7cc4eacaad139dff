"""A root that is removed while requests run: they are refused or answered, and nothing is left."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from fsview.wire.routes import BY_NAME
from strandline.server.http.reply import Accepted
from strandline.server.http.server import ServiceServer
from strandline.server.lookup.answer import Answers, Question
from strandline.server.lookup.ready_answer import HotPath
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.formats.marker_name import marker_name
from tests.kit.servers.live_service import HttpClient, known, parts_of, serving
from tests.kit.tables import golden
from timeline.storage.base import Storage
from timeline.storage.local import LocalStorage

LATEST = "/v1/hoodie/view/datafiles/latest/partition/"
LOOKUP = "/v1/strandline/lookup"
CREATE = "/v1/hoodie/marker/create"
PARTITION = "2024-01-01"
INSTANT = "20261121090000000"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    for name in ("gone", "kept"):
        golden.build("cow_basic_v9", 7, tmp_path / name)
    return tmp_path


def gated() -> type:
    """Return a class of local tables whose listings of the partition wait until they may go on."""

    class Gated(LocalStorage):
        began, go_on = threading.Event(), threading.Event()

        def list(self, path):
            if path == PARTITION:
                self.began.set()
                assert self.go_on.wait(PATIENCE_S)
            return super().list(path)

    return Gated


@pytest.fixture
def server(lake: Path) -> Iterator[ServiceServer]:
    with serving(f"{lake}/gone", f"{lake}/kept") as server:
        yield server


def params(base: Path) -> dict[str, str]:
    return known(LocalStorage(str(base)), partition=PARTITION)


def test_ready_answers_of_a_removed_root_are_not_sent_any_more(
    server: ServiceServer, lake: Path
) -> None:
    parts = server.parts
    with HttpClient(server.port) as http:
        for _ in range(3):
            for table in ("gone", "kept"):
                assert http.ask("GET", LATEST, params(lake / table))[0] == 200
        before = parts.status()
        assert {table for table, _ in parts.hot.counts} == set(parts.views.open_tables())
        parts.remove_root(f"{lake}/gone")
        assert http.ask("GET", LATEST, params(lake / "gone"))[0] == 403
        assert http.ask("GET", LATEST, params(lake / "kept"))[0] == 200
        after = parts.status()
    assert (before["roots"], after["roots"]) == ([f"{lake}/gone", f"{lake}/kept"], [f"{lake}/kept"])
    assert list(after["tables"]) == [f"file://{lake}/kept"]
    assert {table for table, _ in parts.hot.counts} == set(parts.views.open_tables())
    assert before["ready_answers"]["answers"] == 2 * after["ready_answers"]["answers"] == 2
    assert before["ready_answers"]["bytes"] > after["ready_answers"]["bytes"]
    # The service's totals stay true; no counter of the table is left.
    assert after["requests"]["latest_base_files"] == before["requests"]["latest_base_files"] + 1
    labels = {dict(labels).get("table") for _, labels in parts.metrics.counts()}
    assert labels == {None, f"file://{lake}/kept"}


@pytest.mark.parametrize("path", [LATEST, LOOKUP])
def test_a_request_under_way_is_refused_like_one_of_a_foreign_root(lake: Path, path: str) -> None:
    gate = gated()

    def opener(base_path: str, _: object) -> Storage:
        storage: Storage = gate(base_path)
        return storage

    with serving(f"{lake}/gone", opener=opener) as server, ThreadPoolExecutor(1) as pool:

        def ask() -> tuple[int, bytes]:
            with HttpClient(server.port) as http:
                if path == LATEST:
                    return http.ask("GET", LATEST, params(lake / "gone"))
                return batch(http, lake / "gone")

        asked = pool.submit(ask)
        assert gate.began.wait(PATIENCE_S)
        server.parts.remove_root(f"{lake}/gone")
        gate.go_on.set()
        status, body = asked.result(PATIENCE_S)
        assert status == 403, body
        assert b"root" in body
        assert server.parts.views.stores.budget.used == 0


def batch(http: HttpClient, base: Path) -> tuple[int, bytes]:
    """Ask for a partition's files in a batched look-up."""
    body = b'{"queries": [{"query": "latest_base_files", "partitions": ["2024-01-01"]}]}'
    headers = {"Authorization": f"Bearer {http.token}", "Content-Type": "application/json"}
    query = "&".join(f"{k}={v}" for k, v in params(base).items() if k != "partition")
    http.connection.request("POST", f"{LOOKUP}?{query}", body, headers)
    response = http.connection.getresponse()
    return response.status, response.read()


def marker_folder(base: Path) -> Path:
    return base / ".hoodie" / ".temp" / INSTANT


def create(http: HttpClient, base: Path, file_id: str) -> tuple[int, bytes]:
    name = marker_name(INSTANT, file_id, PARTITION)
    params = {"markerdirpath": str(marker_folder(base)), "markername": name}
    return http.ask("POST", CREATE, params)


def test_markers_of_a_removed_root_are_refused(server: ServiceServer, lake: Path) -> None:
    markers = server.parts.markers
    with HttpClient(server.port) as http:
        for table in ("gone", "kept"):
            assert create(http, lake / table, "a") == (200, b"true")
        assert markers.status()["directories"] == 2
        server.parts.remove_root(f"{lake}/gone")
        assert markers.status()["directories"] == 1
        assert create(http, lake / "kept", "b") == (200, b"true")
        assert create(http, lake / "gone", "b")[0] == 403


def test_a_search_for_markers_under_way_ends_with_the_root(lake: Path) -> None:
    began, go_on = threading.Event(), threading.Event()

    def opener(base_path: str, _: object) -> Storage:
        if base_path.endswith("gone"):
            began.set()
            assert go_on.wait(PATIENCE_S)
        return LocalStorage(base_path)

    roots = (f"{lake}/gone", f"{lake}/kept")
    with serving(*roots, opener=opener) as server, ThreadPoolExecutor(1) as pool:

        def ask(file_id: str) -> tuple[int, bytes]:
            with HttpClient(server.port) as http:
                return create(http, lake / "gone", file_id)

        asked = pool.submit(ask, "a")
        assert began.wait(PATIENCE_S)
        server.parts.remove_root(f"{lake}/gone")
        go_on.set()
        assert [asked.result(PATIENCE_S)[0], ask("b")[0]] == [403, 403]
        assert server.parts.markers.status()["directories"] == 0
    assert not marker_folder(lake / "gone").exists()


def test_markers_are_refused_under_a_link_whose_root_was_removed(lake: Path) -> None:
    """Its table is still served under another root."""
    link, one, two = (lake / name for name in ("link", "gone", "kept"))
    link.symlink_to(one)
    with serving(*map(str, (link, one, two))) as server, HttpClient(server.port) as http:
        assert create(http, link, "a") == (200, b"true")
        server.parts.remove_root(str(link))
        assert create(http, link, "b")[0] == 403
        assert create(http, one, "c") == (200, b"true")
        link.unlink()
        link.symlink_to(two)
        server.parts.views.add_root(str(link))
        assert create(http, link, "d") == (200, b"true")
    markers = [(marker_folder(base) / "MARKERS0").read_text().split() for base in (one, two)]
    assert markers == [
        [marker_name(INSTANT, file_id, PARTITION) for file_id in file_ids]
        for file_ids in ("ac", "d")
    ]


def test_a_deleted_table_is_no_reason_any_more_once_its_root_is_removed(
    server: ServiceServer, lake: Path
) -> None:
    (lake / "gone").rename(lake / "elsewhere")
    server.parts.readiness._kept_s = 0
    with HttpClient(server.port) as http:
        status, body = http.ask("GET", "/readyz", {})
        assert (status, f"root {lake}/gone".encode() in body) == (503, True)
        server.parts.remove_root(f"{lake}/gone")
        assert http.ask("GET", "/readyz", {})[0] == 200
    assert not any("gone" in name for name in server.parts.readiness._states)


def test_flink_messages_of_a_table_are_listed_anew_when_its_root_is_added_again(
    server: ServiceServer, lake: Path
) -> None:
    folder = lake / "gone" / ".hoodie" / ".aux" / "ckp_meta"
    folder.mkdir(parents=True)
    (folder / "1.INFLIGHT").touch()
    states = server.parts.instant_states
    assert [state.instant for state in states.all(str(folder))] == ["1"]
    (folder / "1.INFLIGHT").rename(folder / "2.INFLIGHT")
    server.parts.remove_root(f"{lake}/gone")
    server.parts.add_root(f"{lake}/gone")
    assert [state.instant for state in states.all(str(folder))] == ["2"]


def test_a_spelling_of_a_removed_root_is_refused_while_another_root_has_its_table(
    lake: Path,
) -> None:
    """Also when the link leads to another table once its root is added again."""
    link = lake / "link"
    link.symlink_to(lake / "kept")
    with serving(str(link), f"{lake}/kept", f"{lake}/gone") as server:
        answers, query = server.parts.answers, params(link)
        with HttpClient(server.port) as http:
            for _ in range(2):
                assert http.ask("GET", LATEST, query)[0] == 200
            server.parts.remove_root(str(link))
            assert http.ask("GET", LATEST, query)[0] == 403
            assert http.ask("GET", LATEST, params(lake / "kept"))[0] == 200
            server.parts.add_root(str(link))
            assert http.ask("GET", LATEST, query)[0] == 200
            link.unlink()
            link.symlink_to(lake / "gone")
            server.parts.add_root(str(link))
            assert answers.known_table(str(link)) is None
            assert http.ask("GET", LATEST, query)[0] == 200
            gone = server.parts.views.view(f"{lake}/gone")
            assert answers.known_table(str(link)) is gone


def test_a_request_that_is_resolved_while_its_root_is_removed_leaves_no_spelling(
    lake: Path,
) -> None:
    """The table stays open under another root."""
    link = lake / "link"
    link.symlink_to(lake / "kept")

    def opener(base_path: str, _: object) -> Storage:
        # Admitted, and not resolved yet.
        parts.remove_root(str(link))
        return LocalStorage(base_path)

    parts = parts_of(str(link), f"{lake}/kept", opener=opener)
    parts.answers.reply(Question.of(BY_NAME["latest_base_files"], params(link), Accepted()))
    assert len(parts.views.open_tables()) == 1
    assert parts.answers.known_table(str(link)) is None
    parts.close()


def test_a_ready_answer_that_is_made_while_its_root_is_removed_leaves_no_count(lake: Path) -> None:
    class Removed(Answers):
        def ready(self, *args: Any) -> bytes | None:
            response = super().ready(*args)
            parts.remove_root(f"{lake}/gone")
            return response

    parts = parts_of(f"{lake}/gone")
    query = params(lake / "gone")
    answers = Removed(parts.views, parts.metrics)
    answers.reply(Question.of(BY_NAME["latest_base_files"], query, Accepted()))
    parts.hot = HotPath(answers)
    assert parts.hot.respond(f"{LATEST}?{urlencode(query)}".encode(), {}) is not None
    assert not parts.hot.counts
    parts.close()
