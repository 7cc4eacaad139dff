"""Rows are joined by equal keys, whichever width their offsets have."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.write.engine.local_join import left_join

KINDS = [pa.string(), pa.large_string()]


@pytest.mark.parametrize("wanted", KINDS, ids=str)
@pytest.mark.parametrize("found", KINDS, ids=str)
def test_keys_of_other_types_of_text_are_equal(wanted: pa.DataType, found: pa.DataType) -> None:
    rows = pa.table({"k": pa.array(["a", None, "c", "b"], wanted), "n": range(4)})
    files = pa.table({"k": pa.array(["c", "x", "a", None], found), "file": range(4)})
    joined = left_join(rows, files, ["k"])
    assert joined["k"].type == wanted
    assert joined["n"].to_pylist() == [0, 1, 2, 3]
    assert joined["file"].to_pylist() == [2, None, 0, None]
