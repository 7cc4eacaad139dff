"""A view of one caller, as that of a scan, has no record, and loads nothing that keeps one."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing

import pytest

from fsview.local_view import open_view
from tests.kit.tables.small_table import SmallTable
from timeline.errors import StoreError


@pytest.mark.property
def test_what_reads_and_writes_a_table_loads_neither_stores_nor_records() -> None:
    script = (
        "import sys\n"
        "from strandline import LocalEngine, Table, WriteClient\n"
        "import fsview.local_view, fsview.table_view\n"
        "rooms = ('fsview.record', 'fsview.store', 'fsview.view_manager')\n"
        "print(*(m for m in sorted(sys.modules) if m.startswith(rooms)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd="."
    )
    assert done.stdout.split() == [
        "fsview.record",
        "fsview.record.base",
        "fsview.record.status",
        "fsview.store",
        "fsview.store.base",
        "fsview.store.budget",
    ]


def test_a_view_without_a_record_follows_the_table_and_takes_no_record() -> None:
    table = SmallTable()
    table.write(("a", "one"), ("b", "two"))
    with closing(open_view(table.storage)) as view:
        assert [file.file_id for file in view.latest_base_files("a")] == ["one"]
        table.write(("a", "three"))
        view.sync()
        assert [file.file_id for file in view.latest_base_files("a")] == ["one", "three"]
        assert view.table.state.recorded() is None
        assert view.table.status()["store"] == {"failure": None, "waiting_bytes": 0}
        with pytest.raises(StoreError, match="no store"):
            view.table.state.take([b""], 1)
