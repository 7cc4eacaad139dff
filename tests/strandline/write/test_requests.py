"""Every call of a commit that a running client makes to one partition, by kind and cause or key.

A call more is paid for by each commit on an object store. One that is missing was there for a race
or a crash: ``docs/explanation/a-write.md`` names them.
"""

from __future__ import annotations

import re
import uuid
from collections import Counter

import pytest

from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from tests.kit.engines.far_engine import FarEngine
from tests.kit.servers.s3_server import s3_server
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
        ("list", "lookup"): 1,
    }
)
"""Calls of the view that looks the rows up where there is no service."""
FIRST_LOOK = ("list", "rollback")
"""What only a client does that doesn't know what the last write has left."""

TIMELINE = "list .hoodie/timeline/"
PROPERTIES = "GET .hoodie/hoodie.properties"
ON_S3 = [
    PROPERTIES,
    "PUT .hoodie/.heartbeat/*",
    "PUT .hoodie/timeline/*.commit.requested",
    "list .hoodie/",  # the timeline, and markers
    "GET eu/*.parquet",
    "HEAD .hoodie/timeline/*.commit.requested",
    "PUT .hoodie/timeline/*.inflight",
    "PUT .hoodie/.temp/*/eu/*.parquet.marker.MERGE",
    "PUT eu/*.parquet",
    {PROPERTIES, "PUT .hoodie/.heartbeat/*.completing"},
    TIMELINE,
    "PUT .hoodie/timeline/*_*.commit",
    TIMELINE,
]
"""Sets are requests at the same time. A small file is read once, to find keys and to be merged."""
ENDING = ["POST delete"] * 2  # markers; heartbeat and announcement
VIEW = ["HEAD .hoodie/hoodie.properties", "GET .hoodie/hoodie.properties", "list eu/"]
LEASES = "list .hoodie/.strandline/leases/"
CLEAN = [
    LEASES,
    "GET .hoodie/timeline/*_*.commit",  # which has left the retained ones
    "PUT .hoodie/timeline/*.clean.requested",
    TIMELINE,  # a savepoint or a lease may have come meanwhile
    LEASES,
    "PUT .hoodie/timeline/*.clean.inflight",
    "POST delete",  # the files
    "HEAD .hoodie/timeline/*.clean.inflight",
    "PUT .hoodie/timeline/*_*.clean",
]
SYNC = [TIMELINE, "HEAD .hoodie/hoodie.properties", "GET .hoodie/timeline/*_*.commit"]


ENGINES = {
    "local": lambda: LocalEngine(1),
    "local, with retries": lambda: LocalEngine(1, task_retries=1),
    "small batches of a cluster": lambda: FarEngine(1),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("service", [False, pytest.param(True, marks=pytest.mark.property)])
def test_calls_of_a_commit(base, service, engine):
    options = {"embed__timeline__server": service, "clean__automatic": True}
    with client(base, engine=ENGINES[engine](), **options) as c:
        assert bool(c.service) == service
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


@pytest.fixture
def requests(server):
    """Write some commits to a new table with options; return the requests of the last."""

    def of_last(days, **options):
        url = f"s3://b-{uuid.uuid4()}/t"
        with WriteClient(
            LocalEngine(1), url, {**OPTIONS, **options}, storage_options=server.options
        ) as c:
            c._context.storage._fs.mkdir(url.split("/")[2])
            for ts in range(1, days + 1):
                server.requests.begin({})
                result = c.upsert(table(row("a", ts=ts)))
                # The next write has a service that has started.
                assert bool(c.service) == (options["hoodie.embed.timeline.server"] == "true")
            assert result.warnings == ()
        return [told(request, "t") for request in server.requests.log]

    return of_last


@pytest.mark.property
@pytest.mark.parametrize("service", [False, True])
def test_requests_of_a_commit_to_s3(requests, service):
    options = {
        "hoodie.embed.timeline.server": str(service).lower(),
        "hoodie.clean.automatic": "true",
    }
    log = requests(4, **options)
    at = ON_S3.index("list .hoodie/") + 1
    expected = ON_S3 if service else [*ON_S3[:at], *VIEW, *ON_S3[at:]]
    if service:
        assert len(log) == 19
        assert sum(line.startswith("list") for line in log) == 4
    for step in expected:
        together = step if isinstance(step, set) else {step}
        assert {log.pop(0) for _ in together} == together
    # The service is told of the commit while markers and heartbeat are deleted.
    assert [line for line in log if line not in ENDING] == (SYNC if service else [])
    assert [line for line in log if line in ENDING] == ENDING


@pytest.mark.property
def test_requests_of_a_clean_on_s3(requests):
    options = {"hoodie.clean.automatic": "true", "hoodie.clean.commits.retained": "1"}
    log = requests(5, **{**options, "hoodie.embed.timeline.server": "true"})
    assert log[-len(CLEAN) :] == CLEAN
    # At the first look-up the service reads the timeline, its properties, and the last clean with
    # its plan.
    assert len(log) == 19 + len(CLEAN) + 4
