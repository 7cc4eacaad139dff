"""Files, directories and tables that are missing, and commits that no writer writes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from fsview.local_view import LocalView
from fsview.table_view import TableView
from fsview.wire.json_form import PathForms
from fsview.wire.routes import ROUTES
from tests.fsview.faults.missing_files import a_table, names, truth
from tests.kit.storage.troubled_storage import answers, changed, expected, held_answers
from tests.kit.tables import golden
from tests.kit.tables.small_table import SmallTable
from timeline.errors import (
    CorruptMetadataError,
    StorageUnavailableError,
    TableNotFoundError,
    ViewBehindError,
)
from timeline.storage.local import LocalStorage
from timeline.table.config import CONFIG_PATH


@contextmanager
def perhaps_refused(name: str) -> Iterator[None]:
    """Let pass an error that names a file."""
    try:
        yield
    except (CorruptMetadataError, StorageUnavailableError, TableNotFoundError) as error:
        if name not in str(error):
            raise


def without(table: SmallTable, gone: Callable[[str], bool]) -> dict[str, tuple[bytes, int]]:
    """Take files away; return them."""
    files = table.storage.files
    return {path: files.pop(path) for path in list(files) if gone(path)}


@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize(
    "gone",
    [lambda path: path.startswith("a/"), lambda path: path.startswith("a/f1")],
    ids=["partition", "files"],
)
def test_files_deleted_by_hand_stay_in_a_loaded_view(
    version: int, gone: Callable[[str], bool]
) -> None:
    table, view, metrics = a_table(version)
    before = names(LocalView.newest(view), "a")
    assert without(table, gone)
    assert names(LocalView.synced(view), "a") == before
    table.write(("b", "f2-0"))
    assert names(LocalView.synced(view), "a") == before
    assert names(LocalView.newest(view), "b") == truth(table, "b")
    table.write(("a", "f1-0"))
    assert names(LocalView.synced(view), "a") == truth(table, "a")
    assert names(LocalView.newest(TableView(table.storage)), "a") == truth(table, "a")
    assert metrics.get("reloads") == 0


@pytest.mark.parametrize("version", [6, 9])
def test_files_deleted_by_hand_are_missing_in_a_new_view(version: int) -> None:
    table, _, _ = a_table(version)
    without(table, lambda path: path.startswith("a/"))
    assert names(LocalView.newest(TableView(table.storage)), "b") == truth(table, "b")
    shown = names(LocalView.newest(TableView(table.storage)), "a")
    assert shown in ([], truth(table, "a"))  # the latter where commits say it without a listing


# The table.


@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("below", ["", ".hoodie/"])
def test_a_table_that_is_away_is_answered_and_found_again(version: int, below: str) -> None:
    """An unmounted directory lists as empty; it must not be taken for an empty table."""
    table, view, metrics = a_table(version)
    before = names(LocalView.newest(view), "a")
    away = without(table, lambda path: path.startswith(below))
    for _ in range(2):
        with pytest.raises(TableNotFoundError, match=r"hoodie\.properties"):
            view.sync()
        assert names(LocalView.newest(view), "a") == before
    table.storage.files.update(away)
    table.write(("a", "f1-0"))
    assert names(LocalView.synced(view), "a") == truth(table, "a")
    assert metrics.get("reloads") == 0


@pytest.mark.parametrize("version", [6, 9])
def test_a_timeline_that_is_away_for_a_while_is_found_again(version: int) -> None:
    """With its properties left it is a table without instants, as for a rebuilt view."""
    table, view, metrics = a_table(version)
    folder = table.meta.layout.folder
    away = without(table, lambda p: p.startswith(f"{folder}/2"))
    assert names(LocalView.synced(view), "a") == []
    assert metrics.get("reloads", cause="timeline-emptied") == 1
    table.storage.files.update(away)
    assert names(LocalView.synced(view), "a") == truth(table, "a")


# Commits that say what no writer says.


LONG = "9" * 5000
ODD_FILES: dict[str, dict[str, object]] = {
    "a negative size": {"a/f9_0-1-2_T.parquet": -5},
    "a size of 64 bits": {"a/f9_0-1-2_T.parquet": 2**63 - 1},
    "a long name": {f"a/f9_0-1-2_T{'x' * 70_000}.parquet": 5},
    "a long file id": {f"a/{'y' * 70_000}_0-1-2_T.parquet": 5},
    "a long log version": {f"a/.f9_T.log.{LONG}_0-1-2": 5},
    "a large log version": {"a/.f9_T.log.9999999999_0-1-2": 5},
    "a long write token": {f"a/f9_{LONG}-1-2_T.parquet": 5, f"a/.f9_T.log.1_{LONG}-1-2": 5},
    "a long instant": {f"a/f9_0-1-2_{LONG}.parquet": 5},
    "a path that leads out": {"../../etc/f9_0-1-2_T.parquet": 5},
    "an absolute path": {"/etc/f9_0-1-2_T.parquet": 5},
    "a NUL": {"a\0b/f9_0-1-2_T.parquet": 5, "a/f\0_0-1-2_T.parquet": 5},
    "beyond ASCII": {"ä☃𝄞/f☃_0-1-2_T.parquet": 5},
    "names of little": {"a/": 5, "a/_": 5, "a/__.parquet": 5, "a/.log": 5, "a/.x_.log.1_0-0-0": 5},
    "another partition": {"b/f9_0-1-2_T.parquet": 5},
}


def test_a_commit_of_odd_files_is_followed_or_refused(subtests: pytest.Subtests) -> None:
    """Whatever it is, no request ends in an error that isn't Strandline's."""
    for odd in ODD_FILES:
        with subtests.test(odd=odd):
            table, view, _ = a_table(6)
            write = table.begin([("a", "f1-0")])
            table.complete(write)
            time = write.instant.requested_time
            path = completed_path(table)
            stats: dict[str, list[object]] = {}
            for name, size in ODD_FILES[odd].items():
                stat = {
                    "fileId": "f9",
                    "path": name.replace("_T", f"_{time}"),
                    "fileSizeInBytes": size,
                }
                stats.setdefault(name.rpartition("/")[0], []).append(stat)
            said = json.dumps({"partitionToWriteStats": stats}).encode()
            table.storage.files[path] = (said, table.storage.files[path][1])
            with perhaps_refused(path):
                view.sync()
                LocalView.newest(view).load_all_partitions()
            arguments = {"partition": "a", "fileid": "f9", "includependingcompaction": "true"}
            for route in ROUTES:
                if route.method == "GET":
                    params = {param.name: arguments.get(param.name, time) for param in route.params}
                    with suppress(ViewBehindError, CorruptMetadataError):
                        assert route.encode(
                            route.answer(LocalView.newest(view), route.arguments(params)),
                            PathForms.of("/t"),
                        )


def completed_path(table: SmallTable) -> str:
    return table.meta.path_of(table.meta.active_timeline().completed()[-1])


# A disk.


def disk(tmp_path: Path, step: int) -> Path:
    return golden.build("cow_basic_v9", step, tmp_path / "t")


def as_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_a_link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent / "nothing")


def as_a_link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("damage", [as_a_directory, as_a_link_to_nothing, as_a_link_to_itself, cut])
@pytest.mark.parametrize("which", ["commit", "properties"])
def test_a_file_that_is_damaged_on_disk_changes_no_answer(
    tmp_path: Path, damage: Callable[[Path], None], which: str
) -> None:
    base = disk(tmp_path, 2)
    view = TableView(LocalStorage(str(base)))
    LocalView.newest(view).load_all_partitions()
    before = held_answers(LocalView.newest(view), "cow_basic_v9")
    disk(tmp_path, 3)
    path = base / CONFIG_PATH
    if which == "commit":
        path = max((base / ".hoodie/timeline").glob("*.commit"))
    good = path.read_bytes()
    damage(path)
    # What is no file is no instant either: then nothing has happened yet, and nothing is refused.
    with perhaps_refused(path.name):
        view.sync()
    assert not changed(held_answers(LocalView.newest(view), "cow_basic_v9"), before)
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink()
    path.write_bytes(good)
    disk(tmp_path, 3)
    view.sync()
    assert not changed(answers(LocalView.newest(view), "cow_basic_v9"), expected("cow_basic_v9", 3))
