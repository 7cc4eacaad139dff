"""Warnings that PySpark gives of itself; all others are errors (see pyproject.toml)."""

from __future__ import annotations

import pytest

OF_PYSPARK = (
    # collect() leaves the socket on which the JVM sends the rows to the garbage collector.
    "ignore:unclosed <socket.socket:ResourceWarning",
    # 3.5 compares versions with distutils, which setuptools stands in for.
    "ignore:distutils Version classes are deprecated:DeprecationWarning",
    # 3.5 and 4 turn frames into pandas with what pandas is going to take away.
    "ignore:is_(datetime64tz|categorical)_dtype is deprecated:DeprecationWarning",
    "ignore:The copy keyword is deprecated:DeprecationWarning",
    # 4.3 says so at every Arrow function; tox installs pandas 2, a developer may have 3.
    "ignore:PySpark does not yet fully support pandas:FutureWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("spark") or item.get_closest_marker("oracle"):
            for ignored in OF_PYSPARK:
                item.add_marker(pytest.mark.filterwarnings(ignored))
