"""Asks real Hudi for the keys and paths of ``tests.kit.answers.key_cases``.

python -m tests.oracle.answers.key_answers    record them in tests/kit/answers/key_answers.json
"""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path
from typing import Any, Final

import fastavro
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

from strandline.records.schema.avro_schema import arrow_to_avro
from tests.kit.answers.key_cases import ANSWERS, PREFIX, REFUSED, Case, cases
from tests.oracle.hudi import HUDI, Hudi, hudi_session

_KEYGEN: Final = {
    False: "org.apache.hudi.keygen.SimpleKeyGenerator",
    True: "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
}


def answers(hudi: Hudi, case: Case) -> list[list[str]]:
    """Return the record key and partition path of each value of a case."""
    jvm = hudi.jvm
    properties = jvm.org.apache.hudi.common.config.TypedProperties()
    write = "hoodie.datasource.write."
    options = {
        f"{write}recordkey.field": case.column,
        f"{write}partitionpath.field": case.column,
        f"{write}hive_style_partitioning": str(case.hive).lower(),
        f"{write}partitionpath.urlencode": str(case.hive).lower(),
        **{f"{PREFIX}{name}": value for name, value in case.options.items()},
    }
    for name, value in options.items():
        properties.setProperty(name, value)
    kind = getattr(jvm.org.apache.hudi.keygen, _KEYGEN[bool(case.options)].rpartition(".")[2])
    generator = kind(properties)
    schema = arrow_to_avro(pa.schema([("c", case.type)]), "t")
    avro = jvm.org.apache.hudi.common.schema.HoodieSchema.parse(schema).toAvroSchema()
    return [
        [_ask(generator.getRecordKey, record), _ask(generator.getPartitionPath, record)]
        for record in (_record(jvm, avro, schema, value) for value in case.values)
    ]


def _ask(method: Any, record: Any) -> str:
    try:
        return str(method(record))
    except (Py4JJavaError, CapturedException):
        return REFUSED


def _record(jvm: Any, avro: Any, schema: str, value: Any) -> Any:
    """Return a record of Java with a value, through Avro's binary encoding."""
    encoded = io.BytesIO()
    fastavro.schemaless_writer(encoded, fastavro.parse_schema(json.loads(schema)), {"c": value})
    decoder = jvm.org.apache.avro.io.DecoderFactory.get().binaryDecoder(encoded.getvalue(), None)
    return jvm.org.apache.avro.generic.GenericDatumReader(avro).read(None, decoder)


def record(hudi: Hudi) -> dict[str, Any]:
    """Return the answers to all cases."""
    return {case.name: answers(hudi, case) for case in cases()}


def main() -> None:
    """Record the answers."""
    with tempfile.TemporaryDirectory() as folder, hudi_session(Path(folder) / "w") as hudi:
        found = record(hudi)
    lines = ",\n".join(f"{json.dumps(n)}: {json.dumps(a)}" for n, a in found.items())
    ANSWERS.write_text(f'{{"hudi": "{HUDI}", "keys": {{\n{lines}\n}}}}\n', "utf-8")


if __name__ == "__main__":
    main()
