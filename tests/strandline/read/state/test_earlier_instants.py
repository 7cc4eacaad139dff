"""Recorded tables at their earlier instants, whose slices have more logs than the newest ones."""

from __future__ import annotations

import pytest

from strandline.records.commit_history import CommitHistory
from strandline.records.schema.avro_schema import avro_to_arrow
from tests.kit.tables import golden
from tests.strandline.read.logs.log_table import read
from timeline.meta_client import TableMetaClient
from timeline.storage.local import LocalStorage

AT = [
    (scenario, instant)
    for scenario in golden.scenarios()
    if golden.has_final_table(scenario)
    for instant, rows in golden.truth(scenario)["as_of"].items()
    if isinstance(rows, list)  # else what Spark raised: files were cleaned
]
STOPPED = {
    ("rollback_mor_v6_h0150", "20261121082054453"),
    ("rollback_mor_v6_h0150", "20261121082123701"),
}
"""Hudi 0.15.0 stops at a rollback command later than the instant, and misses the logs after it."""


def texts(rows):
    shown = [{n: None if v is None else str(v) for n, v in row.items()} for row in rows]
    return sorted(shown, key=lambda row: (row["_hoodie_partition_path"], row["_hoodie_record_key"]))


@pytest.mark.parametrize(("scenario", "instant"), AT)
def test_rows_are_those_that_spark_read(scenario, instant, tmp_path):
    storage = LocalStorage(str(golden.build_final(scenario, tmp_path)))
    meta = TableMetaClient.open(storage)
    schema = avro_to_arrow(CommitHistory().avro_schema(meta, meta.active_timeline()) or "")
    truth = texts(golden.truth(scenario)["as_of"][instant])
    found = texts(read(storage, schema, list(truth[0]), instant)[0].to_pylist())
    if (scenario, instant) not in STOPPED:
        assert found == truth
        return
    missed = [(now, then) for now, then in zip(found, truth, strict=True) if now != then]
    assert missed
    for now, then in missed:
        assert now["_hoodie_record_key"] == then["_hoodie_record_key"]
        assert then["_hoodie_commit_time"] < now["_hoodie_commit_time"] == instant
