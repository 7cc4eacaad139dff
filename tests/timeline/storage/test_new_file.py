"""New files of fsspec's file systems; ``test_s3`` has those of S3."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractBufferedFile

from tests.conformance.new_file_suite import NewFileSuite
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.concurrency.signals import (
    Interrupted,
    interrupt,
    interrupts,
    join_calls,
    wait_until_in,
)
from tests.kit.garbage import collect_garbage
from tests.kit.storage.full_disk import file_size_limit
from timeline.errors import CreateUnansweredError, StorageUnavailableError
from timeline.storage.fsspec_storage import FsspecStorage


class ClientError(Exception):
    """An error of the store's client, as botocore's are."""


class Uploads(MemoryFileSystem):
    """A file system that shows a file when its upload is completed, as those of object stores."""

    protocol = "uploads"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    refused: ClassVar[set[str]] = set()
    before_completion: ClassVar[list[Callable[[], None]]] = []
    after_completion: ClassVar[list[Callable[[], None]]] = []

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        return super()._open(path, mode, **options) if "r" in mode else Upload(self, path, mode)

    def show(self, path: str, data: bytes) -> None:
        super()._open(path, "wb", data=data)


class Upload(AbstractBufferedFile):
    """A file whose upload has blocks of 10 bytes."""

    def __init__(self, fs: Uploads, path: str, mode: str) -> None:
        super().__init__(fs, path, mode, block_size=10)
        self.uploaded = b""

    def _upload_chunk(self, final: bool = False) -> bool:
        if not final:
            self.check("part")
        self.uploaded += self.buffer.getvalue()
        if final:
            for call in Uploads.before_completion:
                call()
            self.check("complete")
            self.fs.show(self.path, self.uploaded)
            for call in Uploads.after_completion:
                call()
        return True

    def discard(self) -> None:
        self.check("discard")
        self.uploaded = b""

    def check(self, step: str) -> None:
        if step in Uploads.refused:
            raise ClientError(f"{step} refused")


@contextmanager
def refusing(*steps: str) -> Iterator[None]:
    Uploads.refused.update(steps)
    try:
        yield
    finally:
        Uploads.refused.clear()


class TestUploads(NewFileSuite):
    """The files of Azure, GCS, and S3 servers that ignore conditions."""

    @pytest.fixture
    def storage(self) -> Iterator[FsspecStorage]:
        fsspec.register_implementation("uploads", Uploads, clobber=True)
        yield FsspecStorage("uploads://t")
        Uploads.store.clear()
        Uploads.before_completion.clear()
        Uploads.after_completion.clear()

    def no_discard(self, storage: FsspecStorage) -> AbstractContextManager[object]:
        return refusing("discard")

    @pytest.mark.parametrize("steps", [("complete",), ("complete", "discard")])
    def test_an_upload_that_is_not_completed_is_discarded(
        self, storage: FsspecStorage, steps: tuple[str, ...]
    ) -> None:
        with (
            refusing(*steps),
            pytest.raises(StorageUnavailableError, match="complete refused"),
            storage.create_stream("new") as file,
        ):
            file.write(self.data)
        opened: Any = file
        assert opened.closed
        assert bool(opened._file.uploaded) is ("discard" in steps)
        assert storage.list("") == ()

    @pytest.mark.parametrize("steps", [("part",), ("part", "discard")])
    def test_a_part_that_fails_is_an_outage_of_the_storage(
        self, storage: FsspecStorage, steps: tuple[str, ...]
    ) -> None:
        """Its error reaches whoever writes, and nothing becomes visible. (#32)"""

        def pieces() -> Iterator[bytes]:
            yield b"small"
            with refusing(*steps):
                yield self.data

        with (
            pytest.raises(StorageUnavailableError, match="/t/new: part refused") as failed,
            storage.create_stream("new") as file,
        ):
            file.writelines(pieces())
        assert failed.value.retryable
        assert file.closed
        del file, failed
        collect_garbage()
        assert storage.list("") == ()

    def test_a_file_whose_completion_took_effect_is_deleted_if_it_failed(
        self, storage: FsspecStorage
    ) -> None:
        """The store answered by an error: the block failed, so there is no file. (#32)"""

        def lose() -> None:
            raise ClientError("the answer is lost")

        Uploads.after_completion.append(lose)
        with (
            pytest.raises(StorageUnavailableError, match="the answer is lost"),
            storage.create_stream("new") as file,
        ):
            file.write(self.data)
        assert storage.list("") == ()

    @pytest.mark.parametrize(
        ("error", "may_appear"),
        [
            (ClientError("no answer"), True),
            (OSError("no answer"), True),
            (PermissionError(), False),
        ],
        ids=["client's", "system's", "refused"],
    )
    def test_whoever_writes_learns_that_the_file_may_still_appear(
        self, storage: FsspecStorage, error: Exception, may_appear: bool
    ) -> None:
        """The store may carry the request out when the file has been looked for. (#32)"""

        def lose() -> None:
            raise error

        Uploads.before_completion.append(lose)
        with (
            pytest.raises(StorageUnavailableError) as raised,
            storage.create_stream("new") as file,
        ):
            file.write(self.data)
        assert isinstance(raised.value, CreateUnansweredError) is may_appear

    def test_an_interrupted_completion_ends_before_the_write(self, storage: FsspecStorage) -> None:
        """Else the next write's rollback could come before the file. (#16)"""

        def hold() -> None:
            join = wait_until_in("join")
            interrupt()
            assert raised.wait(PATIENCE_S)
            wait_until_in("join", after=join)

        Uploads.before_completion.append(hold)
        with (
            interrupts() as raised,
            pytest.raises(Interrupted),
            storage.create_stream("new") as file,
        ):
            file.write(self.data)
        assert [info.name for info in storage.list("")] == ["new"]

    @pytest.mark.parametrize("answer", ["known", "lost"])
    def test_an_upload_that_outlives_its_write_is_deleted(
        self, storage: FsspecStorage, answer: str
    ) -> None:
        has_left = threading.Event()

        def hold() -> None:
            join = None
            for _ in range(2):
                join = wait_until_in("join", after=join)
                raised.clear()
                interrupt()
                assert raised.wait(PATIENCE_S)
            assert has_left.wait(PATIENCE_S)

        def lose() -> None:
            raise OSError("the answer is lost")

        Uploads.before_completion.append(hold)
        if answer == "lost":
            Uploads.after_completion.append(lose)
        with interrupts() as raised:
            with pytest.raises(Interrupted), storage.create_stream("new") as file:
                file.write(self.data)
            has_left.set()
        join_calls()
        assert storage.list("") == ()


class TestLocalFiles(NewFileSuite):
    """Local files by fsspec, which are visible while they are written."""

    @pytest.fixture
    def storage(self, tmp_path: Path) -> FsspecStorage:
        return FsspecStorage(f"file://{tmp_path}/t")

    @contextmanager
    def no_discard(self, storage: FsspecStorage) -> Iterator[None]:
        """Put a folder in the file's place."""
        storage.delete("dir/new")
        storage.make_dir("dir/new")
        yield

    @pytest.mark.parametrize("size", [1, 8_192, 8_193, 1 << 20])
    def test_a_write_that_fails_leaves_no_file_whatever_its_size(
        self, storage: FsspecStorage, size: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        """As on a full disk: what is buffered fails when the file is closed (#32)."""
        storage.make_dir("")
        with (
            file_size_limit(0),
            pytest.raises(StorageUnavailableError, match="File too large"),
            storage.create_stream("new") as file,
        ):
            file.writelines([b"x" * size] * 4)
        assert storage.list("") == ()
        assert "discarded" not in caplog.text
