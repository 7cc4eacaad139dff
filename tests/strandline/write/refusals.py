"""What a refused write leaves: the table as it was, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.strandline.write.tables import client, row, table


def files(base) -> dict[str, bytes]:
    """Return the content of every file below a folder."""
    base = Path(base)
    return {str(p.relative_to(base)): p.read_bytes() for p in base.rglob("*") if p.is_file()}


def refused(base, error, match, rows=None, operation="upsert", **options):
    """Assert that a write raises and leaves every byte of the table as it was."""
    before = files(base)
    rows = table(row("a", ts=2)) if rows is None else rows
    with client(base, **options) as c, pytest.raises(error, match=match):
        getattr(c, operation)(rows)
    assert files(base) == before
