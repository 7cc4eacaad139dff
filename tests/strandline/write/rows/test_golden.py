"""Real Hudi's tables: our schemas, keys and paths equal Hudi's."""

import pyarrow as pa
import pytest

from strandline.records.key.generator import KeyGenerator
from strandline.records.schema.avro_schema import arrow_to_avro, avro_to_arrow
from strandline.records.schema.columns import conform
from strandline.records.schema.schema_evolution import EvolutionRules, columns_after
from tests.kit.tables import golden
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CommitMetadata


def opened(scenario):
    storage = golden.GoldenStorage(scenario, golden.steps(scenario)[-1])
    return TableMetaClient.open(storage)


def schemas(client):
    """Return the schema texts of a table's completed commits."""
    read = (client.read(instant) for instant in client.active_timeline().completed())
    commits = (value for value in read if isinstance(value, CommitMetadata))
    return {c.extra_metadata["schema"] for c in commits if c.extra_metadata.get("schema")}


@pytest.mark.parametrize("scenario", golden.scenarios())
def test_schemas_keys_and_paths_come_out_as_written(scenario):
    client = opened(scenario)
    config = client.config
    (avro,) = schemas(client)
    schema = avro_to_arrow(avro)
    assert arrow_to_avro(schema, config.name) == avro
    rows = pa.Table.from_pylist(golden.truth(scenario)["snapshot"])
    assert rows.num_rows
    assert columns_after(rows.schema, avro, config.name, EvolutionRules()) == (avro, schema)
    keys = KeyGenerator(
        config.record_key_fields,
        config.partition_fields,
        config.key_generator_type,
        hive_style=config.hive_style_partitioning,
        url_encode=config.url_encode_partitioning,
    ).matching(rows["_hoodie_record_key"][0].as_py())
    own = conform(rows, schema)
    assert keys.record_keys(own).to_pylist() == rows["_hoodie_record_key"].to_pylist()
    assert keys.partition_paths(own).to_pylist() == rows["_hoodie_partition_path"].to_pylist()
