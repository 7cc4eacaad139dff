"""``Budget``: the limit of a service's memory, and the order in which memory is freed beyond it.

Memory is counted in accounts, which evict in the order in which they were opened: what is cheapest
to make again comes first. An account counts what its owner reports, including the overhead of
objects, not what the process really uses.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from timeline.errors import ConfigError

BUDGET_BYTES: Final = 512 << 20
"""Default of the memory of all views."""
MOST_OPEN: Final = 5000
"""Default of how many tables may be open."""
RETAINED_SNAPSHOTS: Final = 256
"""Kept for clients that are behind: a job of this many commits is answered without a read."""

Evict = Callable[[int], int]
"""Frees at least this many bytes if possible, reports to its account, returns how many it freed."""


class Account:
    """Bytes held for one purpose.

    Attributes:
        name: Name in the status.
        evict: Frees some of the bytes; ``None`` if that is impossible. The owner of the bytes may
            set it after the account was opened.
        used: Bytes held now.

    The lock guards ``used`` and its summands, and the holders that may give bytes.
    """

    __slots__ = ("_added", "_is_whole", "_lock", "_ready", "_shares", "evict", "name", "used")

    def __init__(self, name: str, evict: Evict | None = None) -> None:
        self.name = name
        self.evict = evict
        self.used = 0
        self._added = 0
        self._shares: dict[Share, int] = {}
        self._ready: OrderedDict[Share, None] = OrderedDict()
        self._is_whole = True
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        """Add ``size``, which may be negative, to the bytes; never evicts."""
        with self._lock:
            is_whole, self._is_whole = self._is_whole, False
            self._added += size
            self._sum_up(size, is_whole=is_whole)

    def set_share(self, share: Share, size: int) -> None:
        """Set the bytes of one holder; never evicts."""
        with self._lock:
            is_whole, self._is_whole = self._is_whole, False
            change = size - self._shares.get(share, 0)
            if size:
                self._shares[share] = size
            else:
                self._shares.pop(share, None)
                self._ready.pop(share, None)
            if size and change:
                self._ready[share] = None
            self._sum_up(change, is_whole=is_whole)

    def _sum_up(self, change: int, *, is_whole: bool) -> None:
        """Add a change; sum up all if a call was interrupted between a change and its sum."""
        total = self._added + sum(self._shares.values()) if not is_whole else self.used + change
        self.used = total
        self._is_whole = True

    def next_holder(self) -> Share | None:
        """Return the holder that may give bytes, and was asked least recently.

        It isn't returned again before its bytes have changed, as they do if it gives some: who has
        nothing to give costs nothing.
        """
        with self._lock:
            return self._ready.popitem(last=False)[0] if self._ready else None

    def share_of(self, share: Share) -> int:
        """Return the bytes of one holder."""
        return self._shares.get(share, 0)


class Share:
    """One holder's bytes in an account; the holder's lock guards whether it is closed.

    Attributes:
        give: Frees some of the bytes, and returns how many; ``None``: there are none to free.
    """

    __slots__ = ("_account", "_budget", "_closed", "give")

    def __init__(self, budget: Budget, account: Account) -> None:
        self._budget = budget
        self._account = account
        self._closed = False
        self.give: Callable[[], int | None] = _nothing

    @classmethod
    def unbounded(cls) -> Share:
        """Return a share of a new budget without limit."""
        budget = Budget(sys.maxsize)
        return cls(budget, budget.account("all"))

    def hold(self, size: int) -> None:
        """Set the number of bytes held, 0 once closed; never evicts."""
        self._account.set_share(self, 0 if self._closed else size)

    @property
    def held(self) -> int:
        """Bytes held now."""
        return self._account.share_of(self)

    def close(self) -> None:
        """Give back all bytes for good."""
        self._closed = True
        self.give = _nothing  # the holder refers to this share
        self.hold(0)

    def make_room(self) -> None:
        """Call ``Budget.make_room``."""
        self._budget.make_room()


def _nothing() -> None:
    """Free no bytes."""


class Budget:
    """A limit for the bytes of all accounts together.

    The lock is held by the one thread that evicts, which may wait for storage meanwhile.
    """

    def __init__(self, limit_bytes: int) -> None:
        if limit_bytes <= 0:
            raise ConfigError(f"a budget of {limit_bytes} bytes: must be more than 0")
        self.limit_bytes = limit_bytes
        self._accounts: tuple[Account, ...] = ()
        self._evicting = threading.Lock()

    def account(self, name: str, evict: Evict | None = None) -> Account:
        """Open an account; it evicts after those that were opened before."""
        if any(account.name == name for account in self._accounts):
            raise ConfigError(f"the budget has an account {name!r} already")
        account = Account(name, evict)
        self._accounts += (account,)
        return account

    @property
    def used(self) -> int:
        """Bytes of all accounts."""
        return sum(account.used for account in self._accounts)

    def share(self, account: Account) -> Share:
        """Return a new holder's share of an account, with no bytes."""
        return Share(self, account)

    def make_room(self, *, wait: bool = False) -> None:
        """Evict until the limit is met or no account frees any more.

        To be called after growth, without any lock that an account's ``evict`` takes.

        Args:
            wait: Whether to wait while another thread evicts. If not, this call returns at once.
        """
        # Checked again after each release: a thread that returned at once, as this one evicted,
        # leaves no excess.
        while self.used > self.limit_bytes and self._evicting.acquire(blocking=wait):
            try:
                given = self._evict()
            finally:
                self._evicting.release()
            if not given:
                return

    def _evict(self) -> int:
        """Have the accounts evict in order; return the bytes that they freed."""
        given = 0
        for account in self._accounts:
            excess = self.used - self.limit_bytes
            if excess <= 0:
                break
            if account.evict is not None:
                given += account.evict(excess)
        return given

    def status(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "limit_bytes": self.limit_bytes,
            "used_bytes": self.used,
            "accounts": {account.name: account.used for account in self._accounts},
        }
