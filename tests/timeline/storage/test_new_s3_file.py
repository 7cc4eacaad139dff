"""New files on S3 servers that heed conditions, and on those that ignore them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.conformance.new_file_suite import NewFileSuite
from tests.kit.servers.s3_server import S3Server, s3_server
from tests.kit.storage.s3_faults import RequestEffect
from timeline.errors import StorageUnavailableError
from timeline.storage.fsspec_storage import FsspecStorage
from timeline.storage.new_file import NewFile, NewS3File

pytestmark = pytest.mark.property


Servers = dict[type[NewFile], S3Server]
"""The class of new files on a server → the server."""


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with s3_server() as heeding, s3_server(ignores_conditions=True) as ignoring:
        yield {NewS3File: heeding, NewFile: ignoring}


class TestWithConditions(NewFileSuite):
    """Files longer than a part, so that an upload begins while they are written."""

    data = b"x" * 6_000_000
    kind: type[NewFile] = NewS3File
    server: S3Server

    @pytest.fixture
    def storage(self, servers: Servers) -> FsspecStorage:
        self.server = servers[self.kind]
        tried = self.server.single_try()
        storage = FsspecStorage(tried.base_path, {**tried._options, "default_block_size": 5 << 20})
        with storage.create_stream("known") as file:  # tries the endpoint
            file.write(b"x")
        storage.delete("known")
        return storage

    @contextmanager
    def no_discard(self, storage: FsspecStorage) -> Iterator[None]:
        self.server.requests.begin({1: RequestEffect.ERROR_BEFORE})
        yield
        assert self.server.requests.fired == 1
        assert self.unfinished(storage)

    def unfinished(self, storage: FsspecStorage) -> bool:
        bucket = storage._root.partition("/")[0]
        answer = storage._fs.call_s3("list_multipart_uploads", Bucket=bucket)
        return bool(answer.get("Uploads"))

    def test_a_block_of_several_parts_has_this_class(self, storage: FsspecStorage) -> None:
        assert type(storage.create_stream("new")) is self.kind

    def test_the_upload_of_a_failed_block_is_aborted(self, storage: FsspecStorage) -> None:
        with pytest.raises(KeyError):
            self.fail(storage, KeyError(), discards=True)
        assert not self.unfinished(storage)

    def test_an_upload_that_is_not_completed_is_aborted(self, storage: FsspecStorage) -> None:
        def write(path: str) -> None:
            with storage.create_stream(path) as file:
                file.write(self.data)

        self.server.requests.begin({})
        write("first")
        completing = len(self.server.requests.log)
        self.server.requests.begin({completing: RequestEffect.ERROR_BEFORE})
        with pytest.raises(StorageUnavailableError):
            write("second")
        assert self.server.requests.fired == 1
        assert not self.unfinished(storage)
        assert [info.name for info in storage.list("")] == ["first"]

    @pytest.mark.parametrize("effect", [RequestEffect.ERROR_BEFORE, RequestEffect.ERROR_AFTER])
    @pytest.mark.parametrize("size", [100, 6_000_000, 16_000_000])
    def test_whichever_request_fails_nothing_is_left_of_a_file(
        self, storage: FsspecStorage, effect: RequestEffect, size: int
    ) -> None:
        """The beginning of an upload, each part, its completion; lost answers, too. (#32)"""

        def write(path: str) -> None:
            with storage.create_stream(path) as file:
                for start in range(0, size, 3_000_000):
                    file.write(bytes(min(size - start, 3_000_000)))

        self.server.requests.begin({})
        write("first")
        log = list(self.server.requests.log)
        changes = [at for at, each in enumerate(log, 1) if each.method in {"PUT", "POST"}]
        assert len(changes) == {100: 1, 6_000_000: 3, 16_000_000: 5}[size]
        for at in changes:
            self.server.requests.begin({at: effect})
            with pytest.raises(StorageUnavailableError):
                write(f"data-{at}")
            assert self.server.requests.fired == 1
            assert not self.unfinished(storage)
            assert [info.name for info in storage.list("")] == ["first"]

    def test_a_store_that_goes_away_while_a_file_is_written_is_an_outage(
        self, storage: FsspecStorage
    ) -> None:
        """What writes the rows sees it, not botocore's error; nothing becomes visible. (#32)"""

        def pieces() -> Iterator[bytes]:
            yield self.data
            self.server.requests.begin({1: RequestEffect.GONE_BEFORE})
            yield self.data

        with pytest.raises(StorageUnavailableError), storage.create_stream("new") as file:
            file.writelines(pieces())
        self.server.requests.begin({})
        assert storage.list("") == ()


class TestWithoutConditions(TestWithConditions):
    """The same on a server that ignores them."""

    kind = NewFile
