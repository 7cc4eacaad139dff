"""The table of queries: its names and arguments are those of the view's methods."""

from __future__ import annotations

import inspect

import pytest

from fsview.local_view import LocalView
from fsview.model.file_system_view import FileSystemView
from fsview.query.queries import QUERIES, QueryScope
from fsview.wire.routes import BY_NAME

METHODS = {name for name in vars(FileSystemView) if not name.startswith("_")} - {
    *("ask", "look_up", "close")
}


def test_a_method_has_a_query_or_is_the_local_view_s_own() -> None:
    own = METHODS & set(vars(LocalView))
    assert QUERIES.keys() | own == METHODS
    assert not QUERIES.keys() & own


def test_a_query_takes_what_its_method_and_its_route_take(subtests: pytest.Subtests) -> None:
    for name in QUERIES:
        with subtests.test(name=name):
            found = QUERIES[name]
            takes = {*inspect.signature(found.function).parameters} - {"s", "v"}
            gives = {*inspect.signature(getattr(FileSystemView, name)).parameters} - {"self"}
            assert {param.argument for param in BY_NAME[name].params} == gives
            one_partition = found.scope not in (QueryScope.LOADED, QueryScope.TABLE)
            assert takes == (gives | found.more.keys()) - (
                {"partition"} if one_partition else set()
            )
            assert ("partition" in gives) is one_partition


@pytest.mark.parametrize(
    "name", [n for n, found in QUERIES.items() if found.scope is QueryScope.TABLE]
)
def test_a_table_wide_answer_is_by_partition_on_the_wire_too(name: str) -> None:
    assert BY_NAME[name].by_partition
