"""HFiles: real ones of metadata tables, forms that these may have, and damage of any kind."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.formats.hfile import block, entry, hfile, trailer
from tests.kit.short_runs import examples
from tests.kit.tables import golden
from timeline.encoding.hfile import HFile
from timeline.encoding.log_block import HFILE_DATA, read_blocks
from timeline.errors import CorruptMetadataError

FILES = ".hoodie/metadata/files"
ENTRIES = [(f"key {n:03d}".encode(), f"value {n}".encode() * (n % 9)) for n in range(100)]


@cache
def real(scenario: str) -> dict[str, bytes]:
    """Return path → content of the files of a metadata table's partition ``files``."""
    storage = golden.GoldenStorage(scenario, golden.steps(scenario)[-1])
    found = (f"{FILES}/{info.name}" for info in storage.list(FILES))
    return {path: storage.read(path) for path in found if not path.endswith(".crc")}


@cache
def smallest() -> bytes:
    """Return the smallest real HFile."""
    found = (data for path, data in real("mdt_mor_v9").items() if path.endswith(".hfile"))
    return min(found, key=len)


def entries_of(data: bytes) -> list[tuple[bytes, bytes]]:
    return list(HFile(data, source="a file").entries())


def entries_or_error(data: bytes) -> object:
    """Return a file's entries, or how its error begins."""
    try:
        return entries_of(data)
    except CorruptMetadataError as error:
        return str(error)[:16]


def refused(data: bytes, match: str = "") -> None:
    with pytest.raises(CorruptMetadataError, match=r"a file at offset \d+.*" + match):
        entries_of(data)


@pytest.mark.parametrize("scenario", ["mdt_mor_v6", "mdt_mor_v9"])
def test_real_files_have_the_entries_that_they_say(scenario: str) -> None:
    read = 0
    for path, data in real(scenario).items():
        if path.endswith(".hfile"):
            files = [HFile(data, source=path)]
        elif ".log." in path:
            blocks = read_blocks(data, path)
            files = [
                HFile(bytes(each.content), source=path, offset=each.offset)
                for each in blocks
                if each.kind == HFILE_DATA
            ]
        else:
            continue
        for file in files:
            entries = list(file.entries())
            keys = [key for key, _ in entries]
            assert keys == sorted(set(keys))
            last = file.info[b"hfile.LASTKEY"]
            assert keys[-1] == last[2 : 2 + last[1]]
            average = int.from_bytes(file.info[b"hfile.AVG_VALUE_LEN"], "big")
            assert sum(len(value) for _, value in entries) // len(entries) == average
            read += 1
    assert read >= 15


def test_files_of_every_form_are_read(subtests: pytest.Subtests) -> None:
    for compressed, checksum, per_block, versions, between in product(
        [True, False], [0, 1, 2], [1, 7, 100], [True, False], [b"", b"IDXLEAF2"]
    ):
        with subtests.test(
            compressed=compressed,
            checksum=checksum,
            per_block=per_block,
            versions=versions,
            between=between,
        ):
            data = hfile(
                ENTRIES,
                {b"schema": b"{}"},
                compressed=compressed,
                checksum=checksum,
                per_block=per_block,
                versions=versions,
                between=between,
            )
            file = HFile(data, source="a file")
            assert file.info[b"schema"] == b"{}"
            assert list(file.entries()) == ENTRIES


def test_a_file_without_entries() -> None:
    assert entries_of(hfile([], {})) == []


def test_a_version_number_may_have_more_bytes(subtests: pytest.Subtests) -> None:
    for after in [b"\x8f\x01", b"\x8e\x01\x02", b"\x87\x01", b"\x80" + b"\1" * 8]:
        with subtests.test(after=after):
            data = block(b"DATABLK*", entry(b"a", b"1", after) + entry(b"b", b"2", after))
            info = hfile([], {})
            moved = len(data) + info.index(b"FILEINF2")
            whole = data + info[:-4096] + trailer({1: moved, 7: 2, 9: 0, 10: 0, 12: 1})
            assert entries_of(whole) == [(b"a", b"1"), (b"b", b"2")]


def test_forms_that_are_not_read() -> None:
    plain = hfile(ENTRIES, {})
    refused(b"short", "a trailer alone has 4096")
    refused(plain[:-4096] + b"x" * 4096, "no trailer")
    refused(plain[:-1] + b"\2", "version 2; supported: 3")
    refused(plain[:-4096] + trailer({1: 0, 12: 6}), "compression 6; supported: 1, 2")
    refused(plain[:-4096] + trailer({12: 1}), "a block where none can be")
    refused(plain[:-4096] + trailer({1: 0, 12: 1}), "a block b'DATABLK")
    refused(hfile(ENTRIES, {b"MAX_TAGS_LEN": b"\0"}), "entries with tags")


def test_a_file_that_says_more_or_fewer_entries_is_damaged() -> None:
    data = hfile(ENTRIES, {}, per_block=50)
    info_at = data.index(b"FILEINF2")
    last = data.rindex(b"DATABLK*")
    numbers = {1: info_at, 7: 100, 9: 0, 10: last, 12: 1}
    assert entries_of(data[:-4096] + trailer(numbers)) == ENTRIES
    refused(data[:-4096] + trailer({**numbers, 7: 99}), "100 entries; its trailer says 99")
    refused(data[:-4096] + trailer({**numbers, 10: 0}), "50 entries; its trailer says 100")
    refused(data[:-4096] + trailer({**numbers, 9: last}), "50 entries; its trailer says 100")


def test_a_wrong_checksum() -> None:
    data = bytearray(hfile(ENTRIES, {}, compressed=False, checksum=1))
    assert entries_of(bytes(data)) == ENTRIES
    at = data.index(b"value 5")
    data[at] ^= 1
    refused(bytes(data), "checksum is wrong")


@pytest.mark.property
def test_a_block_that_grows_when_it_is_decompressed() -> None:
    """No more is decompressed than its header announces."""
    data = bytearray(hfile([(b"k", b"x" * 100_000_000)], {}))
    data[12:16] = (1000).to_bytes(4, "big")
    refused(bytes(data), "isn't of 1000 bytes")


def test_a_block_that_would_be_a_thousand_times_as_large_is_not_decompressed() -> None:
    entries = [(b"k", b"\0" * 20_000_000)]
    data = hfile(entries, {})
    assert len(data) < 30_000
    with pytest.raises(
        CorruptMetadataError, match=r"compressed to \d+; allowed: at most 100 times"
    ):
        entries_of(data)
    small = [(b"k", b"\0" * 400_000)]
    assert entries_of(hfile(small, {})) == small


def test_many_small_blocks_that_would_be_a_thousand_times_as_large_are_not_decompressed() -> None:
    """Blocks of less than 1 MiB were exempt, and 332 kB became 315 MB."""
    entries = [(b"%d" % n, b"\0" * 400_000) for n in range(3)]
    assert entries_of(hfile(entries[:1], {}, per_block=1)) == entries[:1]
    data = hfile(entries, {}, per_block=1)
    file = HFile(data, source="a file").entries()
    assert next(file) == entries[0]
    with pytest.raises(
        CorruptMetadataError, match=r"blocks of 800\d+ bytes so far, in a file comp"
    ):
        next(file)


def test_an_offset_is_that_in_the_file_around() -> None:
    data = hfile(ENTRIES, {})
    with pytest.raises(CorruptMetadataError, match="at offset 1000 has"):
        HFile(data[:100], source="a file", offset=1000)


@given(st.data())
@settings(max_examples=examples(150))
def test_a_damaged_file_is_refused_or_reads_as_before(data: st.DataObject) -> None:
    file = bytearray(smallest())
    expected = entries_of(bytes(file))
    if data.draw(st.booleans(), label="cut"):
        refused(bytes(file[: data.draw(st.integers(0, len(file) - 1))]))
        return
    # Most of a small file is zeros behind the trailer's message.
    at = data.draw(st.integers(0, len(file) - 3900) | st.integers(0, len(file) - 1))
    file[at] ^= data.draw(st.integers(1, 255))
    assert entries_or_error(bytes(file)) in (expected, "a file at offset")
