"""``AnswerCache``: answers are dropped first in, first out, and with their table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fsview.store.budget import Budget
from fsview.table_view import TableView
from fsview.view_manager import ViewManager
from strandline.server.lookup.answer import AnswerCache
from tests.kit.tables import golden

MANY = 100
RESPONSE = b"x" * 100


@pytest.fixture
def tables(tmp_path: Path) -> tuple[TableView, TableView]:
    for name in ("gone", "kept"):
        golden.build("cow_basic_v9", 0, tmp_path / name)
    views = ViewManager([str(tmp_path)])
    return views.view(f"{tmp_path}/gone"), views.view(f"{tmp_path}/kept")


def cache_of(limit_bytes: int) -> tuple[AnswerCache, Budget]:
    budget = Budget(limit_bytes)
    return AnswerCache(budget.account("answers"), budget), budget


def test_the_answers_of_closed_tables_are_dropped(tables: tuple[TableView, TableView]) -> None:
    gone, kept = tables
    cache, budget = cache_of(1 << 30)
    answers: dict[TableView, dict[Any, Any]] = {gone: {}, kept: {}}
    for number in range(MANY):
        for table in tables:
            cache.put(table, answers[table], (number,), RESPONSE)
    both = budget.used
    gone.close()
    cache.forget_closed()
    assert (len(answers[gone]), len(answers[kept])) == (0, MANY)
    assert cache.status() == {"answers": MANY, "bytes": both // 2}
    # Of a request that ends late.
    cache.put(gone, answers[gone], ("late",), RESPONSE)
    assert not answers[gone]
    assert cache.status() == {"answers": MANY, "bytes": both // 2}


def test_the_oldest_answers_are_dropped_across_tables_closed_ones_among_them(
    tables: tuple[TableView, TableView],
) -> None:
    gone, kept = tables
    cache, budget = cache_of(1 << 30)
    old: dict[Any, Any] = {}
    new: dict[Any, Any] = {}
    for number in range(MANY):
        cache.put(kept, old, (number,), RESPONSE)
        if number < MANY // 2:
            cache.put(gone, new, (number,), RESPONSE)
    gone.close()
    cache.forget_closed()
    size = budget.used // MANY
    budget.limit_bytes = budget.used - 10 * size
    budget.make_room()
    assert list(old) == [(number,) for number in range(10, MANY)]
    assert cache.status() == {"answers": MANY - 10, "bytes": budget.limit_bytes}


def test_tables_that_come_and_go_leave_nothing_in_the_order(
    tmp_path: Path, tables: tuple[TableView, TableView]
) -> None:
    _, kept = tables
    cache, budget = cache_of(1 << 30)
    cache.put(kept, {}, ("kept",), RESPONSE)
    alone = budget.used
    for _ in range(10):
        views = ViewManager([str(tmp_path)])
        table = views.view(f"{tmp_path}/gone")
        for number in range(MANY):
            cache.put(table, {}, (number,), RESPONSE)
        table.close()
        cache.forget_closed()
        assert len(cache._order) <= 2
    assert cache.status() == {"answers": 1, "bytes": alone}
