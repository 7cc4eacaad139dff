"""Conformance suite of new files of fsspec: inherit ``NewFileSuite`` and define ``storage``."""

import sys
from contextlib import AbstractContextManager, ExitStack

import pytest

from tests.kit.garbage import collect_garbage
from timeline.storage.fsspec_storage import FsspecStorage


class NewFileSuite:
    """A block that fails completes nothing, and its error reaches the caller.

    ``data`` is written in each block; ``no_discard`` returns a context in which a storage can't
    discard the file that is being written.
    """

    data = b"x" * 100

    def no_discard(self, storage: FsspecStorage) -> AbstractContextManager[object]:
        raise NotImplementedError

    def fail(self, storage: FsspecStorage, error: BaseException, *, discards: bool) -> None:
        with ExitStack() as hindered, storage.create_stream("dir/new") as file:
            file.write(self.data)
            if not discards:
                hindered.enter_context(self.no_discard(storage))
            raise error

    @pytest.mark.parametrize("error", [KeyboardInterrupt(), KeyError("of the block")])
    def test_a_failed_block_completes_nothing(
        self, storage: FsspecStorage, error: BaseException
    ) -> None:
        with pytest.raises(type(error)) as raised:
            self.fail(storage, error, discards=True)
        assert raised.value is error
        collect_garbage()  # finalizers close files
        assert storage.list("dir") == ()

    @pytest.mark.parametrize("error_type", [KeyboardInterrupt, KeyError])
    def test_an_error_of_discarding_hides_no_error(
        self,
        storage: FsspecStorage,
        error_type: type[BaseException],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Nor does the finalizer complete the file then. (#16)"""
        error = error_type("of the block")
        with pytest.raises(error_type) as raised:
            self.fail(storage, error, discards=False)
        assert raised.value is error
        assert "dir/new can't be discarded" in caplog.text
        if sys.version_info >= (3, 11):
            assert "dir/new can't be discarded" in error.__notes__[0]
        del raised, error
        collect_garbage()
        assert [info for info in storage.list("dir") if not info.is_dir] == []
