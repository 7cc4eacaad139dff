"""Markers: made before data files, read in both forms, deleted with their folder."""

from __future__ import annotations

import pytest

from executor_proxy.view_location import ViewLocation
from strandline.commit.markers import (
    APPEND,
    CREATE,
    MERGE,
    DirectMarkers,
    ServiceMarkers,
    create_marker,
    delete_markers,
    delete_unreported,
    execution_token,
    instants_with_markers,
    marked_files,
    marker_name,
    note_unanswered,
)
from strandline.server.marker.file import announced
from timeline.encoding.log_block import AVRO_DATA, INSTANT_TIME, block_bytes
from timeline.errors import PathNotFoundError, StorageUnavailableError
from timeline.storage.local import LocalStorage

T = "20250101000000000"
BEFORE = "20241231000000000"


def own(path):
    """Return the path of the instant's base file of a file id."""
    return f"{path}_0-1-2_{T}.parquet"


def lines(*paths):
    """Return the content of a ``MARKERS<n>``."""
    return "".join(marker_name(own(path), CREATE) + "\n" for path in paths).encode()


@pytest.fixture
def storage(tmp_path):
    return LocalStorage(str(tmp_path))


def test_markers_name_the_files_of_an_instant(storage, tmp_path):
    create_marker(storage, T, marker_name(own("a/b/f2"), MERGE))
    create_marker(storage, T, marker_name(own("f1"), CREATE))
    create_marker(storage, T, marker_name(own("f1"), CREATE))
    marker = tmp_path / ".hoodie/.temp" / T / marker_name(own("a/b/f2"), MERGE)
    assert marker.stat().st_size == 0
    assert marked_files(storage, T) == (own("a/b/f2"), own("f1"))
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
    storage.create(f"{folder}/MARKERS0", lines("p/f1", "p/f2"))
    storage.create(f"{folder}/MARKERS19", lines("q/f3"))
    assert marked_files(storage, T) == (own("p/f1"), own("p/f2"), own("q/f3"))


def test_hadoops_checksums_are_no_markers(storage):
    create_marker(storage, T, marker_name(own("p/f"), CREATE))
    storage.create(f".hoodie/.temp/{T}/p/.f_0-1-2_{T}.parquet.marker.CREATE.crc", b"crc")
    assert marked_files(storage, T) == (own("p/f"),)


def test_a_folder_that_is_no_instant_is_left_alone(storage):
    storage.make_dir(".hoodie/.temp/scratch")
    assert instants_with_markers(storage) == ()


def test_unreported_files_are_deleted(storage, tmp_path):
    for path in (own("p/kept"), own("p/stray")):
        create_marker(storage, T, marker_name(path, CREATE))
        storage.create(path, b"x")
    create_marker(storage, T, marker_name(own("p/never-made"), CREATE))
    strays = delete_unreported(storage, T, {own("p/kept")})
    assert strays == (own("p/never-made"), own("p/stray"))
    assert [f"p/{path.name}" for path in (tmp_path / "p").iterdir()] == [own("p/kept")]


KINDS = {
    "direct": DirectMarkers(T),
    "served": ServiceMarkers(T, ViewLocation("/t", (), None, {}, "", "")),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_noted", [True, False])
def test_markers_stay_while_a_file_may_appear(storage, kind, is_noted):
    """The sweeps of later writes find it by them."""
    late, kept = marker_name(own("p/late"), MERGE), marker_name(own("p/kept"), MERGE)
    for name in (late, kept):
        create_marker(storage, T, name)
    if is_noted:
        note_unanswered(storage, T, late)
    storage.create(own("p/late"), b"x")
    KINDS[kind].finish(storage, {own("p/kept")})
    assert storage.stat(own("p/late")) is None
    assert announced(storage, T) == ({late, kept} if is_noted else set())


def test_a_note_beside_the_lines_of_a_service(storage):
    storage.create(f".hoodie/.temp/{T}/MARKERS.type", b"TIMELINE_SERVER_BASED")
    storage.create(f".hoodie/.temp/{T}/MARKERS0", lines("p/late", "p/kept"))
    note_unanswered(storage, T, marker_name(own("p/late"), CREATE))
    KINDS["served"].finish(storage, {own("p/kept")})
    assert marked_files(storage, T) == (own("p/kept"), own("p/late"))


def test_a_note_that_storage_does_not_take_is_logged(tmp_path, caplog):
    class Full(LocalStorage):
        def replace(self, path, data):
            raise StorageUnavailableError("no space left")

    note_unanswered(Full(str(tmp_path)), T, marker_name(own("p/late"), CREATE))
    assert "p/late_0-1-2" in caplog.text


def test_both_kinds_are_read_together(storage):
    folder = f".hoodie/.temp/{T}"
    create_marker(storage, T, marker_name(own("p/direct"), CREATE))
    create_marker(storage, T, marker_name(own("a\nb/line.feed"), CREATE))
    create_marker(storage, T, marker_name(own("MARKERSx_0-0-0_1"), CREATE))
    storage.create(f"{folder}/MARKERS.type", b"TIMELINE_SERVER_BASED")
    storage.create(f"{folder}/MARKERS0", lines("p/served"))
    storage.create(f"{folder}/MARKERS987654321", lines("p/by-a-task"))
    assert marked_files(storage, T) == (
        own("MARKERSx_0-0-0_1"),
        own("a\nb/line.feed"),
        own("p/by-a-task"),
        own("p/direct"),
        own("p/served"),
    )


def test_lines_that_a_restart_of_hudis_server_joined(storage):
    """It rewrites a file with commas for line feeds, and the next marker right behind."""
    names = [own(f"p,/f{number}") for number in range(4)]
    markers = [marker_name(name, CREATE) for name in names]
    joined = f"{','.join(markers[:3])}{markers[3]}\n"
    storage.create(f".hoodie/.temp/{T}/MARKERS0", joined.encode())
    assert marked_files(storage, T) == tuple(names)


def test_a_line_that_was_cut_is_no_marker(storage):
    storage.create(f".hoodie/.temp/{T}/MARKERS0", lines("p/f1", "p/f2")[:-8])
    assert marked_files(storage, T) == (own("p/f1"),)


def test_a_folder_that_another_writer_is_deleting_is_read_as_far_as_it_is(storage, tmp_path):
    storage.create(f".hoodie/.temp/{T}/MARKERS0", lines("p/f1"))
    storage.create(f".hoodie/.temp/{T}/MARKERS1", lines("p/f2"))

    class Vanishing(LocalStorage):
        def read(self, path, *limits):
            if path.endswith("MARKERS0"):
                raise PathNotFoundError(path)
            return super().read(path, *limits)

    assert marked_files(Vanishing(str(tmp_path)), T) == (own("p/f2"),)


FOREIGN = [
    f"eu/f_0-1-2_{BEFORE}.parquet.marker.CREATE",
    f"eu/f_0-1-2_{BEFORE}.parquet.marker.APPEND",
    f"eu/.f_{BEFORE}.log.1_0-1-2.marker.CREATE",
    f".hoodie/.f_{BEFORE}.log.1_0-1-2.marker.APPEND",
    "eu/precious.parquet.marker.CREATE",
    "eu.marker.CREATE",
    ".hoodie/hoodie.properties.marker.MERGE",
    f".hoodie/f_0-1-2_{T}.parquet.marker.CREATE",
    f"{'a/' * 4000}f_0-1-2_{T}.parquet.marker.CREATE",
    f"{'é' * 2100}/f_0-1-2_{T}.parquet.marker.CREATE",
    f"/tmp/f_0-1-2_{T}.parquet.marker.CREATE",
    f"eu//f_0-1-2_{T}.parquet.marker.CREATE",
    f"eu/../../f_0-1-2_{T}.parquet.marker.CREATE",
    f"./f_0-1-2_{T}.parquet.marker.CREATE",
    f"e\0u/f_0-1-2_{T}.parquet.marker.CREATE",
]


def test_only_data_files_of_the_instant_count(subtests, tmp_path, caplog):
    folder = f".hoodie/.temp/{T}"
    for number, name in enumerate(FOREIGN):
        with subtests.test(name=name):
            caplog.clear()
            storage = LocalStorage(str(tmp_path / str(number)))
            storage.create(f"{folder}/MARKERS0", name.encode() + b"\n" + lines("eu/f"))
            assert marked_files(storage, T) == (own("eu/f"),)
            assert caplog.messages == [
                f"{folder}: markers that don't name data files of this instant are ignored: 1"
            ]


def test_a_marker_of_bytes_that_are_no_utf_8_is_ignored(storage, tmp_path):
    create_marker(storage, T, marker_name(own("eu/f"), CREATE))
    folder = tmp_path / ".hoodie/.temp" / T
    (folder / marker_name(own("\udcff"), CREATE)).touch()
    assert marked_files(storage, T) == (own("eu/f"),)


@pytest.mark.parametrize(
    "path",
    [
        f"eu/.f_{T}.log.1_0-1-2",
        f"eu/.f_{T}.log.1_0-1-2.cdc",
        own("eu.marker.CREATE/f"),
        own("line\nfeed/f"),
        own("a/.hoodie/f"),
    ],
)
def test_data_files_in_any_partition_count(storage, path):
    create_marker(storage, T, marker_name(path, CREATE))
    assert marked_files(storage, T) == (path,)


def test_logs_that_are_named_by_their_slice_are_marked_to_be_appended_to(storage):
    path = f"eu/.f_{BEFORE}.log.1_0-1-2"
    create_marker(storage, T, marker_name(path, APPEND))
    assert marked_files(storage, T) == (path,)


def test_such_a_log_is_emptied_unless_another_write_has_blocks_in_it(storage, caplog):
    ours, others, gone = (f"eu/.f_{BEFORE}.log.{n}_0-1-2" for n in (1, 2, 3))
    block = block_bytes(AVRO_DATA, {INSTANT_TIME: T})
    storage.create(ours, block + block[:20])
    storage.create(others, block + block_bytes(AVRO_DATA, {INSTANT_TIME: BEFORE}))
    for path in (ours, others, gone):
        create_marker(storage, T, marker_name(path, APPEND))
    assert delete_unreported(storage, T, ()) == (ours, others, gone)
    assert storage.read(ours) == b""
    assert len(storage.read(others)) > len(block)
    assert storage.stat(gone) is None
    assert caplog.messages == [f"{others} stays, as instant {BEFORE} has appended to it"]


def test_of_a_plan_only_files_of_the_own_execution_are_deleted(storage):
    paths = []
    for execution, in_driver in ((7, True), (7, False), (71, True)):
        token = execution_token("1-0-3", execution, in_driver=in_driver)
        paths.append(f"eu/f_x_{token}_{T}.parquet")
        storage.create(paths[-1])
        create_marker(storage, T, marker_name(paths[-1], MERGE))
    assert paths[0] == f"eu/f_x_1-14-3_{T}.parquet"
    assert delete_unreported(storage, T, paths[:1], 7) == (paths[1],)
    assert [storage.stat(path) is not None for path in paths] == [True, False, True]
    assert delete_unreported(storage, T, paths[:1]) == (paths[2], paths[1])
