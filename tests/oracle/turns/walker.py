"""A random walk in which both writers take turns at one table."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from strandline import Table
from strandline.records.meta_fields import IS_DELETED
from tests.oracle.hudi import Hudi
from tests.oracle.turns.batches import Batches
from tests.oracle.turns.checks import hidden_rows
from tests.oracle.turns.row_model import Row, RowModel
from tests.oracle.turns.table_form import ARCHIVED_FROM, BUCKET, OURS, RETAINED, THEIRS, Walk
from tests.oracle.turns.writers import HudiWriter, OurWriter
from timeline.errors import ConcurrentWriteError, IllegalTransitionError
from timeline.instant import COMPACTION, RESTORE, SAVEPOINT, Instant
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage
from timeline.timeline import Timeline

Action = Callable[[], str]

NEW: Final = 4
"""By how much an action is likelier as long as the walk hasn't had it."""
_OF_PLANS: Final = (
    "ours compacts what is planned",
    "hudi compacts what is planned",
    "ours dies compacting",
)
_PLANNING: Final = ("ours plans a compaction", "hudi plans a compaction")


class Walker:
    """Has both writers do things to a table, and its model what must come of it.

    Attributes:
        done: Action → how often it was done.
        commits: Writer → how many of its commits were completed.
        doing: The action that was begun last.
        model: What the table must hold.
    """

    def __init__(self, hudi: Hudi, path: Path, walk: Walk) -> None:
        form = walk.form
        self.path, self.form, self.rng = path, form, random.Random(walk.seed)
        self._steps = walk.steps
        mode = form.rows_merge_by(hudi.release)
        self.model = RowModel(form.identity, mode, form.partition_fields)
        self.batches = Batches(form, self.model, self.rng)
        self.ours = OurWriter(path, form, self.rng, hudi.release)
        self.hudi = HudiWriter(hudi, path, form, self.rng)
        self.doing = ""
        self.done: Counter[str] = Counter()
        self.commits: Counter[str] = Counter()
        self._failed: set[str] = set()
        """Whose writes have failed and are pending: ``ours``, ``hudi's``."""
        self._kept_from = ""
        """Requested time of the oldest commit that no clean has made impossible to undo."""

    def step(self, number: int) -> str:
        """Do something; return what, in words. The first step, 0, makes the table."""
        if number == 0:
            rows = self.batches.first()
            how = self._write(self.form.maker, "bulk_insert", rows)
            return f"{self.form.maker} makes the table: {how}"
        actions = self._actions()
        name = self.doing = self._chosen(actions, is_late=2 * number >= self._steps)
        how = actions[name][1]()
        self.done[name] += 1
        return f"{name}: {how}" if how else name

    def _chosen(self, actions: Mapping[str, tuple[int, Action]], *, is_late: bool) -> str:
        """Draw an action by the weights; late in the walk one that it lacks, if it isn't a write.

        Writes can be done at any time, the others only now and then.
        """
        names = sorted(actions)
        writes = {f"{who} {kind}" for who in (OURS, THEIRS) for kind in self.batches.kinds}
        due = [each for each in names if each not in writes and self._lacks(each)]
        names = due if is_late and due else names
        weights = [actions[each][0] * (NEW if self._lacks(each) else 1) for each in names]
        return self.rng.choices(names, weights)[0]

    def _lacks(self, action: str) -> bool:
        """Whether the walk hasn't had an action, or one that needs a compaction it plans."""
        return not all(map(self.done.get, (action, *_OF_PLANS * (action in _PLANNING))))

    def timeline(self) -> Timeline:
        """Return the active timeline."""
        return TableMetaClient.open(LocalStorage(str(self.path))).active_timeline()

    @property
    def _is_foreign(self) -> bool:
        """Whether a write of Hudi's that has no heartbeat is pending."""
        return "hudi's" in self._failed and not self.form.lazy

    def pending_writes(self) -> list[str]:
        """Return the requested times of commits that pend."""
        return [i.requested_time for i in self._writes(self.timeline().pending())]

    def _writes(self, instants: Iterable[Instant]) -> list[Instant]:
        """Return those instants that are writes, not services."""
        return [instant for instant in instants if instant.action in self.form.actions]

    def _actions(self) -> dict[str, tuple[int, Action]]:
        """Return what can be done now: action → its weight, and what does it."""
        now, pending = self.timeline(), self.pending_writes()
        completed = self._writes(now.completed())
        found: dict[str, tuple[int, Action]] = {}
        if len(completed) > RETAINED or (self.form.lazy and pending):
            weight = 12 if self.form.lazy and pending else 2
            found["ours cleans"] = (weight, lambda: self._clean(OURS))
            found["hudi cleans"] = (weight, lambda: self._clean(THEIRS))
        if len(completed) > ARCHIVED_FROM and not self._looks_uncommitted(now):
            found["hudi archives"] = (4, lambda: self._archive(THEIRS))
            found["ours archives"] = (4, lambda: self._archive(OURS))
        if self._is_foreign:
            found["ours repairs"] = (10, self._writing(OURS, "upsert", "upsert"))
        for kind, (weight, operation, _) in self.batches.kinds.items():
            if self.model.state or operation not in ("delete", "delete_partition"):
                # Hudi's bulk inserts open second file groups for buckets, which its writes refuse.
                is_second = operation == "bulk_insert" and self.form.index == BUCKET
                for who in (OURS,) if is_second else (OURS, THEIRS):
                    found[f"{who} {kind}"] = (weight, self._writing(who, kind, operation))
        if not pending or self.form.lazy:
            found["ours dies"] = (8, self._die)
            found["hudi fails"] = (5, self._fail)
        if pending:
            return found
        last = self.model.commits[-1][0]
        saved = [i.requested_time for i in now if i.action == SAVEPOINT and i.is_completed]
        if last not in saved:
            found["hudi makes a savepoint"] = (2, lambda: self._save(last))
            # A compaction of what a commit wrote must be undone before it.
            newest = now.write_timeline().last
            is_newest = newest is not None and newest.requested_time == last
            if is_newest and len(self.model.commits) > 1 and last >= self._kept_from:
                found["ours rolls back"] = (3, lambda: self._roll_back(OURS, last))
                found["hudi rolls back"] = (3, lambda: self._roll_back(THEIRS, last))
        if self.form.has_logs:
            found |= self._compactions(now)
        if saved:
            if _can_be_restored(now, saved[-1]):
                found["hudi restores"] = (6, lambda: self._restore(saved[-1]))
            found["hudi deletes a savepoint"] = (6, lambda: self._forget(saved[0]))
        return found

    def _looks_uncommitted(self, now: Timeline) -> bool:
        """Whether Hudi took logs that are archived now for ones of pending instants.

        Nobody archives a restore, and it looks up in the archive only what is older than all
        instants of the timeline.
        """
        return self.form.has_logs and any(i.action == RESTORE for i in now)

    def _compactions(self, now: Timeline) -> dict[str, tuple[int, Action]]:
        """Return what can be done about compactions now, as ``_actions`` does."""
        planned = [i.requested_time for i in now.pending() if i.action == COMPACTION]
        if planned:
            return {
                "ours compacts what is planned": (6, self._compact),
                "hudi compacts what is planned": (6, lambda: self._compact_by_hudi(planned[0])),
                "ours dies compacting": (4, self._die_compacting),
            }
        found: dict[str, tuple[int, Action]] = {"ours compacts": (5, self._compact)}
        if any(Table(self.path).files()["log_paths"].to_pylist()):
            plan, theirs = self.ours.schedule_compaction, self.hudi.schedule_compaction
            found["ours plans a compaction"] = (7, lambda: plan() or "nothing")
            found["hudi plans a compaction"] = (7, lambda: theirs() or "nothing")
        return found

    # Writes.

    def _writing(self, who: str, kind: str, operation: str) -> Action:
        return lambda: self._write(who, operation, self.batches.draw(kind))

    def _write(self, who: str, operation: str, rows: Sequence[Row]) -> str:
        hidden: list[str] = []
        if who == THEIRS:
            # Step 0 has no table yet.
            may_hide = self.model.commits and self.hudi.is_1 and not self.form.has_logs
            hidden = hidden_rows(self.path) if may_hide else hidden
            how = self.hudi.write(operation, rows)
        else:
            how = self.ours.write(operation, rows, foreign=self._is_foreign)
        self.commits[who] += self._follow(operation, rows, hidden)
        # Hudi 1.2.0 leaves failed writes to the next operation when it deletes partitions.
        leaves = who == THEIRS and operation == "delete_partition"
        if not (self.form.lazy or leaves):
            self._repaired(who)
        return f"{how}; {_told(rows)}"

    def _repaired(self, who: str) -> None:
        """Check that failed writes were rolled back, and count whose by whom."""
        assert not self.pending_writes(), "a failed write wasn't rolled back"
        for failed in self._failed:
            self.done[f"{who} repairs {failed}"] += 1
        self._failed.clear()

    def _follow(self, operation: str, rows: Sequence[Row], hidden: Sequence[str] = ()) -> bool:
        """Update the model if there is a new commit; return whether there is."""
        known = self.model.commits[-1][0] if self.model.commits else ""
        completed = self._writes(self.timeline().completed())
        newest = max((i.requested_time for i in completed), default="")
        if newest > known:
            self.model.committed(newest, self.model.after(operation, rows, hidden))
        return newest > known

    # Failures.

    def _die(self) -> str:
        kind, operation, rows = self._drawn()
        pending = len(self.pending_writes())
        how = self.ours.die(operation, rows)
        committed = self._follow(operation, rows)
        if len(self.pending_writes()) > pending:
            self.done["ours dies inflight"] += 1
            self._failed.add("ours")
        return f"{kind}, {'committed' if committed else 'not committed'}, {how}; {_told(rows)}"

    def _fail(self) -> str:
        kind, operation, rows = self._drawn()
        self.hudi.fail(operation, rows)
        self._failed.add("hudi's")
        if self._is_foreign:
            self._is_refused()
        return f"{kind}; {_told(rows)}"

    def _drawn(self) -> tuple[str, str, Sequence[Row]]:
        kinds = ("upsert", "insert", "insert_overwrite", "bulk_insert")
        kind = self.rng.choice(kinds[:3] if self.form.index == BUCKET else kinds)
        return kind, self.batches.kinds[kind][1], self.batches.draw(kind)

    def _is_refused(self) -> None:
        try:
            self.ours.write("upsert", self.batches.draw("upsert"))
        except ConcurrentWriteError:
            self.done["ours is refused beside hudi's"] += 1
            return
        raise AssertionError("a write without a heartbeat was taken for dead")

    def _is_refused_rollback(self, instant: str) -> None:
        try:
            self.ours.rollback(instant)
        except IllegalTransitionError:
            self.done["ours is refused a rollback"] += 1
            return
        raise AssertionError("a commit with a savepoint was rolled back")

    # Services.

    def _clean(self, who: str) -> str:
        completed = [i.requested_time for i in self._writes(self.timeline().completed())]
        (self.ours if who == OURS else self.hudi).clean()
        if len(completed) > RETAINED:
            self._kept_from = max(self._kept_from, completed[-RETAINED])
        if self.form.lazy:
            self._repaired(who)
        return ""

    def _compact(self) -> str:
        result = self.ours.compact()
        return "nothing" if result is None else f"{result.instant}, {result.finished}"

    def _compact_by_hudi(self, planned: str) -> str:
        self.hudi.compact(planned)
        found = self.timeline().find(planned)
        assert found is not None, planned
        assert found.is_completed, found
        return planned

    def _die_compacting(self) -> str:
        return self.ours.die_compacting()

    def _archive(self, who: str) -> str:
        before = len(self.timeline())
        (self.ours if who == OURS else self.hudi).archive()
        archived = before - len(self.timeline())
        self.done[f"{who} archived some"] += archived > 0
        return f"{archived} instants"

    def _roll_back(self, who: str, instant: str) -> str:
        (self.ours if who == OURS else self.hudi).rollback(instant)
        self.model.rolled_back(instant)
        return instant

    def _save(self, instant: str) -> str:
        self.hudi.savepoint(instant)
        self._is_refused_rollback(instant)
        return instant

    def _forget(self, instant: str) -> str:
        self.hudi.delete_savepoint(instant)
        return instant

    def _restore(self, instant: str) -> str:
        self.hudi.restore(instant)
        self.model.restored(instant)
        return instant


def _can_be_restored(now: Timeline, instant: str) -> bool:
    """Whether Hudi, which undoes the last to complete first, finds none requested later.

    It refuses to undo a compaction that completed after writes that were requested after it.
    """
    later = [i for i in now.write_timeline().completed() if i.requested_time > instant]
    return sorted(later, key=lambda i: i.completion_time or "") == later


def _told(rows: Sequence[Row]) -> str:
    """Return the rows of a write on one line."""
    return " ".join(
        f"{row['id']}.{row['sub']}@{row['p']}/{row['q']}#{row['ts']}={row['v']}"
        f"{'†' if row[IS_DELETED] else ''}"
        for row in rows
    )
