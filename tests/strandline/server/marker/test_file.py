"""``strandline.server.marker.file``: reading marker directories, whatever they contain."""

from __future__ import annotations

import logging
import tracemalloc
from pathlib import Path

import pytest

from strandline.server.marker.file import read_stored
from timeline.errors import CorruptMetadataError
from timeline.storage.base import ReadLimits
from timeline.storage.local import LocalStorage

LIMIT = 1 << 20
GOOD = "2024-01-01/f1-0_0-1-1_20261121090000000.parquet.marker.CREATE"


def stored(base: Path, *contents: bytes) -> LocalStorage:
    """Return the storage of markers that are these files."""
    (base / "m").mkdir()
    for number, content in enumerate(contents):
        (base / "m" / f"MARKERS{number}").write_bytes(content)
    return LocalStorage(str(base), limits=ReadLimits(markers_bytes=LIMIT))


@pytest.mark.parametrize(
    "foreign",
    [b"\0" * (LIMIT - 200), b"p/" + b"x" * 5000, b"p/a\x1bb.parquet.marker.CREATE"],
    ids=["NULs", "too long", "control characters"],
)
def test_lines_that_no_marker_has_are_left_out(
    tmp_path: Path, foreign: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    storage = stored(tmp_path, foreign + b"\n" + GOOD.encode() + b"\n\n")
    caplog.set_level(logging.WARNING)
    assert read_stored(storage, "m").names == (GOOD,)
    assert [record.getMessage() for record in caplog.records] == [
        "m: 1 lines aren't marker names and are ignored"
    ]


def test_what_a_write_has_in_all_its_files_is_bounded(tmp_path: Path) -> None:
    half = (GOOD + "\n").encode() * (LIMIT // 2 // len(GOOD))
    storage = stored(tmp_path, half, half)
    with pytest.raises(CorruptMetadataError, match=r"MARKERS<n> has .*markers\.max\.bytes allows"):
        read_stored(storage, "m")
    assert storage.calls.snapshot() == {("list", "other"): 1}, "nothing is read of them"


def test_very_short_lines_do_not_take_far_more_than_their_files(tmp_path: Path) -> None:
    short = b"".join(b"%x\n" % number for number in range(LIMIT // 8))
    storage = stored(tmp_path, short)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptMetadataError, match="MARKERS<n> has"):
            read_stored(storage, "m")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 4 * LIMIT
