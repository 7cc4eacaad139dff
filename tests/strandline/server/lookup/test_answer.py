"""``Answers``: answers made on the loop read nothing from storage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from fsview.local_view import LocalView, open_view
from fsview.model.file_system_view import FileSystemView
from fsview.wire.routes import BY_NAME, ROUTES, Route
from strandline.server.http.reply import Accepted
from strandline.server.lookup.answer import Question, is_of_group
from tests.kit.servers.live_service import GoldenTables, parts_of
from tests.kit.tables import golden

SCENARIO = "archival_mor_v9"
STEP = 19
HOT = sorted((route for route in ROUTES if route.hot), key=lambda route: not is_of_group(route))
"""Questions about one group first: whole partitions with logs are left to the pool anyway."""


def questions(view: FileSystemView, last: str) -> Iterator[tuple[Route, dict[str, str]]]:
    """Yield every hot question about each partition and group, at the last instant."""
    for route in HOT:
        for partition, file_id in group_ids(view):
            said: dict[str, Any] = {
                "partition": partition,
                "file_id": file_id,
                "max_instant": last,
                "include_pending_compaction": True,
            }
            yield route, route.query(**{p.argument: said[p.argument] for p in route.params})


def group_ids(view: FileSystemView) -> list[tuple[str, str]]:
    view.load_all_partitions()
    partitions = view.all_latest_file_slices_before_or_on("9")
    groups = (group for p in partitions for group in view.all_file_groups(p))
    return [(group.partition, group.file_id) for group in groups]


def test_what_needs_the_archive_is_handed_on_by_the_loop_which_reads_nothing() -> None:
    """Logs of archived delta commits: the long way reads when these completed (#12)."""
    tables = GoldenTables()
    parts = parts_of(tables.root, opener=tables)
    base = tables.base_path(SCENARIO, STEP)
    table = parts.views.view(base)
    view = LocalView.newest(table)
    view.load_all_partitions()
    last = view.timeline.instants[-1].requested_time
    known = {"basepath": base, "lastinstantts": last, "timelinehash": view.timeline.hash}
    storage = tables.opened[base]
    handed_on = 0
    for route, arguments in questions(open_view(golden.GoldenStorage(SCENARIO, STEP)), last):
        params = {**known, **arguments}
        before = storage.calls.snapshot()
        made = parts.answers.ready(Question.of(route, params, Accepted()), table)
        assert storage.calls.snapshot() == before, route.name
        if made is None:
            handed_on += 1
            parts.answers.reply(Question.of(route, params, Accepted()))
            assert parts.answers.ready(Question.of(route, params, Accepted()), table) is not None
    assert handed_on
    reads = storage.calls.snapshot()["read", "lookup"]
    assert reads == 3, "the archive is read once: pointer, manifest, the file of those instants"
    parts.close()


def test_the_arguments_of_a_request_are_read_once() -> None:
    tables = GoldenTables()
    parts = parts_of(tables.root, opener=tables)
    read: list[str] = []

    def noted(text: str) -> str:
        read.append(text)
        return text

    for name in ("latest_file_slices", "all_file_slices"):  # kept ready, and not
        route = BY_NAME[name]
        partition = replace(route.params[0], read=noted)
        params = {"basepath": tables.base_path(SCENARIO, STEP), "partition": name}
        for accepted in (Accepted(), Accepted(columns=True)):
            question = Question.of(replace(route, params=(partition,)), params, accepted)
            assert parts.answers.reply(question).status == HTTPStatus.OK
    assert read == ["latest_file_slices"] * 2 + ["all_file_slices"] * 2
    parts.close()
