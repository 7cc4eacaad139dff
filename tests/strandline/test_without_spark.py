"""What needs PySpark says so where it isn't installed."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest


@pytest.mark.parametrize(
    "module", ["strandline.spark", "strandline.spark_source", "strandline.stream"]
)
def test_the_extra_is_named(module, monkeypatch):
    for name in (*sys.modules, "pyspark"):
        if name.partition(".")[0] == "pyspark":
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(ImportError, match=rf"{module} needs PySpark .*'strandline\[spark\]'"):
        import_module(module)
