"""``RootUses``: a root is due once it has no client and its time is over, and only then."""

from __future__ import annotations

import pytest

from strandline.server.process.shared_service import RootUses


def test_a_root_is_unused_after_its_last_client_only() -> None:
    uses = RootUses()
    uses.begin("/a")
    uses.begin("/a")
    assert not uses.end("/a", 10)
    assert (uses.clients, uses.next_due_s, uses.take_due(99)) == (1, None, ())
    assert uses.end("/a", 20)
    assert (uses.clients, uses.is_empty, uses.next_due_s) == (0, False, 20)
    assert uses.take_due(19.9) == ()
    assert uses.take_due(20) == ("/a",)
    assert uses.is_empty


def test_a_root_that_is_kept_is_in_use_again_with_its_next_client() -> None:
    uses = RootUses()
    for root, until_s in (("/a", 10), ("/b", 20)):
        uses.begin(root)
        uses.end(root, until_s)
    uses.begin("/a")
    assert uses.take_due(99) == ("/b",)
    assert not uses.is_empty


def test_a_root_is_not_released_more_often_than_taken() -> None:
    uses = RootUses()
    uses.begin("/a")
    uses.end("/a", 0)
    with pytest.raises(ValueError, match="root '/a' has no client"):
        uses.end("/a", 0)
