"""``DeletionProgress``: how far a deletion is, as a bar on a terminal, elsewhere as lines."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Final, TextIO

import click

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

_LABEL: Final = "deleting files"
_LINES: Final = 10
"""Maximum number of lines of one deletion."""


class DeletionProgress:
    """Shows how many files were deleted; for one call at a time.

    A second deletion, such as that of a new clean after a crashed one, begins anew.

    Args:
        stream: Where, such as stderr.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._bar: ProgressBar[int] | None = None
        self._deleted = 0

    def __call__(self, deleted: int, total: int) -> None:
        """Show that ``deleted`` of ``total`` files were deleted."""
        if deleted < self._deleted:
            self._end()
        if self._stream.isatty():
            self._draw(deleted, total)
        elif deleted * _LINES // total > self._deleted * _LINES // total:
            click.echo(f"{_LABEL}: {deleted} of {total}", file=self._stream)
        self._deleted = deleted
        if deleted == total:
            self._end()

    def __enter__(self) -> DeletionProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _draw(self, deleted: int, total: int) -> None:
        if self._bar is None:
            self._bar = click.progressbar(
                length=total, label=_LABEL, show_pos=True, file=self._stream
            )
        self._bar.update(deleted - self._deleted)

    def _end(self) -> None:
        """End the bar's line, so that messages follow below it."""
        if self._bar is not None:
            self._bar.render_finish()
        self._bar, self._deleted = None, 0
