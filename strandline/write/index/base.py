"""``Index``: the contract of all indexes. ``TagRequest``: what a write asks of its index.

Source: Hudi 1.2.0 ``HoodieIndex``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from executor_proxy.view_location import ViewLocation
from strandline.write.engine import Task
from strandline.write.operation import Operation
from timeline.storage.base import Storage


@dataclass(frozen=True, slots=True)
class TagRequest:
    """The rows to tag, and where the table's files are found.

    Attributes:
        operation: The kind of write.
        schema: The columns of the rows.
        storage: The table's storage.
        locate: Returns where tasks find the view at the write's timeline; starts the service.
        combine: Whether only the newest of rows with one key is kept.
        ordering_fields: Ordering columns that decide which row is the newest.
        fills_small_files: Whether small files are to be reported, for inserts.
    """

    operation: Operation
    schema: pa.Schema
    storage: Storage
    locate: Callable[[], ViewLocation]
    combine: bool
    ordering_fields: tuple[str, ...]
    fills_small_files: bool


class Index(ABC):
    """Finds the stored file group of each row's key."""

    @abstractmethod
    def tag_task(self, request: TagRequest) -> Task | None:
        """Return the task that tags keyed rows; ``None`` if every row opens a new file group.

        All rows of a partition are in one run of the task. It yields rows in the form of
        ``tagged_schema`` (``strandline.write.columns``): each row once for every stored file that
        holds its key, or once without a file if none does; and the notes that ``TagProfile`` reads.
        """
