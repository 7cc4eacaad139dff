"""Deletions, and the like, in several transactions, so that others can write in between."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from fsview.store.sql.database import Session

AT_ONCE: Final = 1000
"""Rows, or blobs, in one transaction."""


def delete_all(
    writing: Callable[[], AbstractContextManager[Session]],
    some: Callable[[Session, int], int],
    at_once: int = AT_ONCE,
) -> int:
    """Delete until a transaction finds less than it may delete.

    Args:
        writing: Opens a transaction that writes.
        some: Deletes at most a number of things, or folds rows; returns how many.
        at_once: The number.

    Returns:
        How many were deleted.

    Raises:
        StoreError: Some are left.
    """
    total, deleted = 0, at_once
    while deleted == at_once:
        with writing() as session:
            deleted = some(session, at_once) if session.head() is not None else 0
        total += deleted
    return total


def delete_old_rows(session: Session, most: int) -> int:
    """Delete some rows of earlier generations; return how many."""
    return session.delete_old_rows(most)


def delete_old_blobs(session: Session, most: int) -> int:
    """Delete some blobs of earlier generations; return how many."""
    return session.delete_old_blobs(most)
