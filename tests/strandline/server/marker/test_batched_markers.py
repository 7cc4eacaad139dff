"""Batches of markers: one flush for all of them, an outcome for each, none after a refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fsview.wire.marker_form import (
    CREATE_MARKER,
    CREATE_MARKERS,
    QUERY_BYTES,
    batches,
    join_names,
    read_flag,
    read_outcomes,
)
from tests.kit.formats.marker_name import marker_name
from tests.kit.servers.live_service import HttpClient, serving
from timeline.errors import BadAnswerError
from timeline.storage.local import LocalStorage
from timeline.table.config import TableConfig
from timeline.table.config_file import write_table_config

INSTANT = "20261121090000000"
NAMES = [marker_name(INSTANT, f"f{number:03}", partition="são/ p,1") for number in range(100)]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    config = TableConfig.create(name="t", record_key_fields=("id",))
    write_table_config(LocalStorage(str(tmp_path / "t")), config, create=True)
    return tmp_path / "t"


@pytest.fixture
def http(base: Path) -> Iterator[HttpClient]:
    with serving(str(base), token=None) as server, HttpClient(server.port, None) as client:
        yield client


def folder(base: Path) -> Path:
    return base / ".hoodie" / ".temp" / INSTANT


def create(http: HttpClient, base: Path, names: list[str]) -> tuple[int, bytes]:
    params = {"markerdirpath": str(folder(base)), "markernames": join_names(names)}
    return http.ask("POST", CREATE_MARKERS, params)


def test_a_batch_is_written_by_one_flush(http: HttpClient, base: Path) -> None:
    status, body = create(http, base, NAMES)
    assert (status, read_outcomes(body, 100)) == (200, (True,) * 100)
    assert sorted(path.name for path in folder(base).iterdir()) == ["MARKERS.type", "MARKERS0"]
    assert (folder(base) / "MARKERS0").read_text().splitlines() == NAMES


def test_outcomes_are_in_the_order_of_the_names(http: HttpClient, base: Path) -> None:
    assert create(http, base, NAMES[3:5])[1] == b"[true,true]"
    assert create(http, base, NAMES[2:6])[1] == b"[true,false,false,true]"
    # A name that comes twice is one marker.
    assert create(http, base, [NAMES[9], NAMES[9]])[1] == b"[true]"


@pytest.mark.parametrize("wrong", ["", "p/f_0-1-2_1.parquet.marker.CREATE", "no marker"])
@pytest.mark.parametrize("known", [True, False])
def test_one_refused_name_refuses_the_batch(
    http: HttpClient, base: Path, wrong: str, known: bool
) -> None:
    if known:
        create(http, base, NAMES[:1])
    status, body = create(http, base, [NAMES[1], wrong, NAMES[2]])
    assert status == 400
    assert body.startswith(b"markername is ")
    assert create(http, base, NAMES[1:3])[1] == b"[true,true]"


def test_a_batch_fails_as_a_whole_if_storage_does(http: HttpClient, base: Path) -> None:
    (base / ".hoodie" / "hoodie.properties").unlink()
    assert create(http, base, NAMES)[0] == 404
    assert not folder(base).exists()


def test_a_query_that_is_too_long_is_refused(http: HttpClient, base: Path) -> None:
    status, body = create(http, base, [marker_name(INSTANT, "f" * QUERY_BYTES)])
    assert status == 400
    assert b"allowed: up to 32768" in body


def test_batches_fit_into_requests(http: HttpClient, base: Path) -> None:
    names = [marker_name(INSTANT, number, "ü" * 600) for number in range(40)]
    found = list(batches(names))
    assert [name for batch in found for name in batch] == names
    assert 2 < len(found) < len(names)
    for batch in found:
        assert create(http, base, list(batch))[0] == 200
    assert list(batches([])) == []


def test_single_requests_go_on_from_a_batch(http: HttpClient, base: Path) -> None:
    create(http, base, NAMES[:2])
    one = {"markerdirpath": str(folder(base)), "markername": NAMES[1]}
    assert http.ask("POST", CREATE_MARKER, one) == (200, b"false")


@pytest.mark.parametrize(
    ("read", "body"),
    [
        (read_flag, b""),
        (read_flag, b"[true]"),
        (lambda body: read_outcomes(body, 2), b"[true]"),
        (lambda body: read_outcomes(body, 1), b"[1]"),
        (lambda body: read_outcomes(body, 1), b"true"),
        (lambda body: read_outcomes(body, 1), b"{"),
        (lambda body: read_outcomes(body, 1), b"[" * 100_000),
    ],
)
def test_a_wrong_answer_is_no_outcome(read: Callable[[bytes], object], body: bytes) -> None:
    with pytest.raises(BadAnswerError):
        read(body)
