"""Pending plans over HTTP: a client's hash doesn't cover them."""

from __future__ import annotations

import json

import pytest

from fsview.wire.routes import BY_NAME
from tests.kit.servers.live_service import HttpClient, serving
from tests.kit.tables.model import services
from tests.kit.tables.model.asking import Pin
from tests.kit.tables.model.cases import GROUP, a_table
from timeline.errors import StorageUnavailableError

NAMES = ["file_groups_in_pending_clustering", "pending_log_compaction_operations"]


@pytest.mark.parametrize("name", NAMES)
def test_a_client_at_a_held_hash_sees_a_later_plan(name: str) -> None:
    table = a_table(9, "MERGE_ON_READ")
    path, client = BY_NAME[name].path, Pin.of(table)
    base_path = table.storage.base_path
    params = {
        "basepath": base_path,
        "lastinstantts": client.last_instant,
        "timelinehash": client.timeline_hash,
    }

    def fail(kind: str, path: str) -> None:
        raise StorageUnavailableError(f"injected: {kind} {path}")

    with (
        serving("/", opener=lambda *_: table.storage) as server,
        HttpClient(server.port) as http,
    ):
        assert http.ask("GET", path, params) == (200, b"[]")
        if name == NAMES[0]:
            services.request_clustering(table, [GROUP])
        else:
            services.request_compaction(table, [GROUP], logs_only=True)
        status, body = http.ask("GET", path, params)
        assert status == 200
        assert len(json.loads(body)) == 1
        table.storage.fail.append(fail)
        status, body = http.ask("GET", path, params)
        assert status == StorageUnavailableError.status
        assert b"injected" in body
