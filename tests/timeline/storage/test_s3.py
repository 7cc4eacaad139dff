"""The promises of every storage, kept on S3 by s3fs, and what its requests cost."""

from __future__ import annotations

import json
import pickle
import random

import pytest

from tests.conformance.storage_suite import StorageSuite
from tests.kit.servers.s3_server import s3_server
from tests.kit.storage.s3_faults import RequestEffect
from timeline.errors import (
    AlreadyExistsError,
    ConfigError,
    FilesNotDeletedError,
    PathNotFoundError,
    StorageUnavailableError,
)
from timeline.storage.fsspec_storage import FsspecStorage
from timeline.storage.s3 import KEYS_A_REQUEST, TAIL_BYTES, KeptTails, listed

pytestmark = pytest.mark.property


@pytest.fixture
def storage(s3) -> FsspecStorage:
    return s3.storage()


@pytest.mark.s3
class TestS3(StorageSuite):
    """The suite on an S3 server."""


@pytest.mark.s3
def test_a_tree_is_listed_and_deleted_by_the_thousand(storage):
    paths = [f"p={n % 300}/f{n}" for n in range(KEYS_A_REQUEST + 10)]
    for path in paths:
        storage._fs.pipe_file(f"{storage._root}/{path}", b"x")
    counted = storage.for_cause("rollback")
    assert sorted(info.name for info in counted.list_tree("")) == sorted(paths)
    counted.delete_all(paths)
    assert storage.list_tree("") == ()
    calls = storage.calls.snapshot()
    assert calls["list", "rollback"] == 2
    assert calls["delete", "rollback"] == 2


def test_keys_that_are_not_deleted_are_an_error(storage):
    """s3fs ignores them; a rollback would take the files for deleted and forget their instant."""
    storage.create("kept", b"x")
    storage.create("other", b"x")
    bucket = storage._root.partition("/")[0]
    statement = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:DeleteObject",
        "Resource": f"arn:aws:s3:::{bucket}/warehouse/t/kept",
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    storage._fs.call_s3("put_bucket_policy", Bucket=bucket, Policy=policy)
    with pytest.raises(FilesNotDeletedError, match=r"1 of 2 keys.*kept: AccessDenied") as caught:
        storage.delete_all(["kept", "other"])
    assert caught.value.paths == {"kept"}
    assert [info.name for info in storage.list_tree("")] == ["kept"]


@pytest.mark.s3
def test_the_ends_of_files_are_kept_for_a_second_opening(storage):
    data = random.Random(1).randbytes(TAIL_BYTES + 1)
    storage._fs.pipe_file(f"{storage._root}/large", data)
    storage._fs.pipe_file(f"{storage._root}/small", b"content")
    keeping = storage.keeping_tails()
    for path in ("small", "large"):
        expected = keeping.open_input(path).read()
        before = storage.calls.snapshot()
        assert keeping.for_cause("write").open_input(path).read() == expected
        assert storage.calls.snapshot() == before
    assert expected == data
    for other in (storage, pickle.loads(pickle.dumps(keeping))):
        other.for_cause("other").open_input("small")
        assert other.calls.snapshot()["read", "other"] > 0


def test_ends_of_files_are_kept_up_to_a_total_size():
    kept = KeptTails(max_bytes=10)
    for name in ("a", "b", "c"):
        kept.keep(name, name.encode() * 4)
    assert [kept.get(name) for name in ("a", "b", "c")] == [b"aaaa", b"bbbb", None]


def test_files_behind_an_access_point_are_deleted(s3):
    """The access point's ARN has a slash; the server takes its host name for that of a bucket."""
    arn = "arn:aws:s3:us-east-1:123456789012:accesspoint/ap"
    options = {
        **s3.options,
        "endpoint_url": "http://s3.amazonaws.com",
        "config_kwargs": {"proxies": {"http": s3.endpoint}},
    }
    s3.storage()._fs.mkdir("ap-123456789012")
    storage = FsspecStorage(f"s3://{arn}/warehouse/t", options)
    for path in ("dir/one", "dir/two", "kept"):
        storage.replace(path, b"x")
    storage.delete_all(["dir/one", "dir/two"])
    assert [info.name for info in storage.list_tree("")] == ["kept"]


@pytest.mark.s3
def test_a_file_created_by_another_process_is_deleted(storage, s3):
    """A cached listing doesn't hide it."""
    other = FsspecStorage(storage.base_path, {**s3.options, "skip_instance_cache": True})
    storage.create("dir/first")
    assert len(storage.list("dir")) == 1
    other.create("dir/second")
    assert storage.delete("dir/second")
    assert [info.name for info in other.list("dir")] == ["first"]


@pytest.mark.s3
def test_a_file_created_by_another_process_is_opened(storage, s3):
    """fsspec looks for it in a listing that it keeps. (#15)"""
    other = FsspecStorage(storage.base_path, {**s3.options, "skip_instance_cache": True})
    storage.create("p/known")
    assert [info.name for info in storage.list("p")] == ["known"]
    other.create("p/new", b"content")
    assert storage.open_input("p/new").read() == b"content"


def stream(storage: FsspecStorage, path: str, data: bytes = b"x") -> None:
    with storage.create_stream(path) as file:
        file.write(data)


def unfinished_uploads(storage: FsspecStorage) -> list[object]:
    bucket = storage._root.partition("/")[0]
    answer = storage._fs.call_s3("list_multipart_uploads", Bucket=bucket)
    return list(answer.get("Uploads", ()))


@pytest.mark.parametrize(
    ("call", "methods"),
    [
        pytest.param(lambda s: s.list("empty"), ["GET"], id="list of nothing"),
        pytest.param(lambda s: s.list_tree("dir"), ["GET"], id="list_tree"),
        pytest.param(lambda s: s.make_dir("other"), [], id="make_dir"),
        pytest.param(lambda s: s.read("dir/file"), ["GET"], id="read"),
        pytest.param(lambda s: s.open_input("dir/file").read(), ["GET"], id="open_input"),
        pytest.param(lambda s: s.create("new"), ["PUT"], id="create"),
        pytest.param(lambda s: stream(s, "newer"), ["PUT"], id="create_stream"),
        pytest.param(lambda s: s.delete_all(["dir/file"]), ["POST"], id="delete_all"),
    ],
)
def test_a_call_makes_no_other_requests(storage, s3, call, methods):
    storage.create("dir/file", b"x")
    s3.requests.begin({})
    call(storage)
    assert [request.method for request in s3.requests.log] == methods


@pytest.mark.s3
def test_any_part_of_a_large_file_is_read(storage):
    """Its end is in memory from the first request on."""
    data = random.Random(1).randbytes(3 * TAIL_BYTES)
    stream(storage, "large", data)
    with storage.open_input("large") as file:
        assert file.size() == len(data)
        edge = len(data) - TAIL_BYTES
        for start, size in [(edge - 5, 10), (0, 7), (edge, 4), (edge - 4, 4), (len(data) - 3, 9)]:
            file.seek(start)
            assert file.read(size) == data[start : start + size]
        file.seek(0)
        assert file.read() == data


@pytest.mark.s3
def test_a_large_file_that_is_deleted_while_it_is_read(storage):
    stream(storage, "large", bytes(2 * TAIL_BYTES))
    with storage.open_input("large") as file:
        storage.delete("large")
        with pytest.raises(PathNotFoundError, match=r"no file .*/large"):
            file.read(1)
        file.seek(TAIL_BYTES)
        assert file.read(1) == b"\0"


def test_a_store_that_fails_while_a_large_file_is_read(s3):
    storage = s3.single_try()
    stream(storage, "large", bytes(2 * TAIL_BYTES))
    with storage.open_input("large") as file:
        s3.requests.begin({1: RequestEffect.ERROR_BEFORE})
        with pytest.raises(StorageUnavailableError, match="large: injected"):
            file.read(1)
        file.seek(0)
        assert len(file.read()) == 2 * TAIL_BYTES


@pytest.mark.parametrize("size", [1, 60_000_000], ids=["one part", "two parts"])
def test_a_stream_that_was_sent_twice_is_no_other_writers(storage, s3, size):
    """The client repeats the last request, whose answer was lost, and is refused."""
    s3.requests.begin({})
    stream(storage, "first", b"x" * size)
    last = len(s3.requests.log)
    s3.requests.begin({last: RequestEffect.CUT_AFTER})
    stream(storage, "second", b"x" * size)
    assert s3.requests.fired == 1
    assert storage.stat("second").size == size
    with pytest.raises(AlreadyExistsError):
        stream(storage, "second", b"y")
    assert storage.stat("second").size == size


@pytest.mark.s3
def test_a_stream_of_several_parts_refuses_a_taken_name(storage):
    """S3 compares when the upload is completed, and keeps the parts of one that it refuses."""
    data = random.Random(2).randbytes(60_000_000)
    stream(storage, "large", data)
    with pytest.raises(AlreadyExistsError):
        stream(storage, "large", data[:-1])
    with storage.open_input("large") as file:
        assert file.read() == data
    assert unfinished_uploads(storage) == []


@pytest.mark.s3
def test_a_failed_stream_of_several_parts_leaves_nothing(storage):
    def fail() -> None:
        with storage.create_stream("large") as file:
            file.write(b"x" * 60_000_000)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert storage.list("") == ()
    assert unfinished_uploads(storage) == []


def test_endpoint_is_probed_once():
    with s3_server() as server:
        one, two = server.storage(), server.storage()
        one.create("file", b"1")
        two.create("file", b"2")
        assert one.calls.snapshot()["create", "probe"] == 2
        assert ("create", "probe") not in two.calls.snapshot()
        assert [info.name for info in one.list_tree("")] == ["file"]


@pytest.mark.parametrize("lost", [1, 2])
def test_a_lost_answer_to_the_probe_is_no_other_creator(lost):
    """s3fs sends the request again, which is refused because of its own success."""
    with s3_server() as server:
        storage = server.single_try()
        server.requests.begin({lost: RequestEffect.CUT_AFTER})
        storage.create("file", b"x")
        assert server.requests.fired == 1
        assert [info.name for info in storage.list_tree("")] == ["file"]


def test_a_missing_bucket_is_no_other_creator():
    with s3_server() as server:
        missing = FsspecStorage("s3://missing/t", server.options)
        with pytest.raises(PathNotFoundError):
            missing.create("file")  # probes the endpoint
        server.storage().create("file")
        for call in (missing.create, lambda path: stream(missing, path)):
            with pytest.raises(PathNotFoundError):
                call("file")


def test_a_bucket_that_disappears_between_two_pages_is_no_short_list(s3, tmp_path):
    for number in range(KEYS_A_REQUEST + 1):
        (tmp_path / f"f{number}").touch()
    storage = s3.single_try(tmp_path)
    counted = listed(storage._fs, storage._root, flat=True, count=lambda _: s3.drop(storage))
    with pytest.raises(FileNotFoundError):
        tuple(counted)
    assert storage.list_tree("") == ()


def test_endpoint_that_ignores_conditions_is_refused():
    with s3_server(ignores_conditions=True) as server:
        storage = server.storage()
        for _ in range(2):
            with pytest.raises(ConfigError) as raised:
                storage.create("file", b"x")
            for part in (storage.base_path, server.endpoint, "hoodie.write.lock.provider"):
                assert part in str(raised.value)
        assert storage.list_tree("") == ()
        locked = storage.as_only_creator()
        locked.create("file", b"x")
        with pytest.raises(AlreadyExistsError):
            locked.create("file", b"y")
        assert storage.read("file") == b"x"


NO_RETRIES = {"config_kwargs": {"retries": {"max_attempts": 0}}}


@pytest.fixture(scope="module")
def unreachable() -> FsspecStorage:
    """A storage whose server has refused connections since its first calls."""
    with s3_server() as running:
        known = running.storage()
        storage = FsspecStorage(known.base_path, {**running.options, **NO_RETRIES})
        storage.create("dir/file", b"x")
    return storage


@pytest.mark.parametrize(
    "call",
    [
        lambda storage: storage.list("dir"),
        lambda storage: storage.list_tree("dir"),
        lambda storage: storage.stat("dir/file"),
        lambda storage: storage.read("dir/file"),
        lambda storage: storage.open_input("dir/file"),
        lambda storage: storage.create("new", b"x"),
        lambda storage: stream(storage, "new"),
        lambda storage: storage.replace("dir/file", b"y"),
        lambda storage: storage.delete("dir/file"),
        lambda storage: storage.delete_all(["dir/file"]),
        lambda storage: storage.delete_tree("dir"),
        lambda storage: storage.conditional_file("lease").read(),
        lambda storage: storage.conditional_file("lease").write(b"x", None),
    ],
)
def test_a_refused_connection_is_an_unavailable_storage(unreachable, call):
    """s3fs raises botocore's error as it is, which isn't an ``OSError``."""
    with pytest.raises(StorageUnavailableError, match="Could not connect"):
        call(unreachable)
