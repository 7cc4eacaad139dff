"""``Budget``: how much memory a service may hold, and who gives up what when it is exceeded.

What is held is counted in accounts. They give in the order in which they were made: what is
cheapest to make again comes first. An account's ``used`` is what its owner said, not what the
process takes; owners count the overhead of their objects too.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from timeline.errors import ConfigError

Evict = Callable[[int], int]
"""Frees at least so many bytes, if it can; tells its account of them, and returns how many."""


class Account:
    """Bytes held for one purpose.

    Attributes:
        name: What status calls it.
        evict: Gives up some of what is held; ``None`` where nothing can be. Whoever holds the
            bytes may set it after the account was made.
        used: How many bytes are held now.

    Its lock guards ``used`` and what it is the sum of.
    """

    __slots__ = ("_added", "_lock", "_shares", "evict", "name", "used")

    def __init__(self, name: str, evict: Evict | None = None) -> None:
        self.name = name
        self.evict = evict
        self.used = 0
        self._added = 0
        self._shares: dict[Share, int] = {}
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        """Count ``size`` more bytes, or fewer when it is negative; never evicts."""
        with self._lock:
            self._added += size
            self._sum_up()

    def set_share(self, share: Share, size: int) -> None:
        """Take it that a holder has so many bytes now; never evicts."""
        with self._lock:
            if size:
                self._shares[share] = size
            else:
                self._shares.pop(share, None)
            self._sum_up()

    def _sum_up(self) -> None:
        # All anew: what an interrupt leaves half done is right with the next call.
        self.used = self._added + sum(self._shares.values())

    def share_of(self, share: Share) -> int:
        """Return how many bytes a holder has."""
        return self._shares.get(share, 0)


class Share:
    """What one holder has of an account; its holder's lock guards whether it is closed."""

    __slots__ = ("_account", "_budget", "_closed")

    def __init__(self, budget: Budget, account: Account) -> None:
        self._budget = budget
        self._account = account
        self._closed = False

    @classmethod
    def unbounded(cls) -> Share:
        """Return a share of a budget of its own, which is never exceeded."""
        budget = Budget(sys.maxsize)
        return cls(budget, budget.account("all"))

    def hold(self, size: int) -> None:
        """Take it that so many bytes are held now; never evicts. Nothing, once it is closed."""
        self._account.set_share(self, 0 if self._closed else size)

    @property
    def held(self) -> int:
        """How many bytes it holds now."""
        return self._account.share_of(self)

    def close(self) -> None:
        """Give all of it back for good."""
        self._closed = True
        self.hold(0)

    def make_room(self) -> None:
        """See ``Budget.make_room``."""
        self._budget.make_room()


class Budget:
    """A limit for the bytes of all accounts together.

    The lock is held by the one thread that makes room; what it calls may wait for storage.
    """

    def __init__(self, limit_bytes: int) -> None:
        if limit_bytes <= 0:
            raise ConfigError(f"a budget of {limit_bytes} bytes: must be more than 0")
        self.limit_bytes = limit_bytes
        self._accounts: tuple[Account, ...] = ()
        self._evicting = threading.Lock()

    def account(self, name: str, evict: Evict | None = None) -> Account:
        """Open an account; it gives after those that were opened before."""
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
        """Return a new holder's share of an account, which is nothing yet."""
        return Share(self, account)

    def make_room(self, *, wait: bool = False) -> None:
        """Evict until the limit is kept, or nobody gives any more.

        Call it after growth, with no lock held that an account's ``evict`` takes.

        Args:
            wait: Stay until it is done when another thread is at it. Otherwise this one goes on:
                that thread looks again before it stops, so nothing is left over.
        """
        while self.used > self.limit_bytes and self._evicting.acquire(blocking=wait):
            try:
                given = self._evict()
            finally:
                self._evicting.release()
            if not given:
                return

    def _evict(self) -> int:
        """Ask the accounts one after the other; return how many bytes they gave."""
        given = 0
        for account in self._accounts:
            excess = self.used - self.limit_bytes
            if excess <= 0:
                break
            if account.evict is not None:
                given += account.evict(excess)
        return given

    def status(self) -> dict[str, Any]:
        """Return figures, fit for JSON."""
        return {
            "limit_bytes": self.limit_bytes,
            "used_bytes": self.used,
            "accounts": {account.name: account.used for account in self._accounts},
        }
