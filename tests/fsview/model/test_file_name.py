"""Names of data files; the sentences quoted are the rules they must obey."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsview.model.file_group import BaseFile, LogFile
from fsview.model.file_name import (
    base_file_name,
    data_files,
    is_data_file,
    parse_base_file,
    parse_base_name,
    parse_data_file,
    parse_log_file,
)
from timeline.storage.base import FileInfo

EXTENSIONS = (".parquet",)
FILE_ID = "b5aa9af2-95fa-4d93-bf20-b0a721cb4da8-0"
TIME = "20261121080720429"

numbers = st.integers(0, 10**6)
tokens = st.builds("{}-{}-{}".format, numbers, numbers, numbers)
times = st.text(string.digits, min_size=14, max_size=17)
plain_ids = st.text(string.ascii_lowercase + string.digits + "-", min_size=1)


@given(plain_ids, tokens, times, st.sampled_from([".parquet", ".orc", ".hfile"]))
def test_a_base_file_name_is_read_back(file_id: str, token: str, time: str, ext: str) -> None:
    name = base_file_name(file_id, token, time, ext)
    assert parse_base_file("p", name, 1, 2, (ext,)) == BaseFile("p", name, 1, 2, file_id, time)


@given(plain_ids, times, st.integers(1, 99), st.none() | tokens, st.sampled_from(["", ".cdc"]))
def test_a_log_file_name_is_read_back(
    file_id: str, time: str, version: int, token: str | None, suffix: str
) -> None:
    if token is None:
        suffix = ""
    name = f".{file_id}_{time}.log.{version}{'' if token is None else f'_{token}'}{suffix}"
    expected = LogFile("p", name, 1, 2, file_id, time, version, token, suffix)
    assert parse_log_file("p", name, 1, 2) == expected
    assert parse_data_file("p", name, 1, 2, EXTENSIONS) == expected


def test_file_id_and_instant_lie_where_hudi_looks(subtests: pytest.Subtests) -> None:
    for name, parts in [
        (f"{FILE_ID}_0-55-74_{TIME}.parquet", (FILE_ID, TIME)),
        # "dots before the second underscore are harmless"
        (f"a.b_0.1-2_{TIME}.parquet", ("a.b", TIME)),
        # "a third underscore before the dot breaks it": what follows the last underscore counts
        (f"a_b_c_{TIME}.parquet", ("a", f"{TIME}.parquet")),
        # without such a dot the instant is all that follows the last underscore
        (f"a_0-1-2_{TIME}", ("a", TIME)),
        ("a_b.parquet", ("a", "b.parquet")),
        ("plain.parquet", None),
    ]:
        with subtests.test(name=name, parts=parts):
            assert parse_base_name(name) == parts


def test_what_is_no_data_file_is_left_out(subtests: pytest.Subtests) -> None:
    for name in [
        ".hoodie_partition_metadata",
        ".hoodie_partition_metadata.parquet",
        f".{FILE_ID}_0-55-74_{TIME}.parquet.crc",
        f"..{FILE_ID}_{TIME}.log.1_0-1-2.crc",
        "_SUCCESS",
        "foreign.parquet",
        f".a.b_{TIME}.log.1_0-1-2",  # 0.15 takes a dot in the id of a log, 1.x doesn't
        f".{FILE_ID}_{TIME}.log.x_0-1-2",
    ]:
        with subtests.test(name=name):
            assert parse_data_file("p", name, 1, 2, EXTENSIONS) is None


def test_a_listing_keeps_known_extensions_and_anything_with_log_in_its_name() -> None:
    kept = ["a.parquet", "a.orc", "a.hfile", "a.lance", "a.log", ".a_1.log.1_0-1-2", "x.logs"]
    assert all(map(is_data_file, kept))
    assert not any(map(is_data_file, ["a.crc", "a", "parquet", ".hoodie_partition_metadata"]))


def test_a_base_file_has_an_extension_of_its_table() -> None:
    name = f"{FILE_ID}_0-55-74_{TIME}.orc"
    assert parse_data_file("p", name, 1, 2, EXTENSIONS) is None
    assert parse_data_file("p", name, 1, 2, (".parquet", ".orc")) is not None


def test_directories_and_side_files_of_a_listing_are_no_files_of_it() -> None:
    name = f"{FILE_ID}_0-55-74_{TIME}.parquet"
    listing = [
        FileInfo(name, 7, 9),
        FileInfo(f".{name}.crc", 1, 9),
        FileInfo("below.parquet", 0, 9, is_dir=True),
    ]
    assert data_files("p", listing, EXTENSIONS) == [BaseFile("p", name, 7, 9, FILE_ID, TIME)]
