"""A plain model of the table that two writers write in rounds, and the orders that they get."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from strandline.commit.others_heartbeats import instants_with_heartbeat
from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from tests.kit.tables import reader
from tests.strandline.write.concurrent.round_writer import Order
from tests.strandline.write.tables import OPTIONS, row, table
from timeline.storage.local import LocalStorage

SHARED = "shared"
NAMES = ("one", "two")


@dataclass
class Model:
    """What the table must hold.

    Attributes:
        log: Instant → operation and rows of each commit.
        is_pinned: Whether every write looks its rows up in the timeline of its request. Hudi reads
            the timeline later, so a commit may have completed in between that it builds on.
    """

    log: dict[str, Order] = field(default_factory=dict)
    is_pinned: bool = True

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows by key.

        Commits that changed the same file group didn't overlap, so instants give their order.
        """
        found: dict[str, dict[str, Any]] = {}
        for _, order in sorted(self.log.items()):
            for each in order.rows:
                stored = found.get(each["id"])
                if order.operation == "delete":
                    found.pop(each["id"], None)
                elif stored is None or each["ts"] >= stored["ts"]:
                    found[each["id"]] = each
        return [found[key] for key in sorted(found)]

    def own_keys(self, name: str) -> list[str]:
        return [each["id"] for each in self.rows() if each["region"] == name]

    def check(self, base: Path) -> None:
        """Compare the table's commits and rows with the log.

        Hudi archives the oldest commits, but may leave rollbacks and cleans that are older.
        """
        held = reader.committed(base)
        expected = {each for each in self.log if each >= min(held)}
        if held != expected:
            names = "\n".join(reader.timeline_names(base))
            raise AssertionError(
                f"missing {expected - held}, unknown {held - expected} of\n{names}"
            )
        assert reader.rows(base) == self.rows()
        if self.is_pinned:
            check_lifetimes(base)

    def check_end(self, base: Path, killed: int = 0) -> None:
        """Compare a table that nobody writes any more.

        A writer that was killed before its instant existed, or after it had completed, leaves its
        heartbeat, which says nothing about any other instant.
        """
        self.check(base)
        left = reader.leftovers(base, self.log)
        assert left == [], left
        assert len(instants_with_heartbeat(LocalStorage(str(base)))) <= killed
        assert not (base / ".hoodie/lock").exists()


def check_lifetimes(base: Path) -> None:
    """Check that no two commits of one file group overlapped, where names tell (version ≥ 8)."""
    completed = {}
    for name in reader.timeline_names(base):
        requested, _, rest = name.partition("_")
        if rest.endswith(".commit"):
            completed[requested] = rest.partition(".")[0]
    groups: dict[str, list[str]] = {}
    for _, _, file_id, instant in reader.base_files(base):
        if instant in completed:
            groups.setdefault(file_id, []).append(instant)
    for instants in groups.values():
        for earlier, later in pairwise(sorted(instants)):
            assert completed[earlier] < later, "commits of one file group overlapped"


class Orders:
    """Makes orders at random; ``kind`` says what the two writers of a round share."""

    KINDS = ("row", "file", "nothing")

    def __init__(self, model: Model, seed: int) -> None:
        self.model = model
        self.random = random.Random(seed)
        self._attempts = 0

    def first(self) -> Order:
        """Return the first write: a row in every file group that the others write to."""
        return Order("upsert", (row(SHARED, SHARED), *(row(f"{n}-0", n) for n in NAMES)))

    def one(self, name: str, kind: str, *, meets: bool = False) -> Order:
        """Return an order of a writer whose rows no other writer inserts."""
        self._attempts += 1
        key = f"{name}-{self._attempts}"
        own = row(key, name)
        if kind == "row":
            version = self.random.randint(1, 3)
            return Order("upsert", (own, row(SHARED, SHARED, version, key)), meets)
        if kind == "file":
            return Order("insert", (own, row(f"{key}-beside", SHARED)), meets)
        stored = self.model.own_keys(name)
        operation = self.random.choice(("upsert", "insert", "delete"))
        if operation == "delete" and len(stored) > 1:
            return Order("delete", (row(self.random.choice(stored), name),), meets)
        updated = [row(k, name, 9, key) for k in stored[:1] if operation == "upsert"]
        return Order("insert" if not updated else "upsert", (own, *updated), meets)


def create(base: str, orders: Orders, options: Mapping[str, str], **storage: Any) -> None:
    """Write the table's first commit."""
    order = orders.first()
    with WriteClient(LocalEngine(), base, {**OPTIONS, **options}, **storage) as c:
        orders.model.log[c.upsert(table(*order.rows)).instant] = order
