"""The names of markers that a write may create: those that Hudi's writers send, and no others."""

from __future__ import annotations

from collections import Counter

import pytest

from strandline.server.marker.name import check_name
from tests.kit.tables import golden
from timeline.errors import InputError
from timeline.meta_client import TableMetaClient
from timeline.metadata.codec import metadata_type
from timeline.metadata.instant_metadata import CommitMetadata

T = "20261121090000000"
BEFORE = "20261121080000000"
ID = "aaaaaaaa-0000-0000-0000-000000000001-0"


NO_MARKERS = [
    "",
    "m",
    "p/m.marker.CREATE",
    f"p/{ID}.parquet.marker.CREATE",
    f"p/{ID}_0-1-2_{T}.parquet",
    f"p/{ID}_0-1-2_{T}.parquet.marker",
    f"p/{ID}_0-1-2_{T}.parquet.marker.",
    f"p/{ID}_0-1-2_{T}.parquet.marker.create",
    f"p/{ID}_0-1-2_{T}.parquet.marker.DELETE",
    f"p/{ID}_0-1-2_{T}.parquet.marker.CREATE.crc",
    f"p/{ID}_0-1-2_{T}.parquet.CREATE",
    f"p/{ID}_0-1-2_{T}.marker.CREATE",
    f"p/_{T}.parquet.marker.CREATE",
    f"p/.{ID}_{T}.log.marker.APPEND",
    f"p/.{ID}_{T}.archive.1_0-1-2.marker.APPEND",
    f"p/.hoodie_partition_metadata_{T}.marker.APPEND",
    f"/p/{ID}_0-1-2_{T}.parquet.marker.CREATE",
    f"p//{ID}_0-1-2_{T}.parquet.marker.CREATE",
    f"../{ID}_0-1-2_{T}.parquet.marker.CREATE",
    f"p/../{ID}_0-1-2_{T}.parquet.marker.CREATE",
    f"./{ID}_0-1-2_{T}.parquet.marker.CREATE",
    f"p\n/{ID}_0-1-2_{T}.parquet.marker.CREATE",
    f"p\0/{ID}_0-1-2_{T}.parquet.marker.CREATE",
    f"\ud800/{ID}_0-1-2_{T}.parquet.marker.CREATE",
    f"{'é' * 2100}/{ID}_0-1-2_{T}.parquet.marker.CREATE",
    # Hudi would take these for markers of what is before the first ".marker".
    f"p/{ID}_0-1-2_{BEFORE}.parquet.marker.x/{ID}_0-1-2_{T}.parquet.marker.CREATE",
    f"p/{ID}_0-1-2_{BEFORE}.parquet.marker.MERGE_{T}.parquet.marker.CREATE",
    # The table's own metadata, and the table of metadata below it.
    f".hoodie/{ID}_0-1-2_{T}.parquet.marker.CREATE",
    f".hoodie/metadata/files/.files-0000-0_{T}.log.1_0-1-2.marker.CREATE",
]


def test_names_that_are_no_markers_are_refused(subtests: pytest.Subtests) -> None:
    for bad in NO_MARKERS:
        with (
            subtests.test(bad=bad),
            pytest.raises(
                InputError, match=r"markername is .*; allowed: \[<partition>/\]<data file>"
            ),
        ):
            check_name(bad, T)


def test_a_marker_of_another_writes_file_is_refused(subtests: pytest.Subtests) -> None:
    for stolen in [
        f"p/{ID}_0-1-2_{BEFORE}.parquet.marker.CREATE",
        f"p/{ID}_0-1-2_{BEFORE}.parquet.marker.MERGE",
        f"{ID}_0-1-2_{BEFORE}.parquet.marker.MERGE",
        f"p/{ID}_0-1-{T}_{BEFORE}.parquet.marker.CREATE",
        f"{T}/{T}_{T}_{BEFORE}.parquet.marker.CREATE",
        f"p/{ID}_0-1-2_{T}0.parquet.marker.CREATE",
        f"p/{ID}_0-1-2_1{T}.parquet.marker.CREATE",
        f"p/.{ID}_{BEFORE}.log.1_0-1-2.marker.MERGE",
    ]:
        with (
            subtests.test(stolen=stolen),
            pytest.raises(InputError, match=f"markername is .*; allowed under instant {T}: CREATE"),
        ):
            check_name(stolen, T)


def test_a_log_of_another_instant_is_left_to_the_timeline() -> None:
    log = f"p/.{ID}_{BEFORE}.log.1_0-1-2{{}}.marker.CREATE"
    assert check_name(log.format(""), T) == BEFORE
    assert check_name(log.format(".cdc"), T) == BEFORE


SENT_BY_HUDI = [
    (f"{ID}_0-1-2_{T}.parquet.marker.CREATE", T),
    (f"2026/11/21/{ID}_0-1-2_{T}.orc.marker.CREATE", T),
    (f"city=são paulo%2F1:2 ?&=#+/{ID}_0-1-2_{T}.hfile.marker.MERGE", T),
    (f"a.b_c.d/{ID}_0-1-2_{T}.lance.marker.MERGE", T),
    (f"p/.{ID}_{T}.log.1_0-1-2.marker.CREATE", T),
    (f"p/.{ID}_{T}.log.1.marker.CREATE", T),
    (f"p/.{ID}_{T}.log.12_0-1-2.cdc.marker.CREATE", T),
    (f"p/.{ID}_{BEFORE}.log.3_0-1-2.marker.APPEND", T),
    (f"p/.{ID}_{BEFORE}.log.3_0-1-2.cdc.marker.APPEND", T),
    (f"p/{ID}_0-1-2_{BEFORE}.parquet.marker.APPEND", T),  # before HUDI-1517
    (f"p/{ID}_0-1-2-3_{T}.parquet.marker.CREATE", T),  # Flink's second file of a task
    (f"p/bucket_7.x-{ID}_0-1-2_{T}.parquet.marker.CREATE", T),
    (f"p/.expr-index-a_b.c-0000-0_{T}.log.1_0-1-2.marker.CREATE", T),
    (f"p/{ID}_0-1-2_00000000000001.parquet.marker.CREATE", "00000000000001"),  # bootstrap
    (f"files/files-0000-0_0-1-2_{T}001.hfile.marker.CREATE", f"{T}001"),
    (f"p/{ID}_0-1-2_{T}_1.parquet.marker.CREATE", f"{T}_1"),
    (f"p/.{ID}_{T}_1.log.1_0-1-2.marker.CREATE", f"{T}_1"),
]


def test_what_hudi_sends_is_taken(subtests: pytest.Subtests) -> None:
    for name, instant in SENT_BY_HUDI:
        with subtests.test(name=name):
            assert check_name(name, instant) is None


@pytest.mark.parametrize("scenario", golden.scenarios())
def test_a_write_may_announce_what_it_was_recorded_to_write(scenario: str) -> None:
    """Every file of every recorded commit, and every marker that a write left behind."""
    counted: Counter[str] = Counter()
    for step in golden.steps(scenario):
        client = TableMetaClient.open(golden.GoldenStorage(scenario, step))
        log = "APPEND" if client.config.layout_version == 1 else "CREATE"
        for instant in client.active_timeline().completed():
            if metadata_type(instant.action, instant.state) is not CommitMetadata:
                continue
            metadata = client.read(instant)
            assert isinstance(metadata, CommitMetadata)
            for stats in metadata.partition_to_write_stats.values():
                for stat in stats:
                    assert stat.path is not None
                    is_log = stat.path.rpartition("/")[2].startswith(".")
                    for kind in (log,) if is_log else ("CREATE", "MERGE"):
                        name = f"{stat.path}.marker.{kind}"
                        assert check_name(name, instant.requested_time) is None, name
                        counted["files"] += 1
        for entry in golden.listing(scenario, step):
            temp, _, rest = entry.path.partition(".hoodie/.temp/")
            time, _, name = rest.partition("/")
            if not temp and not entry.is_dir and not name.endswith(".crc"):
                assert check_name(name, time) is None, name
                counted["markers"] += 1
    assert counted["files"]
    assert bool(counted["markers"]) == scenario.startswith("rollback_")
