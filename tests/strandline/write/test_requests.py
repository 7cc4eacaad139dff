"""Every call of a commit that a running client makes to one partition, by kind and cause or key.

A call more is paid for by each commit on an object store. One that is missing was there for a race
or a crash: ``docs/writing.md`` names them.
"""

from __future__ import annotations

import re
import uuid
from collections import Counter

import pytest

from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from tests.kit.far_engine import FarEngine
from tests.kit.s3_server import s3_server
from tests.strandline.write.tables import OPTIONS, client, row, table

COMMIT = Counter(
    {
        ("read", "table"): 2,  # the properties: before anything else, and before completing
        ("create", "heartbeat"): 1,
        ("create", "commit"): 3,
        ("list", "timeline"): 4,  # once requested, with the markers; before completing, and after
        ("read", "tag"): 1,
        ("stat", "commit"): 1,  # the requested file, before inflight
        ("create", "marker"): 1,
        ("read", "write"): 1,
        ("create", "write"): 1,
        ("replace", "heartbeat"): 1,  # the announcement
        ("delete", "marker"): 1,
        ("delete", "heartbeat"): 2,  # with the announcement
    }
)
OF_VIEW = Counter(
    {
        ("stat", "table"): 1,
        ("read", "table"): 1,
        ("list", "timeline"): 1,
        ("list", "lookup"): 1,
    }
)
"""Calls of the view that looks the rows up where there is no service."""
FIRST_LOOK = ("list", "rollback")
"""What only a client does that doesn't know what the last write has left."""

TIMELINE = "list .hoodie/timeline/"
ON_S3 = [
    "GET .hoodie/hoodie.properties",
    "PUT .hoodie/.heartbeat/*",
    "PUT .hoodie/timeline/*.commit.requested",
    "list .hoodie/",  # the timeline, and markers
    "GET eu/*.parquet",
    "HEAD .hoodie/timeline/*.commit.requested",
    "PUT .hoodie/timeline/*.inflight",
    "PUT .hoodie/.temp/*/eu/*.parquet.marker.MERGE",
    "GET eu/*.parquet",
    "PUT eu/*.parquet",
    "GET .hoodie/hoodie.properties",
    "PUT .hoodie/.heartbeat/*.completing",
    TIMELINE,
    "PUT .hoodie/timeline/*_*.commit",
    TIMELINE,
    "POST delete",  # markers
    "POST delete",  # heartbeat and announcement
]
VIEW = ["HEAD .hoodie/hoodie.properties", "GET .hoodie/hoodie.properties", TIMELINE, "list eu/"]
SYNC = [TIMELINE, "HEAD .hoodie/hoodie.properties", "GET .hoodie/timeline/*_*.commit"]


ENGINES = {
    "local": lambda: LocalEngine(1),
    "local, with retries": lambda: LocalEngine(1, task_retries=1),
    "small batches of a cluster": lambda: FarEngine(1),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("service", [False, True])
def test_calls_of_a_commit(base, service, engine):
    options = {"embed__timeline__server": service, "clean__automatic": True}
    with client(base, engine=ENGINES[engine](), **options) as c:
        results = [c.upsert(table(row("a", ts=ts))) for ts in range(2, 6)]
    for result in results[2:]:
        assert result.storage_calls == (COMMIT if service else COMMIT + OF_VIEW)
        assert FIRST_LOOK not in result.storage_calls
    assert results[0].storage_calls[FIRST_LOOK] == 1


@pytest.fixture(scope="module")
def server():
    with s3_server() as running:
        yield running


def told(request, root: str) -> str:
    """Return method and key of a request, without what differs from run to run."""
    path, _, query = request.path.partition("?")
    if request.method == "POST":
        return "POST delete"
    if "list-type" in query:
        prefix = re.search(r"prefix=([^&]*)", query)[1].replace("%2F", "/")
        return f"list {prefix.removeprefix(root + '/')}"
    key = path.split(f"/{root}/", 1)[1]
    return f"{request.method} {re.sub(UNIQUE, '*', key)}"


UNIQUE = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-\d+_\d+-\d+-\d+_\d{17}|\d{17}"


@pytest.mark.property
@pytest.mark.parametrize("service", [False, True])
def test_requests_of_a_commit_to_s3(server, service):
    url = f"s3://b-{uuid.uuid4()}/t"
    options = {
        **OPTIONS,
        "hoodie.embed.timeline.server": str(service).lower(),
        "hoodie.clean.automatic": "true",
    }
    with WriteClient(LocalEngine(1), url, options, storage_options=server.options) as c:
        c._context.storage._fs.mkdir(url.split("/")[2])
        for ts in range(1, 5):
            server.requests.begin({})
            c.upsert(table(row("a", ts=ts)))
        log = [told(request, "t") for request in server.requests.log]
    if service:
        assert log == [*ON_S3, *SYNC]
        assert len(log) == 20
        assert sum(line.startswith("list") for line in log) == 4
    else:
        at = ON_S3.index("list .hoodie/") + 1
        assert log == [*ON_S3[:at], *VIEW, *ON_S3[at:]]
