"""``ForkingMap`` is a dictionary, and forks don't see each other's changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsview.snapshot.snapshot import ForkingMap

keys = st.integers(0, 40).map(str)
changes = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 5), keys, st.integers()),
        st.tuples(st.just("delete"), st.integers(0, 5), keys, st.none()),
        st.tuples(st.just("fork"), st.integers(0, 5), st.none(), st.none()),
    ),
    max_size=40,
)


@given(changes)
def test_forks_are_what_copies_of_dictionaries_are(changes) -> None:
    maps, models = [ForkingMap()], [{}]
    for kind, which, key, value in changes:
        chosen, model = maps[which % len(maps)], models[which % len(maps)]
        if kind == "fork":
            maps.append(chosen.fork())
            models.append(dict(model))
        elif kind == "set":
            chosen[key] = model[key] = value
        else:
            assert chosen.pop(key, None) == model.pop(key, None)
    for found, model in zip(maps, models, strict=True):
        assert dict(found) == model
        assert len(found) == len(model)
        assert sorted(found) == sorted(model)
        assert all(found.get(str(n)) == model.get(str(n)) for n in range(41))
        assert all((str(n) in found) == (str(n) in model) for n in range(41))


def test_a_key_that_is_not_there_is_an_error() -> None:
    empty: ForkingMap[int] = ForkingMap()
    with pytest.raises(KeyError, match="a"):
        empty["a"]
    with pytest.raises(KeyError, match="a"):
        del empty["a"]
