"""``survived``: tidies up once an outcome is decided, and doesn't let a failure replace it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from timeline.errors import StrandlineError

logger = logging.getLogger(__name__)


@contextmanager
def survived(left: str) -> Iterator[None]:
    """Log an error of the block instead of raising it.

    For what follows an instant that has completed, or was undone, or an error that the caller is to
    get: a caller that got the block's error would take one for the other, and repeat what has
    happened. Nothing in the block may decide anything, so it mustn't check the lock.

    Args:
        left: What the failure leaves, for the log: ``"the heartbeat of 20261122164930123 stays"``.
    """
    try:
        yield
    except StrandlineError as error:
        logger.warning("%s: %s", left, error)
