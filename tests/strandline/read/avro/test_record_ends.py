"""The ends of records are found from many places, and are those of passing one after the other."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from strandline.read.avro.records import RECORDS, ends_by_walks, record_ends
from timeline.encoding.log_block import AVRO_DATA, LogBlock, avro_ends

HEAD = b"\x02\x2220250102000000000"


def content(records: list[bytes], count: int | None = None) -> bytes:
    """Return an Avro block's content, which may say a wrong number of records."""
    sized = b"".join(struct.pack(">i", len(record)) + record for record in records)
    return struct.pack(">ii", 3, len(records) if count is None else count) + sized


def block(data: bytes) -> LogBlock:
    return LogBlock(AVRO_DATA, {}, memoryview(data), 0)


def records(count: int, head: bytes = HEAD, seed: int = 1, longest: int = 300) -> list[bytes]:
    random = np.random.default_rng(seed)
    return [head + random.bytes(int(size)) for size in random.integers(0, longest, count)]


def outcome(find, data: bytes) -> list[int] | str:
    try:
        return list(find(block(data)))
    except ValueError as exc:
        return str(exc)


@pytest.mark.property
@pytest.mark.parametrize("count", [RECORDS, 2 * RECORDS - 1, 2 * RECORDS, 5_000, 70_000])
def test_records_that_begin_alike_are_found_from_many_places(count):
    data = content(records(count))
    found = ends_by_walks(data, count)
    assert found is not None
    assert found.tolist() == avro_ends(block(data)) == record_ends(block(data)).tolist()


def test_records_of_all_forms_are_found(subtests):
    for data in [
        content([]),
        content([b""] * 500),
        content([b"x"] * 500),
        content(records(500, b"")),
        content([*records(300), b"", *records(300, b"other ")]),
        content([*records(300), b"x" * 1_000_000, *records(300)]),
        content([HEAD + b"x" * 1_000_000, *[b""] * 9_000]),
        # Each record has what looks like a record that begins or ends elsewhere.
        content([HEAD + struct.pack(">i", size) + HEAD * 2 for size in range(600)]),
        content([HEAD + content([HEAD] * 9)[8:] for _ in range(600)]),
    ]:
        with subtests.test(data=data):
            assert record_ends(block(data)).tolist() == avro_ends(block(data))


def damaged() -> list[bytes]:
    whole = content(records(500))
    ends = avro_ends(block(whole))
    found = [content(records(500), 499), content(records(500), 501), content(records(500), -1)]
    found += [content(records(500), 2**31 - 1), whole[:-1], whole + b"\0", whole[: ends[250]]]
    for size in (-1, -2000, -(2**31), 2**31 - 1, 2**30, 3):
        at = ends[250]
        found.append(whole[:at] + struct.pack(">i", size) + whole[at + 4 :])
    # A size that leads back to the first record.
    found.append(whole[: ends[3]] + struct.pack(">i", 4 - ends[3]) + whole[ends[3] + 4 :])
    return [*found, whole[:12], whole[:9], whole[:8], whole[:7], b""]


def test_damage_is_named_as_without_walks(subtests):
    for data in damaged():
        with subtests.test(data=data):
            wanted = outcome(avro_ends, data)
            assert isinstance(wanted, str)
            assert outcome(record_ends, data) == wanted
