"""The load of tables, put together from servers' statuses."""

from __future__ import annotations

from executor_proxy.seat_ring import Layout
from strandline.fleet.mounts import Mount, MountTable
from strandline.fleet.planning.load import as_text, by_group, loads_of
from strandline.fleet.planning.placement import TableLoad


def told(peak: float, size: int) -> dict[str, object]:
    return {"load": {"cpu": 0.0, "peak_cpu": peak}, "packed_bytes": size}


STATUSES = {
    "http://one:1": {"tables": {"file:///lake/a": told(0.25, 100), "file:///lake/b": told(0.5, 7)}},
    "http://two:1": {"tables": {"file:///lake/a": told(0.125, 90)}},
}


HOT = MountTable((Mount.of("/lake/b", "hot", 1, None), Mount.of("/lake/c", "hot", None, 2)))
TWO = Layout(copies=2)


def test_peaks_of_servers_are_added_and_a_copy_has_the_most_bytes() -> None:
    assert loads_of(STATUSES, HOT, TWO) == (
        TableLoad("file:///lake/a", "default", 0.375, 100, 2),
        TableLoad("file:///lake/b", "hot", 0.5, 7, 1, mounted=True),
    )


def test_groups_have_the_sums_of_their_tables() -> None:
    tables = loads_of(STATUSES, MountTable(), TWO)
    assert by_group(tables) == {"default": (0.875, 107)}
    assert as_text(loads_of(STATUSES, HOT, TWO)).splitlines() == [
        "group    table           CPU peak        MB",
        "default  (all)             0.3750       0.0",
        "hot      (all)             0.5000       0.0",
        "hot      file:///lake/b    0.5000       0.0",
        "default  file:///lake/a    0.3750       0.0",
    ]


def test_a_table_that_is_spread_by_partitions_is_fixed() -> None:
    (spread,) = loads_of({"u": {"tables": {"file:///lake/c": told(0.1, 1)}}}, HOT, TWO)
    assert (spread.fixed, spread.mounted, spread.copies) == (True, True, 2)
