"""The promises of every storage, kept on S3 by s3fs, and what its requests cost."""

from __future__ import annotations

import json

import pytest

from tests.conformance.storage_suite import StorageSuite
from tests.kit.s3_server import s3_server
from timeline.errors import AlreadyExistsError, ConfigError, StorageUnavailableError
from timeline.storage.fsspec_storage import FsspecStorage

pytestmark = pytest.mark.property


@pytest.fixture(scope="module")
def server():
    with s3_server() as running:
        yield running


@pytest.fixture
def storage(server) -> FsspecStorage:
    return server.storage()


class TestS3(StorageSuite):
    """The suite on an S3 server."""


def test_a_tree_is_listed_and_deleted_by_the_thousand(storage):
    paths = [f"p={n % 300}/f{n}" for n in range(1500)]
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
    with pytest.raises(StorageUnavailableError, match=r"1 of 2 keys.*kept: AccessDenied"):
        storage.delete_all(["kept", "other"])


def test_files_behind_an_access_point_are_deleted(server):
    """The access point's ARN has a slash; the server takes its host name for that of a bucket."""
    arn = "arn:aws:s3:us-east-1:123456789012:accesspoint/ap"
    options = {
        **server.options,
        "endpoint_url": "http://s3.amazonaws.com",
        "config_kwargs": {"proxies": {"http": server.endpoint}},
    }
    server.storage()._fs.mkdir("ap-123456789012")
    storage = FsspecStorage(f"s3://{arn}/warehouse/t", options)
    for path in ("dir/one", "dir/two", "kept"):
        storage.replace(path, b"x")
    storage.delete_all(["dir/one", "dir/two"])
    assert [info.name for info in storage.list_tree("")] == ["kept"]


def test_a_file_created_by_another_process_is_deleted(storage, server):
    """A cached listing doesn't hide it."""
    other = FsspecStorage(storage.base_path, {**server.options, "skip_instance_cache": True})
    storage.create("dir/first")
    assert len(storage.list("dir")) == 1
    other.create("dir/second")
    assert storage.delete("dir/second")
    assert [info.name for info in other.list("dir")] == ["first"]


def test_a_file_created_by_another_process_is_opened(storage, server):
    """fsspec looks for it in a listing that it keeps. (#15)"""
    other = FsspecStorage(storage.base_path, {**server.options, "skip_instance_cache": True})
    storage.create("p/known")
    assert [info.name for info in storage.list("p")] == ["known"]
    other.create("p/new", b"content")
    assert storage.open_input("p/new").read() == b"content"


def test_endpoint_is_probed_once():
    with s3_server() as server:
        one, two = server.storage(), server.storage()
        one.create("file", b"1")
        two.create("file", b"2")
        assert one.calls.snapshot()["create", "probe"] == 2
        assert ("create", "probe") not in two.calls.snapshot()
        assert [info.name for info in one.list_tree("")] == ["file"]


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
        lambda storage: storage.create_stream("new"),
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
