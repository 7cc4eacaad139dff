"""Log files: real ones, and files that are no whole sequence of blocks."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.formats.hfile import log_block
from tests.timeline.encoding.test_hfile import real
from timeline.encoding.log_block import (
    COMMAND,
    DELETE,
    HFILE_DATA,
    INSTANT_TIME,
    SCHEMA,
    LogBlock,
    TornBlock,
    read_blocks,
    scan_blocks,
)
from timeline.errors import CorruptMetadataError

TWO = log_block(HFILE_DATA, {INSTANT_TIME: "1", SCHEMA: "{}"}, b"abc") + log_block(
    COMMAND, {INSTANT_TIME: "2"}
)


def blocks(data: bytes) -> list[LogBlock]:
    return list(read_blocks(data, "a log"))


@pytest.mark.parametrize("scenario", ["mdt_mor_v6", "mdt_mor_v9"])
def test_the_blocks_of_real_logs_are_read(scenario: str) -> None:
    kinds = []
    for path, data in real(scenario).items():
        if ".log." not in path:
            continue
        for block in read_blocks(data, path):
            kinds.append(block.kind)
            assert block.header[INSTANT_TIME].isdigit()
            assert (SCHEMA in block.header) == (block.kind == HFILE_DATA)
            assert data[block.offset : block.offset + len(block.content)] == block.content
    assert kinds.count(DELETE) == 1  # what makes a file group where there is no file yet
    assert kinds.count(HFILE_DATA) == len(kinds) - 1 >= 15


def test_blocks_come_in_order() -> None:
    first, second = blocks(TWO)
    assert first == LogBlock(HFILE_DATA, {INSTANT_TIME: "1", SCHEMA: "{}"}, b"abc", first.offset)
    assert TWO[first.offset :].startswith(b"abc")
    assert (second.kind, second.header, second.content) == (COMMAND, {INSTANT_TIME: "2"}, b"")
    assert blocks(b"") == []


DAMAGE = [
    (0, 0x58, "at offset 0: it begins with b'XHUDI#'"),
    (6, 0x7F, "bytes wanted at offset 14"),
    (17, 2, "version 2; supported: 1"),
    (22, 0xFF, "a map of -"),
    (22, 0x01, "a map of 16777218 entries at offset 26; allowed: 0 to 64"),
    (30, 0xFF, "bytes wanted at offset"),
    (13, 60, "its size is 66, and at its end "),
    (52, 7, "its parts end at"),
    (len(TWO) - 1, 1, "and at its end 1"),
]


def test_what_is_no_block_is_refused_with_its_offset(subtests: pytest.Subtests) -> None:
    for at, byte, match in DAMAGE:
        with subtests.test(at=at, byte=byte):
            damaged = bytearray(TWO)
            damaged[at] = byte
            with pytest.raises(CorruptMetadataError, match=r"a log \(\d+ bytes\) .*" + match):
                blocks(bytes(damaged))


@given(st.integers(1, len(TWO) - 1))
@settings(max_examples=50)
def test_a_log_that_ends_within_a_block_is_damaged(size: int) -> None:
    first = len(log_block(HFILE_DATA, {INSTANT_TIME: "1", SCHEMA: "{}"}, b"abc"))
    if size == first:
        assert len(blocks(TWO[:size])) == 1
        return
    with pytest.raises(CorruptMetadataError, match=f"at offset {0 if size < first else first}"):
        blocks(TWO[:size])


FIRST = len(log_block(HFILE_DATA, {INSTANT_TIME: "1", SCHEMA: "{}"}, b"abc"))


def test_a_scan_goes_on_after_a_block_that_is_cut_at_any_byte(subtests: pytest.Subtests) -> None:
    for size in range(len(TWO)):
        with subtests.test(size=size):
            found = list(scan_blocks(TWO[:size] + TWO))
            torn = [block for block in found if isinstance(block, TornBlock)]
            whole = [block for block in found if isinstance(block, LogBlock)]
            begin = 0 if size < FIRST else FIRST
            assert [(block.begin, block.end) for block in torn] == (
                [(begin, size)] if size > begin else []
            )
            kept = [0] * (size >= FIRST)
            assert [block.begin for block in whole] == [*kept, size, size + FIRST]
            assert [block.content for block in whole] == [*[b"abc"] * len(kept), b"abc", b""]


def test_a_scan_finds_garbage_before_between_and_after_blocks(subtests: pytest.Subtests) -> None:
    for garbage in [b"x", bytes(100), b"#HUDI", b"#HUDI#", b"#HUDI#" + bytes(8)]:
        with subtests.test(garbage=garbage):
            found = list(scan_blocks(garbage + TWO + garbage))
            assert [type(block) for block in found] == [TornBlock, LogBlock, LogBlock, TornBlock]
            first, *_, last = found
            assert isinstance(first, TornBlock)
            assert (first.begin, first.end) == (0, len(garbage))
            assert isinstance(last, TornBlock)
            assert (last.begin, last.end) == (len(garbage + TWO), len(garbage + TWO + garbage))
            assert [(block.begin, type(block)) for block in scan_blocks(garbage)] == [
                (0, TornBlock)
            ]


def test_a_scan_passes_a_block_of_a_later_version() -> None:
    later = bytearray(TWO)
    later[17] = 2
    first, second = scan_blocks(bytes(later))
    assert isinstance(first, LogBlock)
    assert (first.version, first.header, first.content, first.begin) == (2, {}, b"", 0)
    assert second == blocks(TWO)[1]


def test_a_scan_takes_only_what_was_written_for_a_block_behind_a_torn_one() -> None:
    data = TWO[: FIRST - 1] + TWO
    asked = []

    def is_written(begin: int, end: int) -> bool:
        asked.append((begin, end))
        return end == len(data)

    torn, block = scan_blocks(data, is_written)
    assert isinstance(torn, TornBlock)
    assert (torn.begin, torn.end) == (0, block.begin) == (0, 2 * FIRST - 1)
    assert asked == [(FIRST - 1, 2 * FIRST - 1), (2 * FIRST - 1, len(data))]


class Counted(bytes):
    """Bytes that count how many of them are copied."""

    copied = 0

    def __getitem__(self, item):  # type: ignore[no-untyped-def]
        part = super().__getitem__(item)
        if isinstance(part, bytes):
            Counted.copied += len(part)
        return part


def nested(levels: int, value: bytes) -> bytes:
    """Return a block without whole parts that holds others, each with a right size at its end."""
    data = b""
    for _ in range(levels):
        body = struct.pack(">iiiii", 1, HFILE_DATA, 1, 0, len(value) + len(data)) + value + data
        data = b"#HUDI#" + struct.pack(">q", len(body) + 8) + body
        data += struct.pack(">q", len(data))
    return data


@pytest.mark.parametrize("garbage", [b"#HUDI#" * 4000, nested(200, b"x" * 100)])
def test_a_scan_of_garbage_copies_little_and_finds_one_torn_block(garbage: bytes) -> None:
    Counted.copied = 0
    (torn,) = scan_blocks(Counted(garbage))
    assert isinstance(torn, TornBlock)
    assert (torn.begin, torn.end) == (0, len(garbage))
    assert 0 < Counted.copied < 12 * len(garbage)


@pytest.mark.parametrize("size", [0, 1, (16 << 10) - 3, 16 << 10, 40_000])
def test_a_view_is_scanned_as_bytes_are(size: int) -> None:
    data = b"#HUDI#" + b"x" * size + TWO + b"#HUDI#torn"
    assert list(scan_blocks(memoryview(data))) == list(scan_blocks(data))


@settings(max_examples=100)
@given(st.binary(max_size=60), st.integers(0, len(TWO)))
def test_a_scan_accounts_for_every_byte(noise: bytes, at: int) -> None:
    data = TWO[:at] + noise + TWO[at:]
    begins = [block.begin for block in scan_blocks(data)]
    assert begins == sorted(set(begins))
    assert all(data[begin:].startswith(b"#HUDI#") or begin in (0, at, FIRST) for begin in begins)
    assert begins[0] == 0


def test_contents_are_not_copied() -> None:
    data = bytes(TWO)
    assert all(block.content.obj is data for block in scan_blocks(data))
