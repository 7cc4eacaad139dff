"""What a worker imports until its first answer; ``benchmarks.lookups.fresh`` has its cost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fsview.table_view import TableView
from tests.executor_proxy.serving import server_of
from tests.kit.tables.small_table import SmallTable

ASK = """
import sys
from executor_proxy import connect
view = connect(sys.argv[1], sys.argv[2], fallback=sys.argv[3] == "listing")
assert [f.file_id for f in view.latest_base_files("p=1")] == ["a-0"]
print(*sys.modules)
"""
UNNEEDED = {"asyncio", "concurrent", "fastavro", "fsspec", "numpy", "pandas", "pyarrow", "requests"}
OF_LISTING = {"fsview.table_view", "timeline.meta_client", "timeline.encoding.avro"}


@pytest.mark.property
@pytest.mark.parametrize("way", ["service", "listing"])
def test_a_first_look_up_imports_what_it_needs_alone(
    way: str, table: SmallTable, tmp_path: Path
) -> None:
    base = str(tmp_path / "t")
    with server_of(TableView(table.storage), base) as server:
        url = server.url if way == "service" else "http://127.0.0.1:9"
        worker = subprocess.run(
            [sys.executable, "-c", ASK, url, base, way], capture_output=True, text=True, check=False
        )
    assert worker.returncode == 0, worker.stderr
    loaded = set(worker.stdout.split())
    assert not loaded & UNNEEDED
    assert loaded & OF_LISTING == (set() if way == "service" else OF_LISTING)
