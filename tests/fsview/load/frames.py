"""An action recorded call by call, and a storage that shows any moment of it."""

from __future__ import annotations

from collections.abc import Callable

from tests.kit.storage.memory_storage import MemoryStorage
from tests.kit.tables.model.table import ModelTable
from timeline.storage.base import FileInfo

Frame = dict[str, tuple[bytes, int]]
"""Path → content and modification time of every file of a table at one moment."""

_CHANGES = ("create", "replace", "delete")


def frames_of(table: ModelTable, action: Callable[[ModelTable], None]) -> list[Frame]:
    """Run an action; return the table before it, and after each call that changes a file."""
    found: list[Frame] = []

    def note(kind: str, _path: str) -> None:
        files = table.storage.files.copy()
        if kind in _CHANGES and (not found or found[-1] != files):
            found.append(files)

    table.storage.fail.append(note)
    action(table)
    table.storage.fail.remove(note)
    return [*found, table.storage.files.copy()]


class FrameStorage(MemoryStorage):
    """A storage that shows one of the frames.

    Attributes:
        after_list: Index of the frame that is shown from the next listing of a partition on.
    """

    def __init__(self, frames: list[Frame], shown: int = 0) -> None:
        super().__init__()
        self._frames = frames
        self.after_list: list[int] = []
        self.show(shown)

    def for_cause(self, cause: str) -> FrameStorage:
        other = object.__new__(FrameStorage)
        other.__dict__.update(self.__dict__)
        other._cause = cause
        return other

    def show(self, index: int) -> None:
        """Show a frame."""
        self.files.clear()
        self.files.update(self._frames[index])

    def list(self, path: str) -> tuple[FileInfo, ...]:
        found = super().list(path)
        if not path.startswith(".hoodie") and self.after_list:
            self.show(self.after_list.pop())
        return found
