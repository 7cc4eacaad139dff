"""Files of a partition as Hypothesis draws them."""

from __future__ import annotations

import string
import uuid

from hypothesis import strategies as st

from fsview.files.row import UNKNOWN_SIZE, DataFile
from fsview.model.file_group import BaseFile, LogFile
from fsview.model.file_name import parse_base_file, parse_data_file, parse_log_file

uuids = st.uuids().map(str)
file_ids = st.one_of(
    uuids,
    st.builds("{}-{}".format, uuids, st.integers(0, 70_000)),
    uuids.map(str.upper),
    st.text(string.ascii_letters + string.digits + "-é中", min_size=1, max_size=50),
)
times = st.one_of(
    st.text(string.digits, min_size=17, max_size=17),
    st.text(string.digits, min_size=14, max_size=14),
    st.text(string.digits, min_size=1, max_size=20),
)
numbers = st.integers(0, 2**33)
tokens = st.one_of(
    st.builds("{}-{}-{}".format, numbers, numbers, numbers), st.sampled_from(["0-1", "00-1-2", "x"])
)
sizes = st.one_of(st.integers(0, 2**40), st.integers(0, 2**63 - 1), st.just(UNKNOWN_SIZE))
mtimes = st.one_of(st.just(0), st.integers(0, 2**47), st.integers(-(2**63), 2**63 - 1))


@st.composite
def base_files(draw: st.DrawFn) -> BaseFile:
    ext = draw(st.sampled_from([".parquet", ".orc", ".parquet.gz", ".parquet_x"]))
    name = f"{draw(file_ids)}_{draw(tokens)}_{draw(times)}{ext}"
    file = parse_base_file("p", name, draw(sizes), draw(mtimes), (".parquet", ".orc"))
    assert file is not None
    return file


@st.composite
def log_files(draw: st.DrawFn) -> LogFile:
    token = draw(st.none() | st.builds("{}-{}-{}".format, numbers, numbers, numbers))
    suffix = draw(st.sampled_from(["", ".cdc"])) if token is not None else ""
    end = "" if token is None else f"_{token}{suffix}"
    version = draw(st.integers(0, 2**17))
    name = f".{draw(file_ids)}_{draw(times)}.log.{version}{end}"
    file = parse_log_file("p", name, draw(sizes), draw(mtimes))
    assert file is not None
    return file


files = st.one_of(base_files(), log_files())
few_times = st.sampled_from(
    ["20260101000000000", "20260101000000001", "20260102000000000", "20260101000000", "7"]
)
few_tokens = st.sampled_from(["0-1-2", "1-1-2", "10-1-2", "07-1-2"])
few_ids = st.sampled_from(["a", "A", "5f0c2f4e-9b1e-4d7a-8a5b-0c1d2e3f4a5b-0"])
few_sizes = st.sampled_from([1, 2, 2**40, UNKNOWN_SIZE])
few_mtimes = st.sampled_from([0, 0, 0, 5])


@st.composite
def files_of_few_groups(draw: st.DrawFn, sizes: st.SearchStrategy[int] = few_sizes) -> DataFile:
    file_id, time, token = draw(few_ids), draw(few_times), draw(few_tokens)
    name = f"{file_id}_{token}_{time}.parquet"
    if draw(st.booleans()):
        end = draw(st.sampled_from(["", ".cdc"]))
        name = f".{file_id}_{time}.log.{draw(st.integers(1, 3))}_{token}{end}"
    file = parse_data_file("p", name, draw(sizes), draw(few_mtimes), (".parquet",))
    assert file is not None
    return file


def change(held: dict[str, DataFile], added: list[DataFile], removed: list[str]) -> None:
    """Apply a change to files by name, as to a version."""
    for file in {file.name: file for file in added}.values():
        old = held.get(file.name)
        is_ghost = old is None or old.size == UNKNOWN_SIZE
        says_more = file.size != UNKNOWN_SIZE and (
            file.mtime_ms or (old is not None and file.size != old.size)
        )
        if is_ghost or says_more:
            held[file.name] = file
    for name in removed:
        held.pop(name, None)


OLD, NEW = "20260101000000000", "20260102000000000"


def a_base_file(number: int, time: str = "20260101000000000", size: int = 10_000) -> BaseFile:
    file_id = f"{uuid.UUID(int=number * 7919)}-0"
    name = f"{file_id}_{number}-12-{number + 40}_{time}.parquet"
    return BaseFile("p", name, size, 1_795_248_452_128, file_id, time)
