"""Compactions that are refused: no logs, a strategy that does not fit, logs of a later format."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.kit.tables import reader
from tests.strandline.write.logged_table import LOGS, compactions, rows
from tests.strandline.write.tables import client, row, table
from timeline.encoding.log_block import MAGIC, VERSION
from timeline.errors import ConfigError, UnsupportedTableError
from timeline.instant import State


@pytest.fixture
def base(written, tmp_path) -> Path:
    """A table with logs."""
    return Path(shutil.copytree(written, tmp_path / "t"))


def test_tables_without_logs_are_refused(tmp_path):
    with client(tmp_path / "t") as c:
        c.upsert(table(row("a")))
        for call in (c.compact, c.schedule_compaction):
            with pytest.raises(UnsupportedTableError, match="is COPY_ON_WRITE; allowed: MERGE_ON"):
                call()


def test_a_log_of_a_later_format_is_named_before_a_file_is_written(base):
    _, log = min((partition, name) for partition, name, *_ in reader.logs(base))
    (path,) = base.rglob(log)
    content = bytearray(path.read_bytes())
    of_version = slice(len(MAGIC) + 8, len(MAGIC) + 12)
    content[of_version] = (2).to_bytes(4, "big")
    path.write_bytes(content)
    before, refusal = (
        list(reader.base_files(base)),
        "has a log block of version 2 at offset 0; supported",
    )
    with client(base, **LOGS) as c:
        with pytest.raises(UnsupportedTableError, match=f"{re.escape(log)} {refusal}"):
            c.compact()
        c.upsert(table(row("a", ts=9)))
    assert compactions(base) == [State.INFLIGHT]
    assert {name for _, name, *_ in before} == {name for _, name, *_ in reader.base_files(base)}
    content[of_version] = VERSION.to_bytes(4, "big")
    path.write_bytes(content)
    with client(base, **LOGS) as c:
        c.compact()
    assert rows(base)[0]["ts"] == 9


def test_a_strategy_that_does_not_fit_the_partitions(base):
    name = "org.apache.hudi.table.action.compact.strategy.DayBasedCompactionStrategy"
    with (
        client(base, **LOGS, compaction__strategy=name) as c,
        pytest.raises(ConfigError, match="partition 'eu' isn't a day"),
    ):
        c.compact()
    assert compactions(base) == []
