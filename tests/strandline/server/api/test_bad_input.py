"""Wrong requests get an error that names the mistake, or an empty answer: never 5xx, never kept."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from fsview.wire.routes import BY_NAME
from strandline.server.http.limits import PARAMETERS
from strandline.server.http.reply import Accepted
from strandline.server.lookup.answer import Question
from strandline.server.process.composition_root import Parts
from tests.kit.servers.live_service import AppClient, HttpClient, parts_of, serving
from tests.kit.tables import golden

VIEW = "/v1/hoodie/view"
LATEST = f"{VIEW}/slices/partition/latest/"
LOAD = f"{VIEW}/loadpartitions/"
CREATE = "/v1/hoodie/marker/create"
RANGE = f"{VIEW}/datafiles/range/latest/"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden.build("cow_basic_v9", 7, tmp_path_factory.mktemp("lake") / "t")


@pytest.fixture(scope="module")
def parts(base: Path) -> Iterator[Parts]:
    parts = parts_of(str(base.parent))
    yield parts
    parts.close()


@pytest.fixture
def client(parts: Parts) -> AppClient:
    return AppClient(parts)


def params(base: Path, **more: str) -> dict[str, str]:
    return {"basepath": str(base), "refreshoff": "true", **more}


def test_partitions_that_are_no_list_of_names(
    subtests: pytest.Subtests, client: AppClient, base: Path
) -> None:
    for partitions in [
        "[" * 100_000,
        '{"a":' * 50_000,
        '["\\ud800"]',
        "[" + "1" * 100_000 + "]",
        "[NaN]",
        "",
        '"a"',
    ]:
        with subtests.test(partitions=partitions):
            status, body = client.ask("POST", LOAD, params(base, partitions=partitions))
            assert status == 400
            assert b"is not a JSON list of strings" in body


@pytest.mark.parametrize("partition", ["n" * 300, "/".join("n" * 3000), "n" * 100_000, "..", "a\0"])
def test_what_can_be_no_partition_has_no_files(
    client: AppClient, base: Path, partition: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert client.ask("GET", LATEST, params(base, partition=partition)) == (200, b"[]")
    assert not caplog.records


@pytest.mark.parametrize("end", ["n" * 300, "/".join("n" * 1800), ".hoodie/hoodie.properties/x"])
def test_where_no_table_can_be_there_is_none(
    client: AppClient, base: Path, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    asked = {"basepath": f"{base}/{end}", "partition": "p"}
    with caplog.at_level(logging.INFO):
        assert client.ask("GET", LATEST, asked)[0] == 404
    assert not caplog.records


def test_a_base_path_longer_than_any_is_refused(client: AppClient, base: Path) -> None:
    spelled = f"{base}{'/.' * 2048}"
    status, body = client.ask("GET", LATEST, {"basepath": spelled, "refreshoff": "true"})
    assert status == 400
    assert b"allowed: at most 4096" in body


def test_answers_to_very_long_questions_are_not_kept(
    parts: Parts, client: AppClient, base: Path
) -> None:
    groups = f"{VIEW}/slices/file/latest/"
    for length in (100, 100_000):
        before = parts.answers.cache.status()["answers"]
        asked = params(base, partition="2024-01-01", fileid="f" * length)
        assert client.ask("GET", groups, asked) == (200, b"[]")
        kept = parts.answers.cache.status()["answers"] - before
        assert kept == (1 if length == 100 else 0)


def test_a_hash_that_is_none_is_not_remembered(client: AppClient, base: Path) -> None:
    asked = {"basepath": str(base), "lastinstantts": "1", "timelinehash": "x" * 100_000}
    status, body = client.ask("GET", LATEST, asked)
    assert status == 400
    assert body.startswith(b"Last known instant from client was 1 but server has")


def test_a_long_last_instant_is_cut_in_the_refusal(client: AppClient, base: Path) -> None:
    known = {"lastinstantts": "1" * 9_000, "timelinehash": "of nothing known"}
    status, body = client.ask("GET", LATEST, {"basepath": str(base), **known})
    assert status == 400
    assert body.startswith(b"Last known instant from client was " + b"1" * 64 + b"... but server")


@pytest.mark.parametrize("accept", ["", "application/json"])
def test_a_refusal_names_neither_roots_nor_where_links_lead(tmp_path: Path, accept: str) -> None:
    """A client may not be meant to know them; the error's text, for the log, has them."""
    lake, hidden = tmp_path / "lake", tmp_path / "hidden"
    base = golden.build("cow_basic_v9", 0, lake / "t")
    golden.build("cow_basic_v9", 0, hidden / "t")
    instant = base / ".hoodie" / ".temp" / "20260101000000000"
    instant.parent.mkdir(exist_ok=True)
    for link in (lake / "link", base / "link", instant):
        link.symlink_to(hidden / "t")
    markers = "/v1/hoodie/marker/all"
    parts = parts_of(str(lake))
    for path, asked, named in (
        (LATEST, {"basepath": f"{lake}/link"}, f"{lake}/link"),
        (LATEST, {"basepath": "/etc"}, "/etc"),
        (LATEST, params(base, partition="link"), "link"),
        (markers, {"markerdirpath": f"{lake}/link/.hoodie/.temp/{instant.name}"}, f"{lake}/link"),
        (markers, {"markerdirpath": str(instant)}, instant.name),
    ):
        response = AppClient(parts).request("GET", path, asked, {"Accept": accept})
        assert response.status == 403, asked
        said = response.body.decode()
        assert named in said
        assert str(tmp_path) not in said.replace(named, ""), asked
    parts.close()


@pytest.mark.property
def test_many_invented_partitions_and_instants_cost_what_they_are_long(
    parts: Parts, client: AppClient, base: Path
) -> None:
    """Once each instant was looked at for each partition: minutes, for a query of a mebibyte."""
    names = ",".join(f'"{number}"' for number in range(9_000))
    assert client.ask("POST", LOAD, params(base, partitions=f"[{names}]")) == (200, b"true")
    assert client.ask("POST", f"{VIEW}/loadallpartitions/", params(base))[0] == 200
    latest = orjson.loads(client.ask("GET", f"{VIEW}/datafiles/all/latest/", params(base))[1])
    newest = max(file["commitTime"] for file in latest)
    instants = [str(10**16 + number) for number in range(5_000)]
    for wanted in ([], [newest]):
        asked = params(base, instants=",".join([*instants, *wanted]))
        status, body = client.ask("GET", RANGE, asked)
        assert status == 200
        assert {file["commitTime"] for file in orjson.loads(body)} == set(wanted)
    assert len(parts.views.view(str(base)).held_partitions()) < 10_000


LONG = "/t" + "/a" * 50_000


@pytest.mark.parametrize("ending", ["/.hoodie/.temp/20260101000000000", ""])
def test_a_marker_directory_longer_than_any_is_refused(client: AppClient, ending: str) -> None:
    for method, route in (("GET", "all"), ("GET", "dir/exists"), ("POST", "dir/delete")):
        where = {"markerdirpath": LONG + ending}
        assert client.ask(method, f"/v1/hoodie/marker/{route}", where)[0] == 400


def test_a_directory_of_instant_states_longer_than_any_is_refused(client: AppClient) -> None:
    where = {"instantstatedirpath": f"/t/.hoodie{LONG}"}
    assert client.ask("GET", "/v1/hoodie/instantstate/all", where)[0] == 400


@pytest.mark.property
def test_new_spellings_of_a_base_path_take_the_place_of_old_ones(parts: Parts, base: Path) -> None:
    spellings = [f"{base}{'/.' * (n // 40)}{'/' * (n % 40)}" for n in range(1, 1100)]
    for spelling in spellings:
        asked = {"basepath": spelling, "refreshoff": "true"}
        parts.answers.reply(Question.of(BY_NAME["last_instant"], asked, Accepted()))
    assert parts.answers.known_table(spellings[-1]) is not None
    assert parts.answers.known_table(spellings[0]) is None


def test_a_query_has_as_many_parameters_as_any_route_could_want(base: Path) -> None:
    many = {f"p{n}": "" for n in range(PARAMETERS + 1)}
    with serving(str(base.parent)) as server, HttpClient(server.port) as client:
        for method, path in (("GET", LATEST), ("GET", "/no/route"), ("POST", CREATE)):
            status, body = client.ask(method, path, many)
            assert (status, body) == (400, f"more than {PARAMETERS} parameters".encode())
            assert client.ask("GET", LATEST, params(base, partition="no")) == (200, b"[]")


def test_a_path_with_more_slashes_is_another_one(base: Path) -> None:
    asked = params(base, partition="")
    with serving(str(base.parent)) as server, HttpClient(server.port) as client:
        assert client.ask("GET", LATEST, asked)[0] == 200
        for path in (f"/{LATEST}", f"//{LATEST}", f"/%2F{LATEST}", f"{LATEST}/"):
            assert client.ask("GET", path, asked)[0] == 404, path
        assert client.ask("POST", f"/{CREATE}", asked)[0] == 404
