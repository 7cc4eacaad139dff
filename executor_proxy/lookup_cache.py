"""``LookupCache``: a worker's cached answers, so that equal look-ups of its tasks need no request.

Only answers that never change for their key are cached: those of a pinned view, for the routes in
``fsview.wire.routes.FIXED_BY_TIMELINE``.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Final

from fsview.model.file_group import FileSlice
from fsview.wire.column_form import is_in_columns

DEFAULT_BYTES: Final = 32 << 20
_OBJECT_RATIO: Final = 1
"""Memory of a decoded answer per byte in Hudi's form; measured: 0.92 to 0.95."""
_COLUMN_RATIO: Final = 2
"""Memory of decoded texts for each byte in columns. With the next two this is within an eighth of
what was measured for base files and for slices with 0 to 20 logs, with short and long file ids."""
_VALUE_BYTES: Final = 55
"""Memory for each value in columns beyond that."""
_LOG_BYTES: Final = 160
"""Memory for each log file beyond that of its values."""
_FILE_VALUES: Final = 3
"""Values of a file in columns; a slice has as many beside those of its files."""
_LEAST_BYTES: Final = 512


def memory_of(body: bytes, found: Any) -> int:
    """Return the estimated memory of a decoded answer in bytes.

    Args:
        body: The answer as it was sent.
        found: The base files or slices in it; used only if the body is in columns.
    """
    if not is_in_columns(body):
        return len(body) * _OBJECT_RATIO
    # Counted from the decoded values: counting separators would read the whole body once more.
    logs = [len(each.log_files) for each in found if type(each) is FileSlice]
    values = (len(found) + len(logs) + sum(logs)) * _FILE_VALUES
    return len(body) * _COLUMN_RATIO + values * _VALUE_BYTES + sum(logs) * _LOG_BYTES


class LookupCache:
    """Decoded answers by key within a byte budget (LRU); thread-safe.

    Args:
        max_bytes: The budget; 0 caches nothing.
    """

    def __init__(self, max_bytes: int = DEFAULT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._answers: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self.size_bytes = 0

    def get(self, key: Hashable) -> tuple[Any] | None:
        """Return the answer in a tuple, because it may be ``None``; ``None`` if it isn't cached."""
        with self._lock:
            found = self._answers.get(key)
            if found is None:
                return None
            self._answers.move_to_end(key)
            return (found[0],)

    def put(self, key: Hashable, answer: Any, size_bytes: int) -> None:
        """Cache an answer.

        Args:
            key: Determines the answer.
            answer: The decoded answer; immutable, because callers share it.
            size_bytes: Its memory, as ``memory_of`` estimates it.
        """
        size = max(size_bytes, _LEAST_BYTES)
        if size > self._max_bytes:
            return
        with self._lock:
            # Two tasks may have asked at once; the answer's size must be counted once.
            replaced = self._answers.pop(key, None)
            self._answers[key] = answer, size
            self.size_bytes += size - (0 if replaced is None else replaced[1])
            while self.size_bytes > self._max_bytes:
                self.size_bytes -= self._answers.popitem(last=False)[1][1]
