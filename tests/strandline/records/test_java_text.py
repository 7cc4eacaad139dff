"""The text of floats, as Java 19 and later write it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.records.schema.cast import float_text

DOUBLES = {
    0.0: "0.0",
    1.5: "1.5",
    0.001: "0.001",
    0.00099: "9.9E-4",
    9999999.0: "9999999.0",
    1e7: "1.0E7",
    123456789.125: "1.23456789125E8",
    1e23: "1.0E23",
    -2e-3: "-0.002",
    5e-324: "4.9E-324",
    1.7976931348623157e308: "1.7976931348623157E308",
    float("inf"): "Infinity",
    float("-inf"): "-Infinity",
}
FLOATS = {1.1: "1.1", 1e-45: "1.4E-45", 3.4028235e38: "3.4028235E38", 16777216.0: "1.6777216E7"}


@pytest.mark.parametrize(("kind", "texts"), [(pa.float64(), DOUBLES), (pa.float32(), FLOATS)])
def test_the_text_is_that_of_java(kind, texts):
    assert float_text(pa.array([*texts, None], kind)).to_pylist() == [*texts.values(), None]
    assert float_text(pa.array([float("nan"), -0.0], kind)).to_pylist() == ["NaN", "-0.0"]
