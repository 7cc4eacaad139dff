"""Stores in PostgreSQL where its driver is missing; ``tests/fleet`` has those on a server."""

from __future__ import annotations

import sys

import pytest

from fsview.store.sql.postgres.database import PostgresDatabase
from timeline.errors import ConfigError


def test_the_driver_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)  # as if it weren't installed
    with pytest.raises(ConfigError, match="needs psycopg") as refused:
        PostgresDatabase("postgresql://localhost/strandline")
    assert refused.value.hint == "pip install 'strandline[fleet]'"
