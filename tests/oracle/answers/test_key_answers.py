"""Real Hudi still makes the recorded keys and paths, and shares tables of times with our writer."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from strandline.table_api.table import Table
from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from tests.kit.answers.key_cases import recorded
from tests.oracle.answers.key_answers import record
from tests.oracle.answers.schema_answers import WRITE
from tests.oracle.hudi import Hudi

pytestmark = pytest.mark.oracle

PREFIX = "hoodie.keygen.timebased."
TIMES = {
    f"{PREFIX}timestamp.type": "UNIX_TIMESTAMP",
    f"{PREFIX}output.dateformat": "yyyy-MM-dd",
    f"{PREFIX}timezone": "GMT+8:00",
}
KEYGEN = "org.apache.hudi.keygen."
GENERATORS = {
    "TIMESTAMP": ("ts", f"{KEYGEN}TimestampBasedKeyGenerator"),
    "CUSTOM": ("region:SIMPLE,ts:TIMESTAMP", f"{KEYGEN}CustomKeyGenerator"),
}


def rows(*keys: str, name: str) -> pa.Table:
    made = [
        {"id": key, "region": "eu", "ts": 1_700_000_000 + 86_400 * ord(key), "name": name}
        for key in keys
    ]
    return pa.Table.from_pylist(made)


def test_hudi_makes_the_recorded_keys_and_paths(hudi: Hudi) -> None:
    assert record(hudi) == recorded()["keys"]


@pytest.mark.parametrize("ours_first", [True, False])
@pytest.mark.parametrize("kind", GENERATORS)
def test_both_write_a_table_of_times(
    hudi: Hudi, tmp_path: Path, kind: str, ours_first: bool
) -> None:
    fields, generator = GENERATORS[kind]
    options = {
        **WRITE,
        **TIMES,
        "hoodie.datasource.write.partitionpath.field": fields,
        "hoodie.datasource.write.keygenerator.class": generator,
    }
    path = tmp_path / "t"

    def write(data: pa.Table, *, ours: bool) -> None:
        if ours:
            with WriteClient(LocalEngine(tasks=1), path, options) as client:
                client.upsert(data)
        else:
            operation = {"hoodie.datasource.write.operation": "upsert"}
            hudi.write(data, path, {**options, **operation}, partitions=1)

    write(rows("a", "b", name="first"), ours=ours_first)
    write(rows("b", "c", name="second"), ours=not ours_first)
    write(rows("c", "d", name="third"), ours=ours_first)
    # Hudi's reader needs the settings of CUSTOM, too, and takes values of columns from paths.
    found = Table(path).to_arrow(["id", "name", "_hoodie_partition_path"]).to_pylist()
    names = {"a": "first", "b": "second", "c": "third", "d": "third"}
    assert {row["id"]: row["name"] for row in found} == names
    assert len(found) == len(names)
    assert {len(row["_hoodie_partition_path"].rpartition("/")[2]) for row in found} == {10}
