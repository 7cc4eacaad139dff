"""Whole tables read from their metadata table: the same files as a listing, or none at all."""

from __future__ import annotations

import pytest

from fsview import metadata_table
from fsview.bootstrap import uncertainty
from fsview.build import snapshot_of
from fsview.files_slice import look
from fsview.from_commits import to_read
from tests.kit import golden
from tests.kit.wide_table import listed, sizes
from timeline.meta_client import TableMetaClient

STEPS = [
    (scenario, step)
    for scenario in golden.scenarios()
    if golden.info(scenario).get("metadata_table")
    for step in golden.steps(scenario)
]


def test_there_are_golden_tables_with_metadata_tables() -> None:
    assert {scenario for scenario, _ in STEPS} >= {"mdt_mor_v6", "mdt_mor_v9"}


@pytest.mark.parametrize(("scenario", "step"), STEPS)
def test_the_metadata_table_says_what_a_listing_says(scenario: str, step: int) -> None:
    storage = golden.GoldenStorage(scenario, step)
    client = TableMetaClient.open(storage)
    snapshot = snapshot_of(client)
    assert uncertainty(snapshot) is None
    done = to_read(snapshot.active)
    versions, known = metadata_table.read(client, snapshot, done, look(client, snapshot, done))
    there = listed(storage)
    assert {partition: sizes(version) for partition, version in versions.items()} == there
    assert known == there.keys()
