"""``RootUses``: how many clients use each root of a shared service, and until when it is kept."""

from __future__ import annotations

from collections import Counter


class RootUses:
    """The roots of one service: those in use, and those that are kept for the next client.

    Roots are texts; the caller spells each in one way. Times are seconds of the caller's clock. Not
    thread-safe.
    """

    def __init__(self) -> None:
        self._clients: Counter[str] = Counter()
        self._kept_until_s: dict[str, float] = {}

    @property
    def clients(self) -> int:
        """Number of clients of all roots."""
        return self._clients.total()

    @property
    def is_empty(self) -> bool:
        """Whether no root is in use, and none is kept."""
        return not self._clients and not self._kept_until_s

    @property
    def next_due_s(self) -> float | None:
        """When the next root is to be removed; ``None`` if all are in use."""
        return min(self._kept_until_s.values(), default=None)

    def begin(self, root: str) -> None:
        """Count another client of a root, which is in use from now on."""
        self._clients[root] += 1
        self._kept_until_s.pop(root, None)

    def end(self, root: str, kept_until_s: float) -> bool:
        """Count a client less; return whether the root is unused now, and kept until a time.

        Raises:
            ValueError: The root has no client.
        """
        if root not in self._clients:
            raise ValueError(f"root {root!r} has no client; it was released more often than taken")
        self._clients[root] -= 1
        if self._clients[root]:
            return False
        del self._clients[root]
        self._kept_until_s[root] = kept_until_s
        return True

    def take_due(self, now_s: float) -> tuple[str, ...]:
        """Forget and return the unused roots that are kept no longer than ``now_s``."""
        due = tuple(root for root, until_s in self._kept_until_s.items() if until_s <= now_s)
        for root in due:
            del self._kept_until_s[root]
        return due
