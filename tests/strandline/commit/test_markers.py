"""Markers: made before data files, read in both forms, deleted with their folder."""

from __future__ import annotations

import pytest

from strandline.commit.markers import (
    delete_markers,
    delete_unreported,
    instants_with_markers,
    marked_files,
)
from strandline.commit.write_markers import CREATE, MERGE, create_marker, marker_name
from timeline.errors import PathNotFoundError
from timeline.storage.local import LocalStorage

T = "20250101000000000"


@pytest.fixture
def storage(tmp_path):
    return LocalStorage(str(tmp_path))


def test_markers_name_the_files_of_an_instant(storage, tmp_path):
    create_marker(storage, T, marker_name("a/b/f2.parquet", MERGE))
    create_marker(storage, T, marker_name("f1.parquet", CREATE))
    create_marker(storage, T, marker_name("f1.parquet", CREATE))
    assert (tmp_path / ".hoodie/.temp" / T / "a/b/f2.parquet.marker.MERGE").stat().st_size == 0
    assert marked_files(storage, T) == ("a/b/f2.parquet", "f1.parquet")
    assert instants_with_markers(storage) == (T,)
    delete_markers(storage, T)
    assert instants_with_markers(storage) == ()
    delete_markers(storage, T)


def test_a_missing_folder_differs_from_an_empty_one(storage):
    assert marked_files(storage, T) is None
    storage.make_dir(f".hoodie/.temp/{T}")
    assert marked_files(storage, T) == ()


def test_markers_that_a_timeline_server_kept(storage):
    folder = f".hoodie/.temp/{T}"
    storage.create(f"{folder}/MARKERS.type", b"TIMELINE_SERVER_BASED")
    storage.create(f"{folder}/MARKERS0", b"p/f1.parquet.marker.CREATE\np/f2.parquet.marker.MERGE\n")
    storage.create(f"{folder}/MARKERS19", b"q/f3.parquet.marker.CREATE\n")
    assert marked_files(storage, T) == ("p/f1.parquet", "p/f2.parquet", "q/f3.parquet")


def test_hadoops_checksums_are_no_markers(storage):
    create_marker(storage, T, marker_name("p/f.parquet", CREATE))
    storage.create(f".hoodie/.temp/{T}/p/.f.parquet.marker.CREATE.crc", b"crc")
    assert marked_files(storage, T) == ("p/f.parquet",)


def test_a_folder_that_is_no_instant_is_left_alone(storage):
    storage.make_dir(".hoodie/.temp/scratch")
    assert instants_with_markers(storage) == ()


def test_unreported_files_are_deleted(storage, tmp_path):
    for name in ("kept.parquet", "stray.parquet"):
        create_marker(storage, T, marker_name(f"p/{name}", CREATE))
        storage.create(f"p/{name}", b"x")
    create_marker(storage, T, marker_name("p/never-made.parquet", CREATE))
    strays = delete_unreported(storage, T, {"p/kept.parquet"})
    assert strays == ("p/never-made.parquet", "p/stray.parquet")
    assert [path.name for path in (tmp_path / "p").iterdir()] == ["kept.parquet"]


def test_both_kinds_are_read_together(storage):
    folder = f".hoodie/.temp/{T}"
    create_marker(storage, T, marker_name("p/direct.parquet", CREATE))
    create_marker(storage, T, marker_name("a\nb/line.feed.parquet", CREATE))
    create_marker(storage, T, marker_name("MARKERSx_0-0-0_1.parquet", CREATE))
    storage.create(f"{folder}/MARKERS.type", b"TIMELINE_SERVER_BASED")
    storage.create(f"{folder}/MARKERS0", b"p/served.parquet.marker.CREATE\n")
    storage.create(f"{folder}/MARKERS987654321", b"p/by-a-task.parquet.marker.MERGE\n")
    assert marked_files(storage, T) == (
        "MARKERSx_0-0-0_1.parquet",
        "a\nb/line.feed.parquet",
        "p/by-a-task.parquet",
        "p/direct.parquet",
        "p/served.parquet",
    )


def test_lines_that_a_restart_of_hudis_server_joined(storage):
    """It rewrites a file with commas for line feeds, and the next marker right behind."""
    names = [f"p,/f{number}.parquet" for number in range(4)]
    lines = [f"{name}.marker.CREATE" for name in names]
    joined = f"{','.join(lines[:3])}{lines[3]}\n"
    storage.create(f".hoodie/.temp/{T}/MARKERS0", joined.encode())
    assert marked_files(storage, T) == tuple(names)


def test_a_line_that_was_cut_is_no_marker(storage):
    storage.create(f".hoodie/.temp/{T}/MARKERS0", b"p/f1.parquet.marker.MERGE\np/f2.parquet.mark")
    assert marked_files(storage, T) == ("p/f1.parquet",)


def test_a_folder_that_another_writer_is_deleting_is_read_as_far_as_it_is(storage, tmp_path):
    storage.create(f".hoodie/.temp/{T}/MARKERS0", b"p/f1.parquet.marker.MERGE\n")
    storage.create(f".hoodie/.temp/{T}/MARKERS1", b"p/f2.parquet.marker.MERGE\n")

    class Vanishing(LocalStorage):
        def read(self, path, *limits):
            if path.endswith("MARKERS0"):
                raise PathNotFoundError(path)
            return super().read(path, *limits)

    assert marked_files(Vanishing(str(tmp_path)), T) == ("p/f2.parquet",)
