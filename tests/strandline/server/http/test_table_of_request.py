"""``asked_table``: the table that a request is about, from its text alone, at little cost."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from urllib.parse import urlencode

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from fsview.wire.marker_form import MARKER_DIRECTORY, MARKERS
from strandline.server.api import instant_states
from strandline.server.http.request import (
    INSTANT_STATES,
    STATES_DIRECTORY,
    asked_table,
)
from strandline.server.marker import file as marker_file
from strandline.server.table_threads import NO_TABLE
from timeline.storage.table_id import is_relative
from timeline.table.partition_metadata import PATH_CHARACTERS

VIEW = "/v1/hoodie/view/slices/partition/latest/"


REQUESTS = [
    (VIEW, {"partition": "p", "basepath": "/lake/a b"}, "/lake/a b"),
    (VIEW, {"basepath": "/lake/t/"}, "/lake/t"),
    (VIEW, {"basepath": "s3://lake/t%25"}, "s3://lake/t%25"),
    (VIEW, {"basepath": "/"}, "/"),
    (VIEW, {"basepath": ""}, NO_TABLE),
    (VIEW, {"basepath": "/" + 4096 * "x"}, NO_TABLE),
    (VIEW, {"markerdirpath": "/lake/t/.hoodie/.temp/1"}, NO_TABLE),
    (VIEW, {}, NO_TABLE),
    (
        "/v1/hoodie/marker/all",
        {"markerdirpath": "/lake/t/.hoodie/.temp/20260101000000000", "basepath": "/other"},
        "/lake/t",
    ),
    ("/v1/hoodie/marker/dir/delete", {"markerdirpath": "/lake/t"}, NO_TABLE),
    (
        "/v1/hoodie/instantstate/all",
        {"instantstatedirpath": "/lake/t/.hoodie/.aux/ckp_meta"},
        "/lake/t",
    ),
    ("/v1/hoodie/partitioner/getpartitionindex", {"partitionpath": "/lake/t"}, NO_TABLE),
    ("/v1/strandline/status", {"basepath": "/lake/t"}, NO_TABLE),
]


def test_a_request_is_about_the_table_that_its_route_reads(subtests: pytest.Subtests) -> None:
    for path, params, table in REQUESTS:
        with subtests.test(path=path, params=params):
            assert asked_table(path, urlencode(params).encode()) == table


def test_of_several_base_paths_the_first_counts_however_its_name_is_written() -> None:
    assert asked_table(VIEW, b"x&base%70ath=%2Fone&basepath=/two") == "/one"
    assert asked_table(VIEW, b"basepath=%FF%ff/+x") == "\ufffd\ufffd/ x"


def test_spellings_that_differ_in_their_text_alone_are_one_table() -> None:
    """A table that hangs would take a thread for each otherwise."""
    slashes = ["/" * number for number in range(1, 8)]
    spellings = {
        f"{start}lake{middle}t{end}"
        for start in slashes
        for middle in slashes
        for end in ("", "/", "//")
    }
    spellings |= {"/lake/./t", "/lake/x/../t", "/../lake/t/.", "local:/lake/t"}
    spellings |= {
        f"{scheme}:{start}lake/t" for scheme in ("file", "FILE") for start in ("/", "///")
    }
    assert {asked_table(VIEW, urlencode({"basepath": said}).encode()) for said in spellings} == {
        "/lake/t"
    }
    for said in ("s3://b/lake/t", "s3a://b//lake/t/", "S3N://b/lake/x/../t"):
        assert asked_table(VIEW, urlencode({"basepath": said}).encode()) == "s3://b/lake/t"


SEGMENTS = st.lists(
    st.sampled_from(["t", "a b", ".hoodie", "metadata", "", ".", "..", "%2F", "\U0001f600"]),
    min_size=1,
    max_size=4,
)
BASE_PATHS = st.builds(
    lambda start, segments: start + "/".join(segments),
    st.sampled_from(["/", "//", "file:/", "file:///", "s3a://b/"]),
    SEGMENTS,
)
ENDS = st.sampled_from(["", "/", "//"])
INSTANT = "20260101000000000"


def _assert_alike(
    route: str, parameter: str, directory: str, split: Callable[[str], tuple[str, str]]
) -> None:
    """Check that a directory is about the same table as the base path found in it is."""
    base_path, _ = split(directory)
    assume(not is_relative(base_path))  # it is refused
    said = asked_table(f"{route}/all", urlencode({parameter: directory}).encode())
    assert said == asked_table(VIEW, urlencode({"basepath": base_path}).encode())
    assert said != NO_TABLE


@given(BASE_PATHS, st.lists(st.sampled_from([".aux", "metadata", "a b"]), max_size=2), ENDS)
@example("/t", [], "")
@example("/t/.hoodie/metadata", [], "/")
@example("/", [], "")
def test_a_directory_of_messages_is_about_the_table_that_is_found_in_it(
    base_path: str, below: list[str], end: str
) -> None:
    directory = "/".join([base_path, ".hoodie", *below]) + end
    _assert_alike(INSTANT_STATES, STATES_DIRECTORY, directory, instant_states.split_directory)


@given(BASE_PATHS.filter(lambda said: said.strip("/")), ENDS, ENDS)
def test_a_marker_directory_is_about_the_table_that_is_found_in_it(
    base_path: str, slashes: str, end: str
) -> None:
    directory = f"{base_path}{slashes}/.hoodie/.temp/{INSTANT}{end}"
    _assert_alike(MARKERS, MARKER_DIRECTORY, directory, marker_file.split_directory)


def test_the_longest_directories_are_about_their_table_however_they_are_escaped() -> None:
    base_path = "/" + (PATH_CHARACTERS - 1) * "\U0001f600"
    directory = f"{base_path}/.hoodie/.temp/{INSTANT}"
    assert marker_file.split_directory(directory) == (base_path, INSTANT)
    name, said = (
        "".join(f"%{byte:02x}" for byte in text.encode()) for text in (MARKER_DIRECTORY, directory)
    )
    assert asked_table(f"{MARKERS}/all", f"x=1&{name}={said}".encode()) == base_path


@pytest.mark.parametrize("query", [b"basepath=%b", b"%b=/t", b"basepath%b"])
def test_what_is_too_long_to_be_a_table_is_not_unescaped(query: bytes) -> None:
    """That takes seconds, and dozens of times the memory, for the four megabytes of a request."""
    long = query % (b"%41" * (1 << 18))
    tracemalloc.start()
    try:
        assert asked_table(VIEW, long) == NO_TABLE
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 4 * len(long)
