"""Look-ups by hand without a timeline's hash: they mean the newest snapshot, which headers name.

Hudi's clients always send a hash. The headers of an answer let any client send one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from fsview.wire.routes import ROUTES
from strandline.server.http.server import ServiceServer
from tests.kit.servers.live_service import Answered, HttpClient, serving
from tests.kit.tables.small_table import SmallTable
from timeline.storage.local import LocalStorage

FILES = "/v1/hoodie/view/datafiles/latest/partition"


@pytest.fixture
def table(tmp_path: Path) -> SmallTable:
    table = SmallTable(LocalStorage(str(tmp_path / "lake" / "t")))
    table.write(("p", "a"))
    return table


@pytest.fixture
def server(table: SmallTable) -> Iterator[ServiceServer]:
    with serving(str(Path(table.storage.base_path).parent)) as server:
        yield server


@pytest.fixture
def client(server: ServiceServer) -> Iterator[HttpClient]:
    with HttpClient(server.port) as client:
        yield client


def instants(answered: Answered) -> set[str]:
    assert answered.status == 200, answered.body
    return {file["commitTime"] for file in orjson.loads(answered.body)}


def as_of(answered: Answered) -> dict[str, str]:
    """Return the parameters for the timeline in an answer's headers."""
    return {
        "lastinstantts": answered.headers["strandline-last-instant"],
        "timelinehash": answered.headers["strandline-timeline-hash"],
    }


@pytest.mark.parametrize("more", [{}, {"lastinstantts": "1"}])
def test_without_a_hash_the_newest_state_is_answered(
    table: SmallTable, client: HttpClient, more: dict[str, str]
) -> None:
    """Also once the answer of the state before is ready, and another client has moved on."""
    asked = {"basepath": table.storage.base_path, "partition": "p"}
    for _ in range(3):
        newest = table.write(("p", "a"))
        answered = client.request("GET", FILES, {**asked, **more})
        timeline = table.meta.active_timeline().client_timeline()
        assert instants(answered) == {newest}
        assert as_of(answered) == {"lastinstantts": newest, "timelinehash": timeline.hash}


def test_what_the_headers_say_can_be_asked_for_later(table: SmallTable, client: HttpClient) -> None:
    asked = {"basepath": table.storage.base_path, "partition": "p"}
    then = client.request("GET", FILES, asked)
    table.write(("p", "a"))
    now = client.request("GET", FILES, asked)
    again = client.request("GET", FILES, {**asked, **as_of(then)})
    assert again.body == then.body != now.body
    assert "strandline-last-instant" not in again.headers


def test_every_question_can_be_asked_by_hand(table: SmallTable, client: HttpClient) -> None:
    values = {"maxinstant": "9", "instants": "1", "fileid": "a", "instant": "1", "partition": "p"}
    more = {"includependingcompaction": "true", "currentinstant": "9"}
    asked = {"basepath": table.storage.base_path, **values, **more}
    for path in (route.path for route in ROUTES if route.synced):
        answered = client.request("GET", path, asked)
        again = client.request("GET", path, {**asked, **as_of(answered)})
        assert again.body == answered.body, path
        pretty = client.request("GET", path, {**asked, "pretty": ""})
        assert as_of(pretty) == as_of(answered), path


def test_an_empty_hash_is_one(table: SmallTable, client: HttpClient) -> None:
    asked = {"basepath": table.storage.base_path, "partition": "p", "timelinehash": ""}
    assert client.request("GET", FILES, asked).status == 400


def test_of_a_table_without_instants_it_is_the_empty_timeline(
    tmp_path: Path, server: ServiceServer, client: HttpClient
) -> None:
    empty = SmallTable(LocalStorage(str(tmp_path / "lake" / "empty")))
    asked = {"basepath": empty.storage.base_path, "partition": "p"}
    for _ in range(2):
        answered = client.request("GET", FILES, asked)
        assert instants(answered) == set()
        assert as_of(answered)["lastinstantts"] == "0"
    assert instants(client.request("GET", FILES, {**asked, **as_of(answered)})) == set()
    first = empty.write(("p", "a"))
    assert instants(client.request("GET", FILES, asked)) == {first}


def test_with_refreshoff_it_is_the_newest_state_held(table: SmallTable, client: HttpClient) -> None:
    asked = {"basepath": table.storage.base_path, "partition": "p", "refreshoff": "true"}
    held = client.request("GET", FILES, asked)
    table.write(("p", "a"))
    again = client.request("GET", FILES, asked)
    assert (again.body, as_of(again)) == (held.body, as_of(held))
