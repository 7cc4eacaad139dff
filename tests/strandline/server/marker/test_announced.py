"""How lines of ``MARKERS<n>`` files are split into markers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.server.marker.file import announced, markers_of_line
from timeline.storage.local import LocalStorage

T = "20250101000000000"
SPECIFIED = re.compile(r"(.+?\.marker\.(?:CREATE|MERGE|APPEND)),?")
"""The grammar of a line; as an implementation it takes quadratic time on lines without markers."""

PARTS = ["p/f.parquet", ".marker.", "CREATE", "MERGE", "APPEND", ".marker.CREATE", ",", "x", "\r"]


@given(st.lists(st.sampled_from(PARTS), max_size=12).map("".join))
def test_a_line_is_split_by_the_grammar(line: str) -> None:
    assert list(markers_of_line(line)) == [match[1] for match in SPECIFIED.finditer(line)]


@pytest.mark.parametrize("part", ["a", ",", ".", ".marker.", ".marker.CREAT"])
def test_megabytes_without_a_marker_are_skipped(tmp_path: Path, part: str) -> None:
    """Quadratic time would be hours."""
    storage = LocalStorage(str(tmp_path))
    content = (part * (4_000_000 // len(part))).encode()
    storage.create(f".hoodie/.temp/{T}/MARKERS0", content + b"\np/f.parquet.marker.MERGE\n")
    assert announced(storage, T) == {"p/f.parquet.marker.MERGE"}
