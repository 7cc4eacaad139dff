from __future__ import annotations

import json
import linecache
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

import fsview.store.budget
from fsview.store.budget import Account, Budget, Share
from tests.kit.concurrency.patience import PATIENCE_S
from timeline.errors import ConfigError


class Holder:
    """Holds bytes in an account, and gives up to ``gives`` of them each time it is asked."""

    def __init__(self, budget: Budget, name: str, gives: int = 1 << 40) -> None:
        self.account = budget.account(name, self.evict)
        self.gives = gives
        self.asked: list[int] = []

    def evict(self, wanted: int) -> int:
        self.asked.append(wanted)
        given = min(wanted, self.gives, self.account.used)
        self.account.add(-given)
        return given


@pytest.mark.parametrize("limit", [0, -1])
def test_a_budget_is_more_than_nothing(limit: int) -> None:
    with pytest.raises(ConfigError, match=str(limit)):
        Budget(limit)


def test_accounts_have_names_of_their_own() -> None:
    budget = Budget(1)
    budget.account("records")
    with pytest.raises(ConfigError, match="records"):
        budget.account("records")


def test_no_account_evicts_within_the_limit() -> None:
    budget = Budget(100)
    holder = Holder(budget, "answers")
    holder.account.add(100)
    budget.make_room()
    assert holder.asked == []
    assert budget.used == 100


def test_accounts_give_in_the_order_in_which_they_were_made() -> None:
    budget = Budget(100)
    first, second, third = (Holder(budget, name) for name in ("answers", "retained", "records"))
    for holder in (third, second, first):
        holder.account.add(60)
    budget.make_room()
    assert [holder.account.used for holder in (first, second, third)] == [0, 40, 60]
    assert third.asked == []
    assert second.asked == [20]


def test_empty_accounts_are_skipped() -> None:
    budget = Budget(100)
    fixed = budget.account("fixed")
    holder = Holder(budget, "records")
    fixed.add(150)
    holder.account.add(30)
    budget.make_room()
    assert (fixed.used, holder.account.used) == (150, 0)
    assert budget.used == 150


def test_an_account_that_frees_little_is_asked_again() -> None:
    budget = Budget(100)
    holder = Holder(budget, "answers", gives=7)
    holder.account.add(130)
    budget.make_room()
    assert budget.used <= 100
    assert len(holder.asked) == 5


def test_evict_may_be_set_later() -> None:
    budget = Budget(10)
    account = budget.account("records")

    def evict(wanted: int) -> int:
        account.add(-wanted)
        return wanted

    account.evict = evict
    account.add(15)
    budget.make_room()
    assert account.used == 10


def test_an_eviction_error_goes_to_the_caller_and_releases_the_lock() -> None:
    budget = Budget(10)

    def fail(wanted: int) -> int:
        raise KeyError(wanted)

    account = budget.account("answers", fail)
    account.add(15)
    for _ in range(2):
        with pytest.raises(KeyError):
            budget.make_room()


def test_one_makes_room_and_others_go_on_or_wait() -> None:
    budget = Budget(100)
    evicting, go_on = threading.Event(), threading.Event()

    def evict(wanted: int) -> int:
        evicting.set()
        assert go_on.wait(PATIENCE_S)
        slow.add(-wanted)
        return wanted

    slow = budget.account("slow", evict)
    slow.add(150)
    first = threading.Thread(target=budget.make_room)
    first.start()
    assert evicting.wait(PATIENCE_S)
    slow.add(70)
    budget.make_room()  # returns though nothing is done yet
    assert budget.used == 220
    seen: list[int] = []
    waiting = threading.Thread(
        target=lambda: (budget.make_room(wait=True), seen.append(budget.used))
    )
    waiting.start()
    go_on.set()
    first.join()
    waiting.join()
    assert budget.used == 100
    assert seen == [100]


def test_counting_from_many_threads() -> None:
    account = Account("records")

    def count() -> None:
        for n in range(5000):
            account.add(3 if n % 2 else -2)

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert account.used == 8 * 2500


def test_a_share_is_counted_once_wherever_its_holder_is_interrupted() -> None:
    for at in range(1, 50):
        budget = Budget(100)
        account = budget.account("retained")
        share, other = budget.share(account), budget.share(account)
        other.hold(5)
        share.hold(10)
        is_interrupted = interrupted(at, partial(share.hold, 30))
        share.hold(20)
        assert (share.held, account.used) == (20, 25), f"interrupted at line {at}"
        share.close()
        assert account.used == 5
        if not is_interrupted:
            return
    pytest.fail("it never ends")


def test_holders_are_asked_in_turn_and_not_again_before_they_change() -> None:
    """Of thousands that have nothing to give none is asked at each eviction. (#32)"""
    budget = Budget(100)
    account = budget.account("retained")
    asked: list[str] = []

    def holder(name: str, gives: int) -> Share:
        share = budget.share(account)
        share.hold(40)

        def give() -> int | None:
            asked.append(name)
            if not gives:
                return None
            share.hold(share.held - gives)
            return gives

        share.give = give
        return share

    def evict(wanted: int) -> int:
        freed = 0
        while freed < wanted and (share := account.next_holder()) is not None:
            freed += share.give() or 0
        return freed

    account.evict = evict
    one, stuck, other = holder("one", 10), holder("stuck", 0), holder("other", 10)
    budget.make_room()
    assert (asked, account.used) == (["one", "stuck", "other"], 100)
    asked.clear()
    stuck.hold(70)
    budget.make_room()
    assert asked == ["one", "other", "stuck", "one"]
    assert (one.held, stuck.held, other.held, account.used) == (10, 70, 20, 100)
    for share in (one, stuck, other):
        share.close()
    assert (account.used, account.next_holder()) == (0, None)


def interrupted(at: int, work: Callable[[], None]) -> bool:
    """Do work, interrupted at a line of the budget's code; return whether it was reached."""
    lines = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal lines
        path = frame.f_code.co_filename
        if path != fsview.store.budget.__file__:
            return None
        # At the end of such a block no interrupt comes between it and the release of its lock.
        is_with = linecache.getline(path, frame.f_lineno).lstrip().startswith("with ")
        if event == "line" and not is_with:
            lines += 1
            if lines == at:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return lines >= at


def test_status_is_fit_for_json() -> None:
    budget = Budget(100)
    budget.account("answers").add(3)
    budget.account("records").add(4)
    assert json.loads(json.dumps(budget.status())) == {
        "limit_bytes": 100,
        "used_bytes": 7,
        "accounts": {"answers": 3, "records": 4},
    }
