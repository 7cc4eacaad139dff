"""Partitions that are first loaded at any moment of a rollback, a restore or a clean.

Each action is recorded change by change. At any of these moments a view may have been synced, may
list the partition, and may list the timeline after it. Clients of each moment so far then get what
a view answers that had loaded the partition before the action began, or a refusal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from random import Random
from typing import Any

import pytest

from fsview.local_view import LocalView
from fsview.table_view import TableView
from tests.fsview.load.frames import Frame, FrameStorage, frames_of
from tests.kit.short_runs import stride
from tests.kit.tables.model import archiving, cleaning, undoing, writes
from tests.kit.tables.model.asking import said
from tests.kit.tables.model.cases import GROUP, a_table
from tests.kit.tables.model.table import ModelTable, UnderWay
from timeline.errors import ViewBehindError
from timeline.instant import ROLLBACK
from timeline.meta_client import TableMetaClient

Action = Callable[[ModelTable], None]


def roll_back(table: ModelTable, *, append: bool = False) -> None:
    """Roll back the newest completed write."""
    write = table.done[max(table.done)]
    plan = undoing.rollback_plan(table, write)
    asked = table.meta.create_requested(ROLLBACK, table.tick(), plan)
    rollback = table.meta.transition_to_inflight(asked)
    undoing.uncomplete(table, write)
    table.writes.remove(write)
    table.under_way = UnderWay("rollback", rollback, [write])
    undoing.finish_rollback(table, append=append)


def restore(table: ModelTable, *, append: bool = False) -> None:
    """Restore the table to its second write."""
    time = sorted(table.done)[1]
    undoing.begin_restore(table, time)
    undoing.finish_restore(table, time, append=append)


def clean(table: ModelTable) -> None:
    """Delete all but the newest slices."""
    cleaning.begin_clean(table, cleaning.to_clean(table))
    cleaning.finish_clean(table)


def cases() -> Iterator[Any]:
    """Yield version, type and action of each case in which files may go."""
    for version in (6, 9):
        for kind in ("COPY_ON_WRITE", "MERGE_ON_READ"):
            actions: dict[str, Action] = {"rollback": roll_back, "restore": restore}
            if kind == "COPY_ON_WRITE":  # else no write makes a second slice
                actions["clean"] = clean
            elif version == 6:
                actions["rollback-appends"] = partial(roll_back, append=True)
                actions["restore-appends"] = partial(restore, append=True)
            for name, action in actions.items():
                yield pytest.param(version, kind, action, id=f"{version}-{kind}-{name}")


@dataclass
class Recorded:
    """An action, and what is right at each of its moments.

    Attributes:
        frames: The moments; the last is after other writes, and after archiving.
        as_of: The time that is asked for.
        writers: File name → requested time of its writer.
        completed: Requested times of the instants that are completed at each moment.
        clients: Last instant and hash of a client's timeline at each.
        answers: By question, what a view says at each that had loaded the partition before.
        newest_does: Whether the newest answer is right for all: where only a clean came since.
    """

    frames: list[Frame]
    as_of: str
    writers: dict[str, str]
    newest_does: bool
    completed: list[set[str]] = field(default_factory=list)
    clients: list[tuple[str, str]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)
    _random: Random = field(default_factory=partial(Random, 7))

    @classmethod
    @cache
    def of(cls, version: int, kind: str, action: Action) -> Recorded:
        """Record an action on a table of four writes."""
        table = a_table(version, kind)
        for number in range(3):
            wanted = [(GROUP, "log"), (("a", "a1-0"), "base"), (("a", f"n{number}-0"), "base")]
            writes.complete(table, writes.begin(table, wanted))
        as_of, files = max(table.done), dict(table.files)
        frames = frames_of(table, action)
        files |= table.files
        for _ in range(3):
            writes.complete(table, writes.begin(table, [(GROUP, "log")]))
        archiving.archive(table, archiving.to_archive(table))
        files |= table.files
        writers = {file.name: file.writer for file in files.values()}
        found = cls([*frames, table.storage.files], as_of, writers, action is clean)
        storage = FrameStorage(found.frames)
        early = TableView(storage)
        LocalView.synced(early).load_partitions(["a"])
        for moment in range(len(found.frames)):
            storage.show(moment)
            active = TableMetaClient.open(storage).active_timeline()
            client = active.client_timeline()
            assert client.last is not None
            found.completed.append({i.requested_time for i in active.completed()})
            found.clients.append((client.last.requested_time, client.hash))
            found.answers.append(said(LocalView.synced(early), "a", as_of))
        return found

    def count(self, view: LocalView, moment: int, outcomes: Counter[str]) -> None:
        """Ask a view at a moment's timeline; count right answers and refusals.

        There are so many moments that each is asked a random third of the questions.
        """
        step = stride(3)
        which = slice(self._random.randrange(step), None, step)
        newest = len(self.frames) - 2
        for question, answer in said(view, "a", self.as_of, which).items():
            due = [self.answers[moment][question]]
            if self.newest_does and moment < newest:
                due.append(self.answers[newest][question])
            shown = [self._committed(one, moment) for one in (answer, *due)]
            assert answer is None or shown[0] in shown[1:], (question, moment)
            outcomes["refused" if answer is None else "right"] += 1

    def _committed(self, answer: Any, moment: int) -> Any:
        """Return an answer without logs in flight: whether they were listed decides if they are
        in it."""
        done = self.completed[moment]

        def counts(log: tuple[str, int]) -> bool:
            return self.writers[log[0]] in done or self.writers[log[0]] < min(done)

        return answer and [
            item if len(item) == 2 else (*item[:3], tuple(filter(counts, item[3])))
            for item in answer
        ]


@pytest.mark.property
@pytest.mark.parametrize(("version", "kind", "action"), [*cases()])
@pytest.mark.parametrize("newest_first", [False, True])
def test_whoever_asks_gets_the_files_of_one_timeline(
    version: int, kind: str, action: Action, newest_first: bool
) -> None:
    recorded = Recorded.of(version, kind, action)
    last = len(recorded.frames) - 1
    clients = {client: moment for moment, client in enumerate(recorded.clients)}
    pinned: Counter[str] = Counter()
    others: Counter[str] = Counter()
    for synced in range(last):
        for listed in range(synced, last + 1):
            for then in {listed, min(listed + 1, last), last if listed == synced else listed}:
                storage = FrameStorage(recorded.frames, synced)
                view = TableView(storage)
                mine = LocalView.synced(view)
                storage.show(listed)
                storage.after_list.append(then)
                if newest_first:
                    with suppress(ViewBehindError):
                        LocalView.synced(view).load_partitions(["a"])
                recorded.count(mine, synced, pinned)
                storage.show(then)
                recorded.count(LocalView.synced(view), then, others)
                for client, moment in clients.items():
                    with suppress(ViewBehindError):
                        recorded.count(LocalView.at(view, *client), moment, others)
                recorded.count(mine, synced, pinned)
    assert pinned["right"] > pinned["refused"] / 4
    assert others["right"] > others["refused"]
