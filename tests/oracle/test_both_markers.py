"""Markers of a timeline service: real Hudi rolls back our write by them, and we Hudi's."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.server.marker.file import announced
from tests.oracle.hudi import Hudi, merged, rows_of
from tests.oracle.tables import (
    FIRST,
    SCHEMA,
    check,
    die_before_completion,
    ours,
    rides,
    theirs,
    writer,
)
from timeline.storage.local import LocalStorage

SERVED = {
    "hoodie_embed_timeline_server": "true",
    "hoodie_write_markers_type": "TIMELINE_SERVER_BASED",
}


def pending_markers(path: Path) -> Path:
    """Return the folder of the only instant that has markers; they are a service's."""
    (folder,) = (path / ".hoodie" / ".temp").iterdir()
    assert (folder / "MARKERS.type").read_text() == "TIMELINE_SERVER_BASED"
    return folder


def files_of(path: Path, instant: str) -> list[str]:
    return sorted(str(p.relative_to(path)) for p in path.rglob(f"*_{instant}.parquet"))


LAST = rides(range(5), ts=7)


@pytest.mark.oracle
@pytest.mark.parametrize("version", [6, 9])
def test_hudi_rolls_back_ours(hudi: Hudi, path: Path, version: int) -> None:
    """Also what a task wrote into a ``MARKERS<n>`` of its own when it couldn't ask the service."""
    doomed = rides(range(30), ts=9, note="must never be seen")
    die_before_completion(path, ours(version, **SERVED), doomed)
    folder = pending_markers(path)
    *kept, moved = (folder / "MARKERS0").read_text().splitlines()
    (folder / "MARKERS0").write_text("".join(f"{line}\n" for line in kept))
    (folder / "MARKERS987654321").write_text(f"{moved}\n")
    assert len(files_of(path, folder.name)) == len(kept) + 1 == 3

    hudi.write(LAST, path, theirs(version, "upsert", hoodie_index_type="SIMPLE"))
    assert files_of(path, folder.name) == []
    check(hudi, path, merged(rows_of(FIRST), rows_of(LAST)))


@pytest.mark.oracle
@pytest.mark.parametrize("version", [6, 9])
def test_we_roll_back_hudis(hudi: Hudi, path: Path, version: int) -> None:
    from pyspark.sql import functions
    from pyspark.sql.pandas.types import from_arrow_schema

    rows = [tuple(row.values()) for row in rides(range(30), ts=9).to_pylist()]
    frame = hudi.spark.createDataFrame(rows, from_arrow_schema(SCHEMA)).coalesce(1)
    # Fails in the task that has written the rows before it.
    broken = functions.when(frame.id == "r0029", functions.raise_error(functions.lit("broken")))
    options = theirs(version, "bulk_insert", hoodie_bulkinsert_sort_mode="NONE", **SERVED)
    job = frame.withColumn("note", broken.otherwise(frame.note)).write.format("hudi")
    with pytest.raises(Exception, match="broken"):
        job.options(**options, **{"hoodie.metadata.enable": "false"}).mode("append").save(str(path))
    folder = pending_markers(path)
    marked = announced(LocalStorage(str(path)), folder.name)
    assert {name.partition(".marker")[0] for name in marked} >= set(files_of(path, folder.name))
    assert marked

    with writer(path, {**ours(version), "strandline.write.rollback.foreign": "true"}) as client:
        assert client.upsert(LAST).rolled_back == (folder.name,)
    assert files_of(path, folder.name) == []
    assert not folder.exists()
    check(hudi, path, merged(rows_of(FIRST), rows_of(LAST)))
