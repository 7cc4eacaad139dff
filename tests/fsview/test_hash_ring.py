"""The ring: what is found by a text depends on the names alone, evenly, and moves little."""

from __future__ import annotations

from collections import Counter

from fsview.hash_ring import HashRing

EXPECTED = list("abcaacbb")
TEXTS = [f"text {n}" for n in range(2000)]


def ring(names: str, tokens: int = 100) -> HashRing[str]:
    return HashRing({name: name for name in names}, tokens)


def found(ring: HashRing[str]) -> dict[str, str]:
    return {text: ring.first(text)[0] for text in TEXTS}


def test_the_order_of_names_does_not_matter() -> None:
    assert found(ring("abcd")) == found(ring("dbca"))


def test_texts_are_spread_evenly() -> None:
    shares = Counter(found(ring("abcd")).values())
    assert sorted(shares) == list("abcd")
    assert max(shares.values()) < 1.3 * len(TEXTS) / 4


def test_a_further_name_takes_its_share_and_moves_nothing_else() -> None:
    before, after = found(ring("abcd")), found(ring("abcde"))
    moved = {text for text in TEXTS if before[text] != after[text]}
    assert {after[text] for text in moved} == {"e"}
    assert 0.7 * len(TEXTS) / 5 < len(moved) < 1.3 * len(TEXTS) / 5


def test_as_many_as_are_asked_for_and_there() -> None:
    three = ring("abc")
    for text in TEXTS[:50]:
        assert len(set(three.first(text, 3))) == 3
        assert three.first(text, 3)[:2] == three.first(text, 2)
        assert three.first(text, 1) == three.first(text)
        assert sorted(ring("ab").first(text, 3)) == ["a", "b"]
    assert ring("").first("text") == ()


def test_the_points_are_those_of_every_release() -> None:
    """Servers of several releases find the same ones."""
    assert [ring("abc").first(text)[0] for text in TEXTS[:8]] == EXPECTED
