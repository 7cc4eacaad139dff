"""Paths outside the roots are refused, however they are spelled."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fsview.local_view import LocalView
from fsview.served_roots import resolved
from fsview.table_view import TableView
from fsview.view_manager import ViewManager
from tests.kit.tables import golden
from timeline.errors import InputError, RootNotAllowedError
from timeline.storage.local import LocalStorage


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Return a directory with a table ``t`` in it, and one outside."""
    golden.build("cow_basic_v9", 0, tmp_path / "lake" / "t")
    golden.build("cow_basic_v9", 0, tmp_path / "outside" / "t")
    return tmp_path / "lake"


@pytest.mark.parametrize("end", ["t", "t/", "../outside/t", "link", "t2"])
def test_what_lies_outside_the_roots_is_refused(lake: Path, end: str) -> None:
    """A root is a directory, not the beginning of a name; no ``..`` and no link leads out."""
    golden.build("cow_basic_v9", 0, lake / "allowed2" / "t")
    (lake / "allowed").mkdir()
    (lake / "allowed" / "link").symlink_to(lake.parent / "outside" / "t")
    views = ViewManager([str(lake / "allowed")])
    path = {
        "t": f"{lake}/t",
        "t/": f"file://{lake}/t/",
        "../outside/t": f"{lake}/allowed/../../outside/t",
        "link": f"{lake}/allowed/link",
        "t2": f"{lake}/allowed2/t",
    }[end]
    with pytest.raises(RootNotAllowedError, match="outside the roots"):
        views.view(path)
    assert views.open_tables() == ()


def test_a_root_added_later_allows_what_it_holds(lake: Path) -> None:
    views = ViewManager()
    with pytest.raises(RootNotAllowedError, match="none"):
        views.view(f"{lake}/t")
    views.add_root(f"file://{lake}/t")
    assert LocalView.newest(views.view(f"{lake}/t")).last_instant() is not None


def test_other_stores_are_compared_by_family_and_bucket() -> None:
    assert resolved("s3a://bucket/lake/x/../t/") == resolved("s3://bucket/lake/t")
    views = ViewManager(["s3://bucket/lake"])
    for path in ("s3://other/lake/t", "s3://bucket/lake/../t", "gs://bucket/lake/t", "/lake/t"):
        with pytest.raises(RootNotAllowedError):
            views.view(path)


@pytest.mark.parametrize("base_path", ["t", "./t", "file:t", "lake/t"])
def test_a_relative_base_path_is_refused(
    lake: Path, base_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be taken from the working directory of the service."""
    monkeypatch.chdir(lake)
    views = ViewManager([str(lake)])
    with pytest.raises(InputError, match="relative; allowed: a URL"):
        views.view(base_path)


def test_a_partition_outside_the_roots_is_refused(lake: Path) -> None:
    (lake / "t" / "link").symlink_to(lake.parent / "outside" / "t" / "2024-01-01")
    (lake / "t" / "inner").symlink_to(lake / "t" / "2024-01-01")
    view = LocalView.newest(ViewManager([str(lake)]).view(f"{lake}/t"))
    assert len(view.latest_base_files("inner")) == len(view.latest_base_files("2024-01-01")) == 1
    with pytest.raises(RootNotAllowedError, match="link leads to"):
        view.latest_base_files("link")


def test_a_partition_outside_the_roots_is_none_of_the_table(lake: Path) -> None:
    """Otherwise any writer of a partition could make it unloadable with one link."""
    (lake / "t" / "link").symlink_to(lake.parent / "outside" / "t" / "2024-01-01")
    table = ViewManager([str(lake)]).view(f"{lake}/t")
    LocalView.newest(table).load_all_partitions()
    without_link = TableView(LocalStorage(f"{lake.parent}/outside/t"))
    LocalView.newest(without_link).load_all_partitions()
    assert table.loaded.in_order() == without_link.loaded.in_order() != []


@pytest.mark.parametrize(
    "path",
    ["/proc/1/root", "/proc/self/cwd/etc", "/nowhere/t", "{lake}/link/x", "{lake}/t/proc"],
)
def test_a_base_path_outside_the_roots_is_refused_by_its_text(
    lake: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path that the process may not access was a 500, not a 403."""
    (lake / "link").symlink_to("/proc/1/root")
    (lake / "t" / "proc").symlink_to("../../../../../../../../proc/1/root")
    looked_at: list[str] = []
    readlink = os.readlink

    def noted(at: str) -> str:
        # Not audited by Python, so that it is seen only here.
        looked_at.append(at)
        return readlink(at)

    views = ViewManager([str(lake)])
    monkeypatch.setattr(os, "readlink", noted)
    with pytest.raises(RootNotAllowedError, match="is outside the roots served"):
        views.view(path.format(lake=lake))
    beyond = [at for at in looked_at if not Path(at).is_relative_to(lake)]
    assert {Path(at) for at in beyond} <= set(lake.parents)


def test_a_root_is_known_as_it_was_given_and_as_it_resolves(lake: Path) -> None:
    given = lake.parent / "given"
    given.symlink_to(lake)
    views = ViewManager([str(given)])
    table = views.view(f"{given}/t")
    assert views.view(f"{lake}/t") is table
    (lake / "absolute").symlink_to(given / "t")
    assert views.view(f"{given}/absolute") is table
    (lake.parent / "third").symlink_to(lake)
    with pytest.raises(RootNotAllowedError, match="is outside the roots served"):
        views.view(f"{lake.parent}/third/t")
    assert views.roots() == (str(lake),)


def test_the_root_may_be_all_of_the_machine(lake: Path) -> None:
    views = ViewManager(["/"])
    (lake / "link").symlink_to(lake / "t")
    assert views.view(f"{lake}/link") is views.view(f"{lake}/t")
    assert views.storage_of("/")[1].stat("tmp") is not None
