"""Tables through a timeline service: the same slices and rows as without it, and no lists."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc
import pytest

from fsview.local_view import open_view
from fsview.model.file_system_view import FileSystemView
from strandline import Table
from strandline.read.state.slice_source import ServedSlices, with_pending
from tests.kit.servers.free_port import free_port
from tests.kit.servers.live_service import TOKEN, serving
from tests.kit.tables import golden
from tests.strandline.read.logs.log_table import LogTable, row
from timeline.errors import ConfigError
from timeline.instant import Instant, State
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage
from timeline.timeline import Timeline

TABLES = [name for name in golden.scenarios() if golden.has_final_table(name)]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A service, and a root that it serves."""
    root = tmp_path_factory.mktemp("served")
    with serving(str(root)) as server:
        yield root, f"http://127.0.0.1:{server.port}"


def lists(table: Table) -> int:
    """Return how many lists of storage a table took so far."""
    calls = table._storage.calls.snapshot()
    return sum(count for (kind, _), count in calls.items() if kind == "list")


@pytest.mark.property
@pytest.mark.parametrize("scenario", TABLES)
def test_answers_are_equal(scenario, served):
    root, url = served
    base = golden.build_final(scenario, root / scenario)
    own, asking = Table(base), Table(base, service=url, token=TOKEN)
    assert asking.scan().plan().equals(own.scan().plan())
    assert asking.to_arrow().equals(own.to_arrow())
    assert asking.files().equals(own.files())
    assert asking.slices().equals(own.slices())
    assert asking.partitions().equals(own.partitions())
    assert asking.schema().equals(own.schema())
    assert asking.history().equals(own.history())
    assert asking.inspect.log_files().equals(own.inspect.log_files())
    assert asking.scan(read_optimized=True).plan().equals(own.scan(read_optimized=True).plan())
    paths = own.files()["partition"]
    for condition in (
        pc.field("_hoodie_partition_path") == paths[0],
        pc.field("_hoodie_partition_path") > paths[0],
    ):
        scan = asking.scan(filter=condition)
        assert scan.plan().equals(own.scan(filter=condition).plan())
        assert scan.instant == own.scan().instant
        assert asking.files(filter=condition).equals(own.files(filter=condition))
        assert asking.stats(filter=condition).equals(own.stats(filter=condition))
    earliest = own.earliest_instant()
    assert asking.scan(as_of=earliest).plan().equals(own.scan(as_of=earliest).plan())


@pytest.mark.parametrize("name", ["cow_basic_v6", "cow_basic_v9", "mor_basic_v9"])
def test_storage_is_not_listed(name, served):
    root, url = served
    table = Table(golden.build_final(name, root / "unlisted" / name), service=url, token=TOKEN)
    rows = table.scan(filter=pc.field("p") == "2024-01-01").to_arrow()
    assert rows.num_rows > 0
    assert lists(table) == 0


def test_later_scans_see_later_commits(served):
    root, url = served
    table = LogTable(LocalStorage(str(root / "growing")), schema=None)
    table.base([row("a", 1)])
    asking = Table(root / "growing", service=url, token=TOKEN)
    first = asking.scan()
    table.base([row("a", 1), row("b", 1)])
    assert (first.count(), asking.scan().count()) == (1, 2)


def test_a_service_that_fails_is_replaced_by_listing(tmp_path):
    base = golden.build_final("mor_basic_v9", tmp_path)
    asking = Table(base, service=f"http://127.0.0.1:{free_port()}")
    assert asking.to_arrow().equals(Table(base).to_arrow())
    assert asking.files().equals(Table(base).files())


def test_a_root_that_is_not_served_is_listed(served, tmp_path):
    base = golden.build_final("cow_basic_v9", tmp_path)
    asking = Table(base, service=served[1], token=TOKEN)
    assert asking.to_arrow().equals(Table(base).to_arrow())


@pytest.mark.parametrize("service", ["", "localhost:8080", "ftp://host"])
def test_addresses_are_checked(service, tmp_path):
    base = golden.build_final("cow_basic_v9", tmp_path)
    with pytest.raises(ConfigError):
        Table(base, service=service)


def test_a_token_needs_a_service(tmp_path):
    base = golden.build_final("cow_basic_v9", tmp_path)
    with pytest.raises(ConfigError, match="token is given without service"):
        Table(base, token="secret")


def test_what_completed_since_is_pending():
    done = Instant("1", "deltacommit", State.COMPLETED, "2")
    since = Instant("3", "deltacommit", State.COMPLETED, "4")
    inflight = Instant("0", "deltacommit", State.INFLIGHT)
    found = with_pending(Timeline.of([done]), Timeline.of([inflight, done, since]))
    assert [(i.requested_time, i.is_completed) for i in found] == [
        ("0", False),
        ("1", True),
        ("3", False),
    ]


class Noted(FileSystemView):
    """A view that passes questions on to another one, and notes them; also its own location."""

    def __init__(self, view: FileSystemView) -> None:
        self.view = view
        self.answers: list[tuple[str, Any]] = []

    def open(self) -> Noted:
        return self

    def close(self) -> None:
        self.view.close()

    def ask(self, name, **arguments):
        answer = self.view.ask(name, **arguments)
        self.answers.append((name, answer))
        return answer


@pytest.mark.parametrize("name", ["multi_mor_v6", "slash_cow_v9", "nonpart_cow_v6"])
def test_partitions_are_asked_for_by_their_names_alone(name):
    storage = golden.GoldenStorage(name, golden.steps(name)[-1])
    view = Noted(open_view(storage))
    source = ServedSlices(TableMetaClient.open(storage), view)
    own = open_view(storage)
    expected = [s for path in own.partitions() for s in own.latest_file_slices(path)]
    assert [found.path for each in source.slices(None) for found in files_of(each)] == [
        found.path for each in expected for found in files_of(each)
    ]
    (names,) = [answer for asked, answer in view.answers if asked.startswith("all_")]
    assert names == dict.fromkeys(own.partitions(), ())


@pytest.mark.parametrize("name", ["cow_basic_v6", "mor_basic_v9"])
def test_hudis_service_names_partitions_without_matches(name):
    step = golden.steps(name)[-1]
    answers = [
        answer["body"]
        for request, answer in golden.recordings(name, step)
        if request["path"].endswith("/slices/all/beforeoron/latest/")
    ]
    assert any(body and not any(body.values()) for body in answers)


def files_of(found):
    return [found.base_file, *found.log_files] if found.base_file else found.log_files
