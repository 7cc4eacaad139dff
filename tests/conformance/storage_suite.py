"""Conformance suite of storages: inherit ``StorageSuite`` and define the ``storage`` fixture."""

import pickle
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from timeline.errors import AlreadyExistsError, PathNotFoundError
from timeline.storage.base import Storage


class StorageSuite:
    def test_created_file_reads_back(self, storage: Storage) -> None:
        storage.create("a/b/file", b"content")
        assert storage.read("a/b/file") == b"content"

    def test_created_empty_file_reads_back(self, storage: Storage) -> None:
        storage.create("a/empty")
        assert storage.read("a/empty") == b""

    @pytest.mark.parametrize("data", [b"", b"second"])
    def test_create_of_a_taken_name_changes_nothing(self, storage: Storage, data: bytes) -> None:
        storage.create("file", b"first")
        with pytest.raises(AlreadyExistsError, match="file"):
            storage.create("file", data)
        assert storage.read("file") == b"first"

    @pytest.mark.parametrize("size", [0, 100_000])
    def test_one_of_many_creators_wins(self, storage: Storage, size: int) -> None:
        start = threading.Barrier(8)
        won: list[int] = []

        def create(writer: int) -> None:
            start.wait()
            try:
                storage.create("name", bytes([writer]) * size)
            except AlreadyExistsError:
                return
            won.append(writer)

        threads = [threading.Thread(target=create, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert storage.read("name") == bytes(won) * size

    def test_nothing_but_the_name_is_left(self, storage: Storage) -> None:
        storage.create("dir/file", b"x")
        with pytest.raises(AlreadyExistsError):
            storage.create("dir/file", b"y")
        storage.replace("dir/file", b"z")
        assert [info.name for info in storage.list("dir")] == ["file"]

    def test_list_gives_direct_children_by_name(self, storage: Storage) -> None:
        storage.create("dir/b", b"12")
        storage.create("dir/a", b"1")
        storage.create("dir/.hidden", b"")
        storage.create("dir/sub/below", b"123")
        found = storage.list("dir")
        assert [(f.name, f.size, f.is_dir) for f in found] == [
            (".hidden", 0, False),
            ("a", 1, False),
            ("b", 2, False),
            ("sub", 0, True),
        ]
        assert all(f.mtime_ms > 1_600_000_000_000 for f in found if not f.is_dir)

    def test_list_of_the_base_path(self, storage: Storage) -> None:
        storage.create("x/y", b"")
        assert [info.name for info in storage.list("")] == ["x"]

    @pytest.mark.parametrize("path", ["nowhere", "nowhere/at/all"])
    def test_list_of_a_missing_directory_is_empty(self, storage: Storage, path: str) -> None:
        assert storage.list(path) == ()

    def test_list_tree_gives_all_files_by_path(self, storage: Storage) -> None:
        storage.create("dir/b", b"12")
        storage.create("dir/sub/below/deep", b"123")
        storage.create("dir/.hidden", b"")
        storage.create("dir-not/file", b"")
        storage.create("other", b"1")
        found = storage.list_tree("dir")
        assert [(f.name, f.size, f.is_dir) for f in found] == [
            (".hidden", 0, False),
            ("b", 2, False),
            ("sub/below/deep", 3, False),
        ]
        assert all(f.mtime_ms > 1_600_000_000_000 for f in found)
        paths = ["dir-not/file", "dir/.hidden", "dir/b", "dir/sub/below/deep", "other"]
        assert [f.name for f in storage.list_tree("")] == paths

    def test_list_tree_sees_what_came_since(self, storage: Storage) -> None:
        storage.create("dir/a")
        assert [f.name for f in storage.list_tree("dir")] == ["a"]
        storage.create("dir/sub/b")
        storage.delete("dir/a")
        assert [f.name for f in storage.list_tree("dir")] == ["sub/b"]

    @pytest.mark.parametrize("path", ["nowhere", "nowhere/at/all", "file", "file/below"])
    def test_list_tree_of_no_directory_is_empty(self, storage: Storage, path: str) -> None:
        storage.create("file")
        assert storage.list_tree(path) == ()

    def test_names_are_taken_literally(self, storage: Storage) -> None:
        name = "region=a%2Fb c/ts=3+ü'#?*[x]"
        storage.create(f"{name}/file", b"x")
        assert storage.read(f"{name}/file") == b"x"
        assert [info.name for info in storage.list(name)] == ["file"]
        assert [info.name for info in storage.list_tree(name)] == ["file"]
        assert storage.delete(f"{name}/file")
        storage.create(f"{name}/first", b"x")
        storage.create(f"{name}/second", b"x")
        storage.delete_all([f"{name}/first", f"{name}/second"])
        assert storage.list_tree(name) == ()

    def test_stat(self, storage: Storage) -> None:
        storage.create("dir/file", b"123")
        info = storage.stat("dir/file")
        assert info is not None
        assert (info.name, info.size, info.is_dir) == ("file", 3, False)
        folder = storage.stat("dir")
        assert folder is not None
        assert folder.is_dir
        assert storage.stat("dir/other") is None
        assert storage.stat("no/where") is None

    def test_read_of_a_missing_file_names_it(self, storage: Storage) -> None:
        with pytest.raises(PathNotFoundError, match="no/file"):
            storage.read("no/file")
        with pytest.raises(PathNotFoundError, match="no/file"):
            storage.open_input("no/file")

    def test_open_input_seeks(self, storage: Storage) -> None:
        storage.create("file", b"0123456789")
        with storage.open_input("file") as first, storage.open_input("file") as second:
            first.seek(5)
            assert second.read(3) == b"012"
            assert first.read(3) == b"567"
            assert first.size() == 10

    def test_stream_makes_a_file(self, storage: Storage) -> None:
        with storage.create_stream("dir/data") as file:
            file.write(b"one ")
            file.write(b"two")
        assert storage.read("dir/data") == b"one two"

    def test_stream_takes_parquet(self, storage: Storage) -> None:
        table = pa.table({"x": list(range(1000))})
        with storage.create_stream("dir/data.parquet") as file:
            pq.write_table(table, file)
        with storage.open_input("dir/data.parquet") as file:
            assert pq.read_table(file).equals(table)

    def test_failed_stream_leaves_nothing(self, storage: Storage) -> None:
        def fail() -> None:
            with storage.create_stream("dir/data") as file:
                file.write(b"one")
                raise KeyError

        with pytest.raises(KeyError):
            fail()
        assert storage.stat("dir/data") is None

    def test_stream_refuses_a_taken_name(self, storage: Storage) -> None:
        storage.create("data", b"x")
        with pytest.raises(AlreadyExistsError), storage.create_stream("data"):
            pass
        assert storage.read("data") == b"x"

    def test_replace(self, storage: Storage) -> None:
        storage.replace("dir/file", b"first, longer")
        storage.replace("dir/file", b"second")
        assert storage.read("dir/file") == b"second"

    def test_delete_says_whether_it_was_there(self, storage: Storage) -> None:
        storage.create("dir/file", b"x")
        assert storage.delete("dir/file")
        assert not storage.delete("dir/file")
        assert not storage.delete("no/where")
        assert storage.stat("dir/file") is None

    def test_delete_all_deletes_what_is_there(self, storage: Storage) -> None:
        for path in ("dir/a", "dir/sub/b", "dir/kept", "c"):
            storage.create(path)
        storage.delete_all(["dir/a", "no/where", "dir/sub/b", "c", "dir/never"])
        storage.delete_all([])
        storage.delete_all(["dir/a"])
        assert [f.name for f in storage.list_tree("")] == ["dir/kept"]

    def test_delete_all_takes_an_iterator(self, storage: Storage) -> None:
        storage.create("a")
        storage.create("b")
        storage.delete_all(path for path in ("a", "b"))
        assert storage.list_tree("") == ()

    def test_delete_tree(self, storage: Storage) -> None:
        storage.create("dir/a", b"x")
        storage.create("dir/sub/b", b"y")
        storage.create("other", b"z")
        assert storage.delete_tree("dir")
        assert not storage.delete_tree("dir")
        assert storage.stat("dir/sub/b") is None
        assert storage.read("other") == b"z"

    def test_make_dir_twice(self, storage: Storage) -> None:
        storage.make_dir("dir/sub")
        storage.make_dir("dir/sub")
        assert storage.list("dir/sub") == ()

    @pytest.mark.parametrize(
        "path", ["..", "../x", "a/../../x", "a/..", "/etc", "a//b", "a/", "./a", "a\0b"]
    )
    def test_paths_that_leave_the_base_are_refused(self, storage: Storage, path: str) -> None:
        for call in (
            storage.list,
            storage.list_tree,
            storage.stat,
            storage.read,
            storage.open_input,
            storage.create,
            storage.create_stream,
            storage.make_dir,
            storage.delete,
            storage.delete_tree,
        ):
            with pytest.raises(ValueError, match="path"):
                call(path)
        with pytest.raises(ValueError, match="path"):
            storage.delete_all([path])
        with pytest.raises(ValueError, match="path"):
            storage.replace(path, b"")
        assert storage.calls.snapshot() == {}

    def test_calls_are_counted_by_kind_and_cause(self, storage: Storage) -> None:
        syncing = storage.for_cause("sync")
        syncing.create("file", b"x")
        syncing.read("file")
        syncing.list("")
        storage.for_cause("clean").delete("file")
        storage.for_cause("clean").delete("file")
        calls = storage.calls.snapshot()
        assert {key: n for key, n in calls.items() if key[1] != "probe"} == {
            ("create", "sync"): 1,
            ("read", "sync"): 1,
            ("list", "sync"): 1,
            ("delete", "clean"): 2,
        }
        assert storage.calls is syncing.calls

    def test_a_pickled_storage_sees_the_table_and_counts_from_zero(self, storage: Storage) -> None:
        storage.for_cause("write").create("file", b"x")
        copied = pickle.loads(pickle.dumps(storage.for_cause("tag")))
        assert copied.base_path == storage.base_path
        assert copied.read("file") == b"x"
        assert copied.calls.snapshot() == {("read", "tag"): 1}
