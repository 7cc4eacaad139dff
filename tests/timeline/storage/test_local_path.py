"""A confined storage touches only paths below its roots, even while others change the path."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.conformance.storage_suite import StorageSuite
from tests.kit.short_runs import quick_runs
from timeline.errors import RootNotAllowedError, StorageError, StorageUnavailableError
from timeline.storage.local import LocalStorage
from timeline.storage.local_path import PlaceOf, resolve


def below(*roots: Path) -> PlaceOf:
    """Return a function that allows paths below some roots, each given by its real path."""
    return lambda path: path if any(Path(path).is_relative_to(root) for root in roots) else None


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path / "table")).confined(below(tmp_path))


class TestConfinedStorage(StorageSuite):
    """The promises of every storage, kept from open directories."""


class Acts:
    """Something to do just before the ``at``-th time that the interpreter touches a file."""

    def __init__(self) -> None:
        self.left = 0
        self.act: Callable[[], None] | None = None

    def hook(self, event: str, _: object) -> None:
        if self.act is None or not event.startswith(("open", "os.", "shutil.")):
            return
        self.left -= 1
        if self.left < 0:
            act, self.act = self.act, None
            act()


@cache
def acts() -> Acts:
    made = Acts()  # an audit hook can't be taken away again
    sys.addaudithook(made.hook)
    return made


def whole(storage: LocalStorage) -> bytes:
    with storage.open_input("dir/inner/file") as file:
        return file.read()


CALLS: dict[str, Callable[[LocalStorage], object]] = {
    "list": lambda s: [info.name for info in s.list("dir/inner")],
    "sizes": lambda s: [info.size for info in s.list("dir/inner")],
    "stat": lambda s: s.stat("dir/inner/file"),
    "read": lambda s: s.read("dir/inner/file"),
    "open_input": lambda s: whole(s),
    "create": lambda s: s.create("dir/inner/new", b"x"),
    "create empty": lambda s: s.create("dir/inner/new"),
    "create deep": lambda s: s.create("dir/inner/a/b/new", b"x"),
    "stream": lambda s: s.create_stream("dir/inner/new").__exit__(None, None, None),
    "replace": lambda s: s.replace("dir/inner/file", b"x"),
    "make_dir": lambda s: s.make_dir("dir/inner/a/b"),
    "delete": lambda s: s.delete("dir/inner/file"),
    "delete_tree": lambda s: s.delete_tree("dir/inner"),
}
MOMENTS = 24


LINKS = ["dir", "dir/inner", "dir/inner/file"]


@pytest.mark.parametrize("flipped", quick_runs(["dir/inner"], LINKS))
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_link_put_in_the_way_at_any_moment_leads_nowhere(
    tmp_path: Path, call: Callable[[LocalStorage], object], flipped: str
) -> None:
    """The path that was checked is the path that is touched."""
    done = 0
    for at in range(MOMENTS):
        place = tmp_path / str(at)
        table, outside = place / "table", place / "outside"
        for root, data in ((table, b"inside"), (outside, b"a secret")):
            (root / "dir" / "inner").mkdir(parents=True)
            (root / "dir" / "inner" / "file").write_bytes(data)
        (outside / "dir" / "inner" / "other").touch()
        before = tree(outside)

        def flip(table: Path = table, outside: Path = outside) -> None:
            (table / flipped).rename(table.parent / "gone")
            (table / flipped).symlink_to(outside / flipped)

        storage = LocalStorage(str(table)).confined(below(table))
        acts().left, acts().act = at, flip
        try:
            found = call(storage)
        except (RootNotAllowedError, StorageError):
            found = None
        finally:
            finished, acts().act = acts().act is not None, None
        assert found not in (b"a secret", ["file", "other"], [8], [8, 0])
        assert tree(outside) == before
        if finished:
            done += 1
    assert done, "the last of these moments comes after the call"


def tree(root: Path) -> dict[str, bytes | None]:
    return {str(p): p.read_bytes() if p.is_file() else None for p in sorted(root.rglob("*"))}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Return a root with a table ``t`` and a file in it."""
    (tmp_path / "lake" / "t" / "dir").mkdir(parents=True)
    (tmp_path / "lake" / "t" / "dir" / "file").write_bytes(b"x")
    return tmp_path / "lake"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("absolute", "{root}/t/dir"),
        ("relative", "dir"),
        ("dots", "../t/./dir"),
        ("spelled", "{spelled}/t/dir"),
        ("twice", "absolute"),
    ],
)
def test_links_that_stay_below_a_root_are_followed(lake: Path, name: str, text: str) -> None:
    spelled = lake.parent / "spelled"
    spelled.symlink_to(lake)

    def place_of(path: str) -> str | None:
        if Path(path).is_relative_to(spelled):
            return str(lake) + path[len(str(spelled)) :]
        return below(lake)(path)

    (lake / "t" / "absolute").symlink_to(lake / "t" / "dir")
    if name != "absolute":
        (lake / "t" / name).symlink_to(text.format(root=lake, spelled=spelled))
    storage = LocalStorage(str(lake / "t")).confined(place_of)
    assert storage.read(f"{name}/file") == b"x"
    assert [info.name for info in storage.list(name)] == ["file"]
    storage.create(f"{name}/deep/new", b"y")
    assert (lake / "t" / "dir" / "deep" / "new").read_bytes() == b"y"


@pytest.mark.parametrize(
    "text", ["/proc/1/root", "/proc/self/root", "../../elsewhere/in", "/dev/fd"]
)
def test_what_a_link_leads_out_to_is_not_even_looked_at(lake: Path, text: str) -> None:
    """There it was looked at before it was refused."""
    (lake / "t" / "link").symlink_to(text)
    storage = LocalStorage(str(lake / "t")).confined(below(lake))
    for call in (storage.list, storage.stat, storage.read, storage.delete_tree):
        for path in ("link", "link/x"):
            with pytest.raises(RootNotAllowedError) as refused:
                call(path)
            assert refused.value.message == f"{path!r} leads outside the roots served"
    with pytest.raises(RootNotAllowedError, match="'link/x' leads outside"):
        storage.create("link/x", b"")


def test_links_in_a_circle_are_nowhere(lake: Path) -> None:
    (lake / "t" / "a").symlink_to("b")
    (lake / "t" / "b").symlink_to("a")
    storage = LocalStorage(str(lake / "t")).confined(below(lake))
    assert storage.list("a/x") == ()
    assert storage.stat("b") is None
    with pytest.raises(OSError, match="symbolic links"):
        resolve(str(lake / "t" / "a"), below(lake), "it")


def test_links_that_never_rest_are_given_up(lake: Path) -> None:
    (lake / "t" / "link").symlink_to("dir")

    def move(place: Path) -> None:
        acts().act = None
        place.rename(f"{place}r")
        place.symlink_to(f"{place}r")

    def place_of(path: str) -> str | None:
        if not path.endswith("/link"):  # just before what this leads to is opened
            acts().left, acts().act = 0, lambda: move(Path(path))
        return below(lake)(path)

    storage = LocalStorage(str(lake / "t")).confined(place_of)
    try:
        with pytest.raises(StorageUnavailableError, match="'link/file': links on the way to it"):
            storage.read("link/file")
    finally:
        acts().act = None
