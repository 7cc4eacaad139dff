"""``Metrics``: counters by name and labels, such as ``"reloads", cause="check-failed"``.

Nothing is global: each service has its own counters, and each test.
"""

from __future__ import annotations

import threading
from collections import Counter

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
