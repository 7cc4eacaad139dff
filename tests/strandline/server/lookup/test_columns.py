"""Answers of view routes in columns: the same as in Hudi's form, for clients that accept them."""

from __future__ import annotations

import gzip
import json

import pytest

from fsview.local_view import open_view
from fsview.wire.column_form import COLUMNS
from fsview.wire.json_form import PathForms
from fsview.wire.routes import ROUTES
from strandline.server.http.reply import (
    COLUMNS_GZIP_BYTES,
    GZIP_BYTES,
    TEXT,
    Accepted,
    pretty,
    success,
)
from strandline.server.lookup.answer import Answers, Question
from tests.kit.servers.live_service import AppClient, GoldenTables, parts_of
from tests.kit.storage.troubled_storage import LATEST, partitions_of
from tests.kit.tables import golden

IN_COLUMNS = [route for route in ROUTES if route.has_columns]
ACCEPT = {"Accept": IN_COLUMNS[0].accept}


def ready(answers: Answers, base: str, route, params: dict[str, str]) -> bytes | None:
    table = answers.known_table(base)
    assert table is not None
    return answers.ready(Question.of(route, params, Accepted(columns=True)), table)


@pytest.mark.parametrize("scenario", golden.scenarios())
def test_both_forms_hold_the_same_answer_on_either_way(scenario: str) -> None:
    """All golden tables: logs, pending compactions and replaced groups among them."""
    tables, step = GoldenTables(), golden.steps(scenario)[-1]
    parts = parts_of(tables.root, opener=tables)
    base = tables.base_path(scenario, step)
    client, paths = AppClient(parts, base), PathForms.of(base)
    timeline = open_view(golden.GoldenStorage(scenario, step)).timeline.client_timeline()
    pin = {"basepath": base, "lastinstantts": timeline.last_time, "timelinehash": timeline.hash}
    for route in IN_COLUMNS:
        for partition in (*partitions_of(scenario), "nowhere"):
            asked = {"partition": partition, "max_instant": LATEST}
            params = pin | route.query(**asked)
            plain, columns = (
                client.request("GET", route.path, params, headers) for headers in ({}, ACCEPT)
            )
            assert plain.headers["content-type"] == "text/plain"
            assert columns.headers["content-type"] == COLUMNS
            assert plain.body.startswith(b"[")
            assert columns.body.startswith(b"{")
            held = ready(parts.answers, base, route, params)
            assert held is None or held.endswith(b"\r\n\r\n" + columns.body)
            assert route.decode(plain.body, paths) == route.decode(
                columns.body, paths, partition=partition
            )
    parts.close()


@pytest.mark.parametrize(
    ("content_type", "size", "is_zipped"),
    [
        (TEXT, GZIP_BYTES - 1, False),
        (TEXT, GZIP_BYTES, True),
        (COLUMNS, COLUMNS_GZIP_BYTES - 1, False),
        (COLUMNS, COLUMNS_GZIP_BYTES, True),
    ],
)
def test_columns_are_compressed_only_where_they_are_very_long(
    content_type: str, size: int, is_zipped: bool
) -> None:
    body = b"x" * size
    reply = success(body, zipped=True, content_type=content_type)
    assert ("content-encoding" in reply.headers) is is_zipped
    assert (gzip.decompress(reply.body) if is_zipped else reply.body) == body


def test_an_indented_answer_is_never_in_columns() -> None:
    tables, scenario = GoldenTables(), golden.scenarios()[0]
    parts = parts_of(tables.root, opener=tables)
    base = tables.base_path(scenario, golden.steps(scenario)[-1])
    params = {"basepath": base, "partition": partitions_of(scenario)[0], "pretty": "true"}
    answer = AppClient(parts, base).request("GET", IN_COLUMNS[0].path, params, ACCEPT)
    assert answer.body == pretty(answer.body)
    assert isinstance(json.loads(answer.body), list)
    parts.close()
