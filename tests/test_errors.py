"""The tree of errors: as drawn, with codes of their own, and able to cross process borders."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator

import pytest

from timeline import errors
from timeline.errors import StrandlineError


def tree(root: type[StrandlineError]) -> Iterator[type[StrandlineError]]:
    yield root
    for child in root.__subclasses__():
        yield from tree(child)


CLASSES = tuple(tree(StrandlineError))
PUBLIC = tuple(kind for kind in CLASSES if kind.__module__ == errors.__name__)


def drawn() -> dict[str, str]:
    """Class name to parent's name, as the picture in the module's docstring has them."""
    parents: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^( {4}[ │├└─]*)(\w+Error)\b", line)
        if not found:
            continue
        indent, name = len(found[1]), found[2]
        while path and path[-1][0] >= indent:
            path.pop()
        parents[name] = path[-1][1] if path else "Exception"
        path.append((indent, name))
    return parents


def test_tree_is_the_one_drawn_in_the_docstring() -> None:
    assert drawn() == {kind.__name__: kind.__bases__[0].__name__ for kind in PUBLIC}


def test_picture_says_which_are_value_errors() -> None:
    said = set(re.findall(r"(\w+Error) \(also ValueError\)", errors.__doc__ or ""))
    assert said == {kind.__name__ for kind in PUBLIC if ValueError in kind.__bases__}


def test_codes_are_unique() -> None:
    codes = [kind.code for kind in CLASSES]
    assert len(set(codes)) == len(codes)


def test_each_class_says_its_code_itself(subtests: pytest.Subtests) -> None:
    for kind in CLASSES:
        with subtests.test(kind=kind):
            assert "code" in vars(kind)
            assert re.fullmatch(r"[a-z]+(_[a-z]+)*", kind.code)
            assert 400 <= kind.status <= 599


def test_errors_pickle_with_message_and_hint(subtests: pytest.Subtests) -> None:
    for kind in CLASSES:
        with subtests.test(kind=kind):
            error = kind("the table has no key 'id'", hint="name one of: a, b")
            again = pickle.loads(pickle.dumps(error))
            assert type(again) is kind
            assert (again.message, again.hint, str(again)) == (
                error.message,
                error.hint,
                str(error),
            )


def test_what_is_for_the_log_is_in_the_text_and_not_in_the_message() -> None:
    error = StrandlineError("outside", hint="ask for a root", detail="/a leads to /b")
    assert (error.message, str(error)) == ("outside", "outside (ask for a root; /a leads to /b)")
    again = pickle.loads(pickle.dumps(StrandlineError("outside", detail="/a")))
    assert (again.message, str(again)) == ("outside", "outside (/a)")


def test_hint_follows_the_message() -> None:
    error = StrandlineError("no such table", hint="check the path")
    assert (error.message, str(error)) == ("no such table", "no such table (check the path)")
