"""Mounts: which group has a table, in any spelling of its path."""

from __future__ import annotations

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor_proxy.seat_ring import Layout
from strandline.fleet.mounts import MAX_PREFIX, Mount, MountTable
from timeline.errors import ConfigError
from timeline.storage.table_id import TableId

GROUPS = ("default", "hot", "cold", "huge")

names = st.sampled_from(["a", "ab", "b", "é", "a b", "p=1"])
paths = st.lists(names, max_size=4).map(tuple)


def s3(path: tuple[str, ...]) -> str:
    return "s3://lake/" + "/".join(path)


def table_of(*mounts: tuple[str, str]) -> MountTable:
    found = MountTable()
    for path, group in mounts:
        found = found.adding(Mount.of(path, group), GROUPS)
    return found


def text(path: str) -> str:
    return str(TableId.of(path).normal())


def test_the_longest_path_counts_name_by_name() -> None:
    mounts = table_of(("s3://lake/a", "hot"), ("s3://lake/a/b/c", "cold"), ("/data", "huge"))
    for path, group in (
        ("s3://lake/a", "hot"),
        ("s3a://lake/a/b/", "hot"),
        ("s3://lake/a/b/cd", "hot"),
        ("s3://lake/a/b/c/d/e", "cold"),
        ("s3://lake/ab", "default"),
        ("s3://lake2/a", "default"),
        ("gs://lake/a", "default"),
        ("file:///data//t", "huge"),
        ("/data/../t", "default"),
        ("/database", "default"),
    ):
        assert mounts.group(text(path)) == group, path
    assert MountTable().group("file:///data/t") == "default"


def test_the_root_of_a_bucket_or_of_the_files_may_be_mounted() -> None:
    mounts = table_of(("s3://lake", "hot"), ("/", "cold"), ("/data", "huge"))
    assert [mounts.group(text(path)) for path in ("s3://lake/x", "/t", "/data/t", "s3://l/x")] == [
        "hot",
        "cold",
        "huge",
        "default",
    ]


@given(st.dictionaries(paths, st.sampled_from(GROUPS), max_size=6), paths)
def test_a_table_is_the_group_s_of_the_nearest_mount_above(
    mounted: dict[tuple[str, ...], str], table: tuple[str, ...]
) -> None:
    mounts = table_of(*((s3(path), group) for path, group in mounted.items()))
    # The model: the longest of all prefixes of the names.
    above = [mounted[table[:n]] for n in range(len(table) + 1) if table[:n] in mounted]
    assert mounts.group(text(s3(table))) == ([*above, "default"][-1] if not above else above[-1])


def spellings(path: tuple[str, ...]) -> st.SearchStrategy[str]:
    """Other spellings of a path on S3, without ``..``."""
    return st.builds(
        lambda scheme, slashes, dots, end: (
            f"{scheme}://lake" + slashes + (slashes + dots).join(path) + end
        ),
        st.sampled_from(["s3", "s3a", "s3n", "S3"]),
        st.sampled_from(["/", "//", "///"]),
        st.sampled_from(["", "./", ".//"]),
        st.sampled_from(["", "/", "//"]) if path else st.just(""),
    )


@given(st.data(), paths, st.lists(names, max_size=2).map(tuple))
def test_spellings_make_no_difference(
    data: st.DataObject, path: tuple[str, ...], below: tuple[str, ...]
) -> None:
    one, other = data.draw(spellings(path)), data.draw(spellings(path))
    mounts = table_of((one, "hot"))
    assert mounts.group(text(data.draw(spellings((*path, *below))))) == "hot"
    with pytest.raises(ConfigError, match="is mounted already, on the group hot"):
        mounts.adding(Mount.of(other, "cold"), GROUPS)
    assert mounts.removing(other) == MountTable()


@given(st.permutations(["s3://lake/a", "s3://lake/a/b", "/data", "gs://x/y"]))
def test_the_order_in_which_mounts_are_added_makes_no_difference(order: list[str]) -> None:
    assert table_of(*((path, "hot") for path in order)) == table_of(
        *((path, "hot") for path in sorted(order))
    )


@given(st.lists(st.sampled_from(["a", "..", ".", ""]), max_size=5))
def test_a_path_with_dots_is_refused_or_means_itself(parts: list[str]) -> None:
    path = "/data/" + "/".join(parts)
    if ".." in parts:
        with pytest.raises(ConfigError, match=r"has '\.\.'; allowed: names"):
            Mount.of(path, "hot")
    else:
        assert Mount.of(path, "hot").path == posixpath.normpath(path)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("", "has 0 characters; allowed: 1 to 4096"),
        ("/" + "x" * MAX_PREFIX, "has 4097 characters"),
        ("/a\0b", "has a NUL"),
        ("lake/a", "is relative; allowed: a URL, or one from '/' on"),
        ("s3://lake/a/../b", "has '..'; allowed: names"),
        ("s3:..", "has '..'; allowed: names"),
        ("/lake/\udcff", "isn't UTF-8; allowed: text"),
    ],
)
def test_what_is_no_path_is_refused_by_name(path: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"the path .*{said}"):
        Mount.of(path, "hot")
    with pytest.raises(ConfigError, match=f"the path .*{said}"):
        MountTable().removing(path)


def test_a_group_must_have_a_server_and_a_mount_must_be_there() -> None:
    with pytest.raises(ConfigError, match="the group gone has no server; allowed: cold, default, "):
        MountTable().adding(Mount.of("/data", "gone"), GROUPS)
    with pytest.raises(ConfigError, match="the group is 'a/b'; allowed: 1 to 64 letters"):
        Mount.of("/data", "a/b")
    with pytest.raises(ConfigError, match="hot has no server; allowed: none, as no server has"):
        MountTable().adding(Mount.of("/data", "hot"), ())
    mounts = table_of(("/data", "hot"))
    with pytest.raises(ConfigError, match="'/dat' isn't mounted; allowed: /data"):
        mounts.removing("/dat")
    with pytest.raises(ConfigError, match="isn't mounted; allowed: none, as none is"):
        MountTable().removing("/dat")


def test_a_mount_may_place_its_tables_in_its_own_way() -> None:
    default = Layout(copies=2, tokens=7)
    mounts = MountTable(
        (Mount.of("/huge", "hot", depth=2), Mount.of("/one", "hot", copies=1, depth=1))
    )
    assert mounts.layout("file:///huge/t", default) == Layout(2, 2, 7)
    assert mounts.layout("file:///one", default) == Layout(1, 1, 7)
    assert mounts.layout("file:///other", default) == default
    for bad in ({"copies": 4}, {"copies": 0}, {"depth": 3}):
        with pytest.raises(
            ConfigError, match=rf"strandline\.fleet\.\w+ is {min(bad.values())}; all"
        ):
            Mount.of("/huge", "hot", **bad)
    with pytest.raises(ConfigError, match="the path /a is mounted twice; allowed: once"):
        MountTable((Mount.of("/a", "hot"), Mount.of("/a/", "cold")))
