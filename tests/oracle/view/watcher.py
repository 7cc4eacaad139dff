"""A view of ours that follows a table that Hudi writes, compared with Hudi's view at every step.

``check`` syncs the view and compares, for every question of the route table:

* a view of ours built now with a fresh view of Hudi's: equal to the last field;
* the followed view with the same, but for times, which metadata doesn't know. Where writes are in
  flight, whose files no instant names, it is compared with one of ours that is built without those
  files; which they are, markers say;
* the followed view with the rebuilt one, file by file;
* what earlier clients are answered with what Hudi answered when they came;
* what was listed: every directory of data once, ever.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsview.local_view import LocalView
from fsview.metrics import Metrics
from fsview.table_view import TableView
from fsview.wire.json_form import PathForms
from fsview.wire.routes import BY_NAME, ROUTES
from tests.conformance.view_suite import canonical, without_times
from tests.kit.tables import planned
from tests.kit.tables.rebuilt import differences_from_rebuilt
from tests.oracle.view.differences import as_release_0, groups_of, told, without_log_compactions
from tests.oracle.view.java_view import ONLY_SINCE_1, Answers, Client, JavaView, Question
from timeline.errors import StrandlineError, ViewBehindError
from timeline.instant import LOG_COMPACTION
from timeline.meta_client import TableMetaClient
from timeline.storage.base import FileInfo
from timeline.storage.local import LocalStorage

JAVA_FAILS = frozenset({"latest_file_slices_in_range", "latest_uncompacted_file_slices"})
"""What Hudi fails to answer where a group has no such slice; any answer of ours will do."""

UNSURE_IN_0 = frozenset({"latest_file_slices_before_or_on"})
"""What release 0.15 answers with slices that aren't committed, and 1.x and we without."""

OF_LOADED = frozenset(
    {"all_latest_base_files", "latest_base_files_in_range", "latest_file_slices_in_range"}
)
"""Questions whose answer depends on what else was asked for: not those of a client that is behind.
"""

PENDING_NOW = {
    "file_groups_in_pending_clustering": planned.clusterings,
    "pending_log_compaction_operations": planned.log_compactions,
}
"""What a hash doesn't cover: every plan that is there now pends for who doesn't know that it
completed."""

RETURNING = 6
"""How many earlier clients come back at each step."""


class WatchedStorage(LocalStorage):
    """Local storage that knows what was listed, and can keep silent about some of it.

    Attributes:
        listed: How often each directory was.
    """

    def __init__(self, base_path: str, hidden: Collection[str] = ()) -> None:
        super().__init__(base_path)
        self.listed: Counter[str] = Counter()
        self._hidden = frozenset(hidden)

    def list(self, path: str) -> tuple[FileInfo, ...]:
        self.listed[path] += 1
        return tuple(info for info in super().list(path) if info.name not in self._hidden)


@dataclass(frozen=True)
class Past:
    """A client that came at an earlier step, and what Hudi's view answered then.

    Attributes:
        step: When it came.
        client: What it knows.
        done: Requested times of what had completed.
        bodies: Question → answer, without times and files of writes in flight.
    """

    step: int
    client: Client
    done: frozenset[str]
    bodies: dict[Question, Any]


class Watcher:
    """The followed view of one table.

    Attributes:
        table: The view of ours.
        outcome: What became of the questions of clients that were behind: answered, refused.
    """

    def __init__(
        self, java: JavaView, path: Path, rng: random.Random, *, is_1: bool, moves: bool
    ) -> None:
        self._java, self._path, self._rng = java, path, rng
        self._is_1, self._moves = is_1, moves
        self._storage = WatchedStorage(str(path))
        self.metrics = Metrics()
        self.table = TableView(self._storage, metrics=self.metrics)
        self.outcome: Counter[str] = Counter()
        self._past: dict[str, Past] = {}
        self._forms = PathForms.of(str(path))

    def check(self, step: int) -> list[str]:
        """Return what differs from Hudi's view after a step, in words."""
        client = self._java.client()
        if not step:
            LocalView.newest(self.table).load_all_partitions()
        view = LocalView.synced(self.table)
        partitions = self.table.loader.load_all(view.snapshot)
        found = []
        if client.timeline_hash not in view.snapshot.hashes:
            found.append(f"hash of {view.snapshot.client_timeline}: not {client.timeline_hash}")
        begun = self._begun(set(client.partitions) - set(partitions))
        if {*partitions, *begun} != set(client.partitions):
            found.append(
                f"partitions: Hudi has {client.partitions}, the followed view {partitions}"
            )
        view = LocalView.newest(self.table)
        view.load_all_partitions()
        rebuilt = differences_from_rebuilt(view.snapshot, WatchedStorage(str(self._path)))
        found += [str(difference) for difference in rebuilt.found]
        unnamed = set(rebuilt.unnamed)
        unexplained = unnamed - set(in_flight_files(self._path, unnamed))
        if unexplained:
            found.append(f"no instant and no marker names {sorted(unexplained)}")
        built = self._built()
        questions = list(self._questions(client, built))
        said = self._java.ask(questions, client.partitions)
        in_flight = bool(unnamed or begun)
        comparable = [
            q for q in questions if self._is_1 or not (in_flight and q.name in UNSURE_IN_0)
        ]
        found += self._unlike("built now", comparable, said, built, times=True)
        known = said
        if in_flight:
            committed = self._built((*unnamed, *begun))
            known = Answers({q: self._dto(q, committed) for q in said.bodies}, said.failures)
        found += self._unlike("followed", questions, known, view, times=False)
        found += self._relisted()
        past = [*self._past.values()]
        found += self.ask_again(self._rng.sample(past, min(RETURNING, len(past))))
        self._remember(step, client, known)
        return found

    def ask_again(self, past: Iterable[Past] | None = None) -> list[str]:
        """Let earlier clients (all of them by default) come back; return what differs."""
        found: list[str] = []
        storage = TableMetaClient.open(LocalStorage(str(self._path)))
        for one in self._past.values() if past is None else past:
            try:
                view = LocalView.at(self.table, one.client.last_instant, one.client.timeline_hash)
            except ViewBehindError:
                self.outcome["refused"] += len(one.bodies)
                continue
            for question, then in one.bodies.items():
                try:
                    now = self._comparable(self._dto(question, view), times=False)
                except ViewBehindError:
                    self.outcome["refused"] += 1
                    continue
                self.outcome["answered"] += 1
                if question.name in PENDING_NOW:
                    plans = PENDING_NOW[question.name](storage, one.done)
                    right, seen = {group[:2] for group in plans}, groups_of(now)
                    if seen != right:
                        asked = f"client of step {one.step}: {question}"
                        found.append(f"{asked}: {sorted(right)} pend, not {sorted(seen)}")
                elif canonical(now) != canonical(then):
                    found.append(f"client of step {one.step}: {question}: {told(then, now)}")
        return found

    def _comparable(self, body: Any, *, times: bool) -> Any:
        """Return an answer without what may differ, the times of files unless asked for."""
        body = without_log_compactions(body)
        body = body if self._is_1 else as_release_0(body)
        return body if times else without_times(body)

    # Views.

    def _built(self, hidden: Collection[str] = ()) -> LocalView:
        """Return a view of ours that is built from what lies there now."""
        view = LocalView.newest(TableView(WatchedStorage(str(self._path), hidden)))
        view.load_all_partitions()
        return view

    def _begun(self, partitions: Iterable[str]) -> set[str]:
        """Return those of some partitions that have no files but of writes in flight."""
        files = {p: {f.name for f in (self._path / p).glob("*.parquet")} for p in partitions}
        logs = {p: {f.name for f in (self._path / p).glob("*.log.*[!c]")} for p in partitions}
        return {
            p
            for p, names in files.items()
            if (names | logs[p]) == set(in_flight_files(self._path, names | logs[p]))
        }

    # Questions.

    def _questions(self, client: Client, fresh: LocalView) -> Iterator[Question]:
        times = [i.requested_time for i in fresh.timeline] or ["0"]
        earlier = self._rng.choice(times)
        values = {
            "partition": client.partitions or ("",),
            "maxinstant": (client.last_instant, earlier),
            "mininstant": (earlier,),
            "instant": (earlier,),
            "currentinstant": (client.last_instant,),
            "instants": (",".join(sorted({earlier, times[-1]})),),
            "includependingcompaction": ("true", "false"),
        }
        for route in ROUTES:
            if route.method != "GET" or (not self._is_1 and route.name in ONLY_SINCE_1):
                continue
            choices: list[tuple[tuple[str, str], ...]] = [()]
            for param in route.params:
                choices = [
                    (*chosen, (param.name, value))
                    for chosen in choices
                    for value in values.get(param.name) or self._file_ids(fresh, chosen)
                ]
            yield from (Question(route.name, chosen) for chosen in choices)

    def _file_ids(self, fresh: LocalView, chosen: Iterable[tuple[str, str]]) -> list[str]:
        groups = fresh.all_file_groups(dict(chosen)["partition"])
        return [self._rng.choice([group.file_id for group in groups])] if groups else ["none"]

    # Comparisons.

    def _dto(self, question: Question, view: LocalView) -> Any:
        route = BY_NAME[question.name]
        return route.form.to_dto(
            route.answer(view, route.arguments(dict(question.params))), self._forms
        )

    def _unlike(
        self, name: str, questions: Iterable[Question], said: Answers, view: LocalView, times: bool
    ) -> Iterator[str]:
        """Yield how a view of ours answers otherwise than it should."""
        log_compaction_pends = any(i.action == LOG_COMPACTION for i in view.timeline)
        for question in questions:
            try:
                ours = self._dto(question, view)
            except StrandlineError as error:
                yield f"{name}: {question}: {error!r}"
                continue
            if question in said.failures:
                if question.name not in JAVA_FAILS:
                    yield f"{question}: Hudi failed: {said.failures[question]}"
                continue
            if question.name == "last_instant" and log_compaction_pends:
                continue
            ours = self._comparable(ours, times=times)
            theirs = self._comparable(said.bodies[question], times=times)
            if canonical(ours) != canonical(theirs):
                yield f"{name}: {question}: {told(theirs, ours)}"

    def _relisted(self) -> list[str]:
        """Return what was listed although it had been, but for causes that are counted."""
        found = []
        if self.reloads.keys() - ({"table-upgraded"} if self._moves else set()):
            found.append(f"the table was loaded anew: {dict(self.reloads)}")
        data = {path: n for path, n in self._storage.listed.items() if ".hoodie" not in path}
        again = {path: n - 1 for path, n in data.items() if n > 1}
        unclear = self.metrics.get("partition_reloads", cause="files-unclear")
        excused = unclear + sum(self.reloads.values()) * len(data)
        if sum(again.values()) > excused or (unclear and self._is_1):
            found.append(f"listed again: {again}, {unclear} times for files that are unclear")
        return found

    @property
    def reloads(self) -> Counter[str]:
        """Cause → how often the whole table was loaded anew."""
        return Counter(
            {
                dict(labels)["cause"]: n
                for (name, labels), n in self.metrics.counts().items()
                if name == "reloads"
            }
        )

    @property
    def share(self) -> float:
        """How many of the questions of clients that were behind were answered."""
        return self.outcome["answered"] / max(self.outcome.total(), 1)

    # Clients.

    def _remember(self, step: int, client: Client, said: Answers) -> None:
        bodies = {
            question: self._comparable(body, times=False)
            for question, body in said.bodies.items()
            if BY_NAME[question.name].synced and question.name not in OF_LOADED
        }
        # A hash doesn't cover log compactions and clusterings that pend: the last client counts.
        active = self.table.newest().active
        done = frozenset(instant.requested_time for instant in active.completed())
        self._past[client.timeline_hash] = Past(step, client, done, bodies)


def in_flight_files(path: Path, names: Collection[str]) -> Iterator[str]:
    """Yield those of some files that a marker names: by its name, or a log by its group."""
    markers = [file.name for file in (path / ".hoodie" / ".temp").rglob("*.marker.*")]
    marked = {name.rpartition(".marker.")[0] for name in markers}
    groups = {name.lstrip(".").partition("_")[0] for name in marked}
    for name in names:
        if name in marked or (name[0] == "." and name[1:].partition("_")[0] in groups):
            yield name
