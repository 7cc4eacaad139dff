"""Slices with logs on an object store, of which any request may fail."""

from __future__ import annotations

from itertools import count

import pytest

from strandline.records.commit_history import CommitHistory
from strandline.records.schema.avro_schema import avro_to_arrow
from tests.kit.servers.s3_server import s3_server
from tests.kit.storage.s3_faults import RequestEffect
from tests.kit.tables import golden
from tests.strandline.read.logs.log_table import read
from timeline.errors import StorageUnavailableError
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage

pytestmark = pytest.mark.property


@pytest.mark.parametrize(
    ("effect", "is_repeated"),
    [(RequestEffect.ERROR_BEFORE, False), (RequestEffect.HALF_ANSWER, True)],
)
def test_each_request_may_fail(effect, is_repeated, tmp_path):
    """A read returns all rows or says that it may be repeated; s3fs repeats requests cut short."""
    local = LocalStorage(str(golden.build_final("nonpart_mor_v9", tmp_path)))
    meta = TableMetaClient.open(local)
    schema = avro_to_arrow(CommitHistory().avro_schema(meta, meta.active_timeline()) or "")
    expected, _ = read(local, schema)
    failed = 0
    with s3_server() as server:
        storage = server.single_try(tmp_path)
        for nth in count(1):
            server.requests.begin({nth: effect})
            try:
                found = read(storage, schema)[0]
            except StorageUnavailableError:
                failed += 1
                continue
            assert found.equals(expected)
            if not server.requests.fired:
                break
        server.drop(storage)
    assert nth > 8
    assert (failed == 0) == is_repeated
