"""``Metrics``: counters by name and labels, such as ``"reloads", cause="check-failed"``.

Nothing is global: each service has its own counters, and each test.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Counters by name and labels; ``_lock`` guards them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, Labels]] = Counter()

    def add(self, name: str, amount: int = 1, **labels: str) -> None:
        """Add to a counter."""
        with self._lock:
            self._counts[name, tuple(sorted(labels.items()))] += amount

    def merge(self, label: str, is_kept: Callable[[str], bool]) -> None:
        """Add up the counters whose value of a label isn't kept, without that label.

        So the number of counters is bounded by the values that are kept, and no sum gets smaller.

        Args:
            label: The label.
            is_kept: Whether the counters with a value of the label stay as they are.
        """
        # Chosen from a copy: requests go on counting meanwhile.
        found = [key for key in self.counts() if label in dict(key[1])]
        values = {dict(labels)[label] for _, labels in found}
        gone = {value for value in values if not is_kept(value)}
        with self._lock:
            for name, labels in found:
                if dict(labels)[label] in gone:
                    rest = tuple(pair for pair in labels if pair[0] != label)
                    # 0 if another thread's ``merge`` has moved the counter since the copy was made.
                    self._counts[name, rest] += self._counts.pop((name, labels), 0)

    def get(self, name: str, **labels: str) -> int:
        """Return the sum of the counters of a name that have at least these labels."""
        wanted = set(labels.items())
        return sum(
            count
            for (found, has), count in self.counts().items()
            if found == name and wanted <= set(has)
        )

    def counts(self) -> dict[tuple[str, Labels], int]:
        """Return all counters."""
        with self._lock:
            return dict(self._counts)

    def as_json(self, **labels: str) -> dict[str, int]:
        """Return ``name{label=value,...}`` → count, for the counters that have these labels.

        The labels passed in are left out of the keys.
        """
        wanted = set(labels.items())
        answer: dict[str, int] = {}
        for (name, has), count in sorted(self.counts().items()):
            if wanted <= set(has):
                rest = ",".join(
                    f"{key}={value}" for key, value in has if (key, value) not in wanted
                )
                answer[f"{name}{{{rest}}}" if rest else name] = count
        return answer
