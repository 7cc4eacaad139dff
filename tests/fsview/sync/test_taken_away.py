"""Clients from before a write that completed, lost its completed file and was rolled back.

In between, the timeline has the hash that it had before the write, and the write's files are still
there. Clients from before it get what their own step answered, or are refused (#32).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from fsview.local_view import LocalView
from fsview.model.file_group import CompactionOperation
from fsview.store.stores import KINDS
from fsview.table_view import TableView
from tests.kit.servers.stores import ALL_KINDS, Restarted
from tests.kit.tables.model import services, undoing, writes
from tests.kit.tables.model.asking import Pin, operations, shape
from tests.kit.tables.model.cases import GROUP, a_table, assert_as_rebuilt
from tests.kit.tables.model.table import ModelTable, Write
from timeline.errors import ViewBehindError
from timeline.instant import CLEAN, State

pytestmark = pytest.mark.property

NEW = ("a", "a1-0")
ELSEWHERE = ("b", "b0-0")
REFUSED = "refused"
Asked = tuple[str, tuple[Any, ...]]


def upsert(group: tuple[str, str], how: writes.How) -> Callable[[ModelTable], Write]:
    return lambda table: writes.begin(table, [(group, how)])


def overwrite(table: ModelTable) -> Write:
    return writes.begin_overwrite(table, [GROUP], ["a"], "INSERT_OVERWRITE")


def clustering(table: ModelTable) -> Write:
    return services.request_clustering(table, [GROUP])


def compaction(table: ModelTable) -> Write:
    return services.request_compaction(table, [GROUP], logs_only=False)


def log_compaction(table: ModelTable) -> Write:
    return services.request_compaction(table, [GROUP], logs_only=True)


BASE_FILES = {
    "new group": upsert(NEW, "base"),
    "new partition": upsert(ELSEWHERE, "base"),
    "overwrite": overwrite,
    "clustering": clustering,
}
WRITES: dict[str, dict[str, Callable[[ModelTable], Write]]] = {
    "COPY_ON_WRITE": {"update": upsert(GROUP, "base"), **BASE_FILES},
    "MERGE_ON_READ": {
        "log": upsert(GROUP, "log"),
        "log that grew": upsert(GROUP, "grow"),
        "new log": upsert(NEW, "log"),
        "compaction": compaction,
        "log compaction": log_compaction,
        **BASE_FILES,
    },
}
CASES = [
    pytest.param(version, table_type, write, id=f"{write}, {table_type} {version}")
    for table_type, kinds in WRITES.items()
    for version, write in product((6, 9), kinds)
]
LOOKS = [
    (False, None, False),
    (True, None, False),
    (True, None, True),
    (False, None, True),
    (True, False, False),
    (True, True, True),
    (False, True, False),
]
"""Whether the server looks while the write pends again, after another commit (``None``: there is
none) and while the rollback is under way."""
RESTARTS = [
    (kind, step)
    for kind in ALL_KINDS
    for step in (None, "completed", "again", "in between", "rolled back")
    if step is None or KINDS[kind].lasts
]
"""Stores, and when the server is restarted: only where its store lasts."""
COMMITTED_ONLY = {
    "latest_base_files",
    "all_base_files",
    "latest_file_slices",
    "latest_file_slices_before_or_on",
    "latest_merged_file_slices_before_or_on",
    "all_latest_base_files_before_or_on",
    "all_latest_file_slices_before_or_on",
}
"""Questions whose answers show no files in flight, but for logs of version 6."""
UNNAMED = {"log", "log that grew", "log compaction"}
"""Writes of logs on a slice: in version 6 their names don't tell who wrote them."""


def questions(as_of: str) -> Iterator[Asked]:
    """Yield a question for each route that shows files."""
    for partition in ("a", "b"):
        for name in (
            "latest_base_files",
            "all_base_files",
            "latest_file_slices",
            "latest_file_slices_stateless",
            "latest_file_slices_including_inflight",
            "latest_uncompacted_file_slices",
            "all_file_slices",
            "all_file_groups",
            "all_file_groups_stateless",
            "all_replaced_file_groups",
        ):
            yield name, (partition,)
        yield "latest_base_file", (partition, GROUP[1])
        yield "latest_file_slice", (partition, GROUP[1])
        for time in (as_of, "~"):
            yield "latest_base_files_before_or_on", (partition, time)
            yield "base_file_on", (partition, time, GROUP[1])
            yield "latest_file_slices_before_or_on", (partition, time, True)
            yield "latest_file_slices_before_or_on", (partition, time, False)
            yield "latest_merged_file_slices_before_or_on", (partition, time)
            yield "latest_merged_file_slice_before_or_on", (partition, time, GROUP[1])
            inflight = "latest_merged_file_slices_before_or_on_including_inflight"
            yield inflight, (partition, time, "~")
            yield "replaced_file_groups_before_or_on", (time, partition)
            yield "replaced_file_groups_before", (time, partition)
            yield "replaced_file_groups_after_or_on", (time, partition)
    for time in (as_of, "~"):
        yield "all_latest_base_files_before_or_on", (time,)
        yield "all_latest_file_slices_before_or_on", (time,)
    yield "pending_compaction_operations", ()


def answers(view: LocalView, as_of: str) -> dict[Asked, Any]:
    """Return all answers of a view by question."""
    found: dict[Asked, Any] = {}
    for name, arguments in questions(as_of):
        try:
            answer = getattr(view, name)(*arguments)
        except ViewBehindError:
            found[name, arguments] = REFUSED
        else:
            found[name, arguments] = plain(answer)
    return found


def plain(answer: Any) -> Any:
    if isinstance(answer, dict):
        return {partition: shape(files) for partition, files in answer.items()}
    if not isinstance(answer, tuple):
        return answer and shape((answer,))
    if any(isinstance(item, CompactionOperation) for item in answer):
        return operations(answer)
    return shape(answer)


@dataclass
class Story:
    """A table whose write completes, is taken away and rolled back; clients remember answers.

    Attributes:
        clients: What clients know that came before the write completed, the last instant then, and
            by question what they may be answered.
    """

    table: ModelTable
    write: Write | None = None
    clients: list[tuple[Pin, str, dict[Asked, list[Any]]]] = field(default_factory=list)

    @classmethod
    def of(cls, version: int, table_type: str) -> Story:
        story = cls(a_table(version, table_type))
        on_read = story.table.merges_on_read
        how: writes.How = "log" if on_read else "base"
        writes.complete(story.table, writes.begin(story.table, [(GROUP, how)]))
        return story

    def a_client_comes(self, *followed: LocalView) -> None:
        """Remember what views answer now, of which one may know files in flight."""
        as_of = max(self.table.truth.completed)
        seen = (answers(view, as_of) for view in (self.rebuilt(), *followed))
        by_question = [*seen]
        right = {asked: [found[asked] for found in by_question] for asked in by_question[0]}
        self.clients.append((Pin.of(self.table), as_of, right))

    def rebuilt(self) -> LocalView:
        return LocalView.synced(TableView(self.table.storage))

    def begin(self, make: Callable[[ModelTable], Write]) -> None:
        self.write = write = make(self.table)
        if write.operation in ("COMPACT", "LOG_COMPACT", "CLUSTER"):
            services.start(self.table, write)

    def complete(self) -> None:
        assert self.write is not None
        writes.complete(self.table, self.write)

    def take_away(self) -> None:
        assert self.write is not None
        undoing.uncomplete(self.table, self.write)

    def begin_rollback(self) -> None:
        assert self.write is not None
        if self.write.operation != "COMPACT":
            undoing.begin_rollback(self.table, self.write)

    def finish_rollback(self) -> None:
        assert self.write is not None
        if self.write.operation == "COMPACT":
            services.take_back(self.table, self.write)
        else:
            undoing.finish_rollback(self.table)

    def commit_elsewhere(self) -> None:
        group = ("c", f"c{self.table.count()}-0")
        writes.complete(self.table, writes.begin(self.table, [(group, "base")]))

    def asked_by_clients(self, view: TableView) -> set[Asked]:
        """Have the clients ask again; return what was refused, and fail if an answer is wrong."""
        refused: set[Asked] = set()
        for pin, as_of, right in self.clients:
            try:
                found = LocalView.at(view, pin.last_instant, pin.timeline_hash)
            except ViewBehindError:
                continue
            if found.timeline == view.newest().timeline:
                continue  # nothing tells them from clients that come now
            for asked, answer in answers(found, as_of).items():
                if answer == REFUSED:
                    refused.add(asked)
                else:
                    assert answer in right[asked], asked
        return refused


class Server:
    """A server that syncs when it is told to.

    Attributes:
        loads: Whether it loads all partitions with each sync.
    """

    def __init__(self, story: Story, service: Restarted | None = None, *, loads: bool) -> None:
        self.loads = loads
        self._story, self._service = story, service
        self._view = TableView(story.table.storage)

    @property
    def view(self) -> TableView:
        return self._view if self._service is None else self._service.view

    def look(self, *, load: bool = False) -> None:
        self.view.sync()
        if load or self.loads:
            LocalView.newest(self.view).load_all_partitions()


@pytest.mark.parametrize(("version", "table_type", "write"), CASES)
@pytest.mark.parametrize("follows_from", ["before", "completed"])
@pytest.mark.parametrize("loads", [True, False], ids=["loaded-at-once", "loaded-late"])
def test_clients_from_before_a_write_that_was_taken_away_get_their_own_answers(
    version: int, table_type: str, write: str, follows_from: str, loads: bool
) -> None:
    """Whichever of the steps a server has seen; that the write completed, it has seen."""
    for again, in_between, rolling in LOOKS:
        story = Story.of(version, table_type)
        server = Server(story, loads=loads)
        followed = LocalView.synced(TableView(story.table.storage))
        followed.load_all_partitions()
        if follows_from == "before":
            server.look()
        story.a_client_comes()
        story.begin(WRITES[table_type][write])
        if write == "compaction":  # its instant, in flight, is part of the hash
            followed.sync()
            story.a_client_comes(followed)
        story.complete()
        server.look()
        story.take_away()
        if again:
            server.look(load=True)
        if in_between is not None:
            story.commit_elsewhere()
            if in_between:
                server.look()
                story.asked_by_clients(server.view)
        story.begin_rollback()
        if rolling:
            server.look()
            story.asked_by_clients(server.view)
        story.finish_rollback()
        server.look()
        refused = story.asked_by_clients(server.view)
        story.commit_elsewhere()
        server.look(load=True)
        assert story.asked_by_clients(server.view) <= refused
        assert_as_rebuilt(server.view, story.table)
        if version != 6 or write not in UNNAMED:
            assert not {name for name, _ in refused} & COMMITTED_ONLY


@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize(("kind", "restarts_at"), RESTARTS)
def test_every_store_keeps_which_writes_were_taken_away(
    kind: str, restarts_at: str | None, version: int, tmp_path: Path
) -> None:
    """Also where a server is restarted meanwhile."""
    for in_between, write in product((False, True), ("log", "overwrite", "new partition")):
        story = Story.of(version, "MERGE_ON_READ")
        service = Restarted(kind, tmp_path / f"{write} {in_between}", story.table.storage)
        server = Server(story, service, loads=True)

        def at(step: str, service: Restarted = service, server: Server = server) -> None:
            server.look()
            if step == restarts_at:
                service.restart()
                server.look()

        at("before")
        story.a_client_comes()
        story.begin(WRITES["MERGE_ON_READ"][write])
        story.complete()
        at("completed")
        story.take_away()
        at("again")
        if in_between:
            story.commit_elsewhere()
            at("in between")
            story.asked_by_clients(service.view)
        story.begin_rollback()
        story.finish_rollback()
        at("rolled back")
        story.asked_by_clients(service.view)
        service.close()


@pytest.mark.parametrize("version", [6, 9])
def test_servers_that_share_a_store_answer_alike(version: int, tmp_path: Path) -> None:
    """One follows the timeline, the other adopts what that has recorded."""
    for write in WRITES["MERGE_ON_READ"]:
        story = Story.of(version, "MERGE_ON_READ")
        directory = tmp_path / write
        services = [Restarted("sql", directory, story.table.storage) for _ in range(2)]
        servers = [Server(story, service, loads=True) for service in services]
        story.a_client_comes()
        steps: list[Callable[[], None]] = [
            lambda story=story, write=write: story.begin(WRITES["MERGE_ON_READ"][write]),
            story.complete,
            story.take_away,
            story.begin_rollback,
            story.finish_rollback,
        ]
        for step in (lambda: None, *steps):
            step()
            for server in servers:
                server.look()
        first, second = (story.asked_by_clients(server.view) for server in servers)
        assert first == second
        assert sum(service.metrics.get("adoptions") for service in services)
        for service in services:
            service.close()


@pytest.mark.parametrize("version", [6, 9])
def test_clients_that_come_while_the_write_pends_again_are_answered(version: int) -> None:
    """As by Hudi, with files in flight, for as long as nothing else has happened."""
    story = Story.of(version, "MERGE_ON_READ")
    server = Server(story, loads=True)
    server.look()
    story.begin(upsert(GROUP, "log"))
    story.complete()
    server.look()
    story.take_away()
    server.look()
    held = LocalView.newest(server.view)
    as_of = max(story.table.truth.completed)
    said = answers(held, as_of)
    assert said == answers(story.rebuilt(), as_of)
    story.begin_rollback()
    story.finish_rollback()
    server.look()
    assert answers(held, as_of) == said


@pytest.mark.parametrize("cause", ["check-failed", "plan-vanished"])
def test_a_reload_forgets_no_write_that_was_taken_away(cause: str) -> None:
    """The table is listed anew with the write's files."""
    story = Story.of(9, "MERGE_ON_READ")
    server = Server(story, loads=True)
    server.look()
    story.a_client_comes()
    story.begin(upsert(GROUP, "log"))
    story.complete()
    server.look()
    story.take_away()
    server.look()
    if cause == "check-failed":
        server.view.reload(cause)
    else:
        plan = story.table.put_state(CLEAN, story.table.tick(), State.REQUESTED)
        server.look()
        story.table.remove(plan, State.REQUESTED)
    server.look()
    story.begin_rollback()
    story.finish_rollback()
    server.look()
    assert story.asked_by_clients(server.view)
