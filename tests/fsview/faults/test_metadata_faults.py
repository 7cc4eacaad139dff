"""Metadata files of every action that are cut, foreign, empty, unreadable or missing.

Each golden table is followed step by step. Every file that a sync or a load reads is damaged in
every way. The view then goes on answering at its last snapshot and the error names the file; or,
where Hudi takes a file for an empty one, the answers are those of a rebuilt view. Once the file is
repaired, the next request catches up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from fsview.local_view import LocalView
from fsview.table_view import TableView
from tests.kit.storage.troubled_storage import (
    DIRECTORY,
    GONE,
    Damage,
    TroubledStorage,
    answers,
    changed,
    cuts,
    expected,
    foreign,
    held_answers,
    loaded,
    steps_of,
)
from tests.kit.tables import golden
from tests.kit.tables.products import ALL, TELLING, Product
from timeline.errors import (
    CorruptMetadataError,
    InstantNotFoundError,
    StorageUnavailableError,
    StrandlineError,
    TableNotFoundError,
    UnsupportedTableError,
)
from timeline.table.config import CONFIG_PATH

FAULTS = Product({"read by a sync": ALL, "read at first": ALL}, least=70)
HISTORY = ".hoodie/timeline/history"
NAMED = (
    CorruptMetadataError,
    InstantNotFoundError,
    StorageUnavailableError,
    TableNotFoundError,
    UnsupportedTableError,
)


def action_of(path: str) -> str:
    """Return the kind of a metadata file: its name without times."""
    name = path.rpartition("/")[2]
    return name if path == CONFIG_PATH else name.lstrip("0123456789_.")


def damages(storage: TroubledStorage, path: str, others: list[bytes]) -> Iterator[Damage]:
    """Yield all that may have become of a file; ``others`` are files of the same kind."""
    data = storage.now.read(path)
    yield from cuts(data)
    yield from foreign(path, data)
    for other in others:
        if other != data and tells_whose(path, other):
            yield Damage("another instant's", other)


def tells_whose(path: str, data: bytes) -> bool:
    """Whether a file's content names the instant it belongs to.

    Neither does a plan, nor a delta commit that only appended to logs.
    """
    action = action_of(path)
    if action in ("clean", "rollback", "restore"):
        return True
    return action in ("commit", "replacecommit") and b".parquet" in data


def read_by(storage: TroubledStorage, start: int) -> list[str]:
    """Return the files read since the start-th call, in order, each once."""
    return list(dict.fromkeys(path for kind, path in storage.log[start:] if kind == "read"))


def misnamed(error: StrandlineError, path: str) -> str | None:
    """Return what is wrong with an error, ``None`` if it names the file (or the archive's)."""
    name = HISTORY if path.startswith(HISTORY) else path.rpartition("/")[2]
    named = isinstance(error, NAMED) and (name in str(error))
    return None if named else repr(error)


def may_be_taken(path: str, damage: Damage) -> bool:
    """Whether a sync may go on over this, with right answers.

    Hudi reads an empty file as an empty value, and a listing then shows the truth; a clean's plan
    may be archived with it, and a compaction that completed without one has its table loaded anew.
    The properties are read again only where they look changed.
    """
    action = action_of(path)
    if path == CONFIG_PATH:
        return True
    if damage is GONE:
        return action in ("clean.requested", "compaction.requested")
    empty = damage.error is None and not damage.data
    return empty and action != "replacecommit"


def is_no_clustering(path: str, damage: Damage) -> bool:
    """Whether Hudi, too, takes this for a replacecommit that doesn't cluster."""
    if damage is GONE:  # rolled back since the timeline was listed
        return action_of(path) in ("replacecommit.requested", "clustering.requested")
    empty = damage.error is None and not damage.data
    return empty and action_of(path) == "replacecommit.requested"


@pytest.mark.property
@pytest.mark.parametrize("scenario", FAULTS.scenarios("read by a sync"))
def test_what_a_sync_reads_may_be_damaged(scenario: str) -> None:
    """A view meets every damage in turn; its snapshots must not change."""
    first, *later = steps_of(scenario)
    storage, scout_storage = TroubledStorage(scenario, first), TroubledStorage(scenario, first)
    table, scout = loaded(storage, scenario), loaded(scout_storage, scenario)
    met: Counter[str] = Counter()
    wrong: list[str] = []
    seen: dict[str, list[bytes]] = {}
    before = first
    for step in later:
        start = len(scout_storage.log)
        scout_storage.step(step)
        scout.sync()
        storage.step(step)
        held = table.newest()
        for path in {CONFIG_PATH: 0, **dict.fromkeys(read_by(scout_storage, start))}:
            others = seen.setdefault(action_of(path), [])
            for damage in damages(storage, path, others[-2:]):
                met[action_of(path)] += 1
                told = f"{step} {path}, {damage.name}"
                with storage.damaged(path, damage):
                    try:
                        table.sync()
                    except StrandlineError as error:
                        wrong += [f"{told}: {said}" for said in (misnamed(error, path),) if said]
                        assert table.newest() is held
                    else:
                        said = answers(LocalView.newest(table), scenario)
                        differs = changed(said, expected(scenario, step))
                        if is_no_clustering(path, damage):
                            assert set(differs) <= {"clusterings"}, told
                        elif differs:
                            wrong.append(f"{told}: {differs}")
                        elif not may_be_taken(path, damage):
                            wrong.append(f"{told}: taken for good")
                if table.newest() is not held:
                    storage.step(before)
                    table = loaded(storage, scenario)
                    held = table.newest()
                    storage.step(step)
            others.append(storage.now.read(path))
        assert not changed(
            held_answers(LocalView.newest(table), scenario), expected(scenario, before)
        )
        table.sync()
        assert answers(LocalView.newest(table), scenario) == expected(scenario, step)
        before = step
    assert not wrong, f"{len(wrong)} of {met}: {wrong[:5]}"
    assert sum(met.values()) > 10 * len(later), met


@pytest.mark.property
@pytest.mark.parametrize("scenario", FAULTS.scenarios("read at first"))
def test_what_a_table_is_read_from_may_be_damaged(scenario: str) -> None:
    """The properties, plans that pend, replacecommits, the archive: when a view is built."""
    wrong: list[str] = []
    met = 0
    steps = golden.steps(scenario)
    for step in steps if scenario in TELLING else (*steps[:-1:4], steps[-1]):
        storage = TroubledStorage(scenario, step)
        right = answers(LocalView.newest(TableView(storage)), scenario)
        for path in read_by(storage, 0):
            for damage in damages(storage, path, []):
                met += 1
                table = TableView(storage)
                told = f"{step} {path}, {damage.name}"
                with storage.damaged(path, damage):
                    try:
                        said = answers(LocalView.newest(table), scenario)
                    except StrandlineError as error:
                        wrong += [f"{told}: {said}" for said in (misnamed(error, path),) if said]
                    else:
                        if said != right and not may_differ(path, damage):
                            wrong.append(f"{told}: {changed(said, right)}")
                        continue
                if answers(LocalView.newest(table), scenario) != right:
                    wrong.append(f"{told}: not right again")
    assert not wrong, f"{len(wrong)} of {met}: {wrong[:5]}"
    assert met > 10


def may_differ(path: str, damage: Damage) -> bool:
    """Whether a view may be built that knows less.

    A clustering without a plan is none, to Hudi; a replacecommit or plan that is gone was archived
    or rolled back a moment ago; a removal's plan that is empty has removed nothing.
    """
    if damage is GONE:
        return action_of(path).startswith(("replacecommit", "clustering", "clean", "rollback"))
    empty = damage.error is None and not damage.data
    return empty and action_of(path) in ("replacecommit.requested", "clean.requested")


@pytest.mark.parametrize("damage", [GONE, DIRECTORY, Damage("cut to 0")])
def test_properties_that_are_gone_leave_the_view_as_it_was(damage: Damage) -> None:
    storage = TroubledStorage("cow_basic_v9", 2)
    table = loaded(storage, "cow_basic_v9")
    storage.step(3)
    with storage.damaged(CONFIG_PATH, damage):
        with pytest.raises(StrandlineError, match=r"hoodie\.properties"):
            table.sync()
        held = held_answers(LocalView.newest(table), "cow_basic_v9")
        assert not changed(held, expected("cow_basic_v9", 2))
        with pytest.raises(StrandlineError, match=r"hoodie\.properties"):
            TableView(storage).newest()
    table.sync()
    assert answers(LocalView.newest(table), "cow_basic_v9") == expected("cow_basic_v9", 3)
