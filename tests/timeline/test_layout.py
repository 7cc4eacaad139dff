from itertools import product

import pytest

from timeline.instant import ACTIONS, Instant, State
from timeline.layout import TimelineLayout
from timeline.table.config import TableConfig

T, C = "20261121080616345", "20261121080617000"
MTIME = 1_795_248_377_500
MTIME_TEXT = "20261121080617500"
V1, V2 = TimelineLayout(1, "UTC", ".hoodie"), TimelineLayout(2, "UTC", ".hoodie/timeline")


PENDING = [
    (f"{T}.commit.requested", "commit", State.REQUESTED),
    (f"{T}.inflight", "commit", State.INFLIGHT),
    (f"{T}.deltacommit.requested", "deltacommit", State.REQUESTED),
    (f"{T}.deltacommit.inflight", "deltacommit", State.INFLIGHT),
    (f"{T}.compaction.requested", "compaction", State.REQUESTED),
    (f"{T}.compaction.inflight", "compaction", State.INFLIGHT),
    (f"{T}.logcompaction.requested", "logcompaction", State.REQUESTED),
    (f"{T}.replacecommit.inflight", "replacecommit", State.INFLIGHT),
    (f"{T}.clean.requested", "clean", State.REQUESTED),
    (f"{T}.rollback.inflight", "rollback", State.INFLIGHT),
    (f"{T}.restore.requested", "restore", State.REQUESTED),
    (f"{T}.savepoint.inflight", "savepoint", State.INFLIGHT),
    (f"{T}.indexing.requested", "indexing", State.REQUESTED),
    (f"{T}.schemacommit.inflight", "schemacommit", State.INFLIGHT),
]


def test_pending_names(subtests: pytest.Subtests) -> None:
    for layout, (name, action, state) in product([V1, V2], PENDING):
        with subtests.test(name=name, folder=layout.folder):
            instant = layout.parse(name, MTIME)
            assert instant == Instant(T, action, state)
            assert instant.completion_time == (MTIME_TEXT if layout is V1 else None)
            assert layout.file_name(instant) == name


def test_completed_names(subtests: pytest.Subtests) -> None:
    for action in [
        "commit",
        "deltacommit",
        "replacecommit",
        "clean",
        "rollback",
        "restore",
        "savepoint",
    ]:
        with subtests.test(action=action):
            old = V1.parse(f"{T}.{action}", MTIME)
            new = V2.parse(f"{T}_{C}.{action}", MTIME)
            assert old == new == Instant(T, action, State.COMPLETED)
            assert (old.completion_time, old.legacy) == (MTIME_TEXT, False)
            assert (new.completion_time, new.legacy) == (C, False)


def test_a_completed_name_of_layout_1_in_layout_2_is_legacy() -> None:
    instant = V2.parse(f"{T}.commit", MTIME)
    assert instant is not None
    assert instant.legacy
    assert instant.completion_time == MTIME_TEXT
    assert V2.file_name(instant) == f"{T}.commit"


NO_INSTANTS = [
    "hoodie.properties",
    "metadata",
    ".aux",
    f".{T}.commit.crc",
    f"{T}",
    f"{T}.",
    f"{T}.unknown",
    f"{T}.commit.inflight",
    f"{T}.savepoint.requested",
    f"{T}.compaction",
    f"{T}.logcompaction",
    f"{T}.commit.requested.3f2b8c1e-0000-4000-8000-000000000000",
    f"{T}.commit.3f2b8c1e-0000-4000-8000-000000000000",
    f"{T}_{C}.commit.requested",
    f"{T}_{C}_{C}.commit",
    f"x{T}.commit",
    f"{T}.commit\n",
    "٢٠٢٦.commit",
]


def test_other_files_are_no_instants(subtests: pytest.Subtests) -> None:
    for layout, name in product([V1, V2], NO_INSTANTS):
        with subtests.test(name=name, folder=layout.folder):
            assert layout.parse(name, MTIME) is None


def test_each_layout_has_names_that_the_other_has_not() -> None:
    assert V1.parse(f"{T}.clustering.requested", MTIME) is None
    assert V2.parse(f"{T}.clustering.requested", MTIME) is not None
    assert V1.parse(f"{T}_{C}.commit", MTIME) is None


def test_what_a_completed_action_is_named(subtests: pytest.Subtests) -> None:
    for action, completed in [
        ("compaction", "commit"),
        ("logcompaction", "deltacommit"),
        ("clustering", "replacecommit"),
        ("clean", "clean"),
    ]:
        with subtests.test(action=action):
            instant = Instant(T, action, State.COMPLETED, C)
            assert V1.file_name(instant) == f"{T}.{completed}"
            assert V2.file_name(instant) == f"{T}_{C}.{completed}"


def test_names_that_do_not_exist() -> None:
    with pytest.raises(ValueError, match="completion time"):
        V2.file_name(Instant(T, "commit", State.COMPLETED))
    for layout in (V1, V2):
        with pytest.raises(ValueError, match="savepoint"):
            layout.file_name(Instant(T, "savepoint", State.REQUESTED))


WRITTEN = [
    (action, state)
    for action in sorted(ACTIONS - {"clustering"})
    for state in State
    if (action, state) != ("savepoint", State.REQUESTED)
]


def test_a_written_name_reads_back(subtests: pytest.Subtests) -> None:
    for layout, (action, state) in product([V1, V2], WRITTEN):
        with subtests.test(action=action, state=state, folder=layout.folder):
            name = layout.file_name(Instant(T, action, state, C))
            found = layout.parse(name, MTIME)
            assert found is not None
            assert found.state is state
            assert layout.file_name(found) == name


def test_folders(subtests: pytest.Subtests) -> None:
    for version, folder, archive in [
        (6, ".hoodie", ".hoodie/archived"),
        (8, ".hoodie/timeline", ".hoodie/timeline/history"),
        (9, ".hoodie/timeline", ".hoodie/timeline/history"),
    ]:
        with subtests.test(version=version):
            config = TableConfig.create(name="t", version=version)
            assert (TimelineLayout.of(config).folder, config.archive_folder) == (folder, archive)
