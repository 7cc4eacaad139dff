"""Asks real Hudi how a table's schema evolves in each case of ``tests.kit.answers.schema_cases``.

python -m tests.oracle.answers.schema_answers    write tests/kit/answers/schema_answers.json
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

from strandline.records.schema.avro_schema import arrow_to_avro
from tests.kit.answers.schema_cases import (
    ANSWERS,
    FAILS,
    REFUSED,
    ROWS,
    TABLE,
    Case,
    cases,
    options,
    recorded,
    row_cases,
    stored_rows,
    with_key,
    written_rows,
)
from tests.kit.tables.row_text import text
from tests.oracle.hudi import HUDI, Hudi, hudi_session
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import CommitMetadata
from timeline.storage.local import LocalStorage

WRITE: Final = {
    "hoodie.table.name": "t",
    "hoodie.write.auto.upgrade": "false",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.clean.automatic": "false",
}


class Asked:
    """Hudi's functions that deduce schemas and rewrite rows.

    Args:
        hudi: The session.
    """

    def __init__(self, hudi: Hudi) -> None:
        jvm = hudi.jvm.org.apache.hudi
        self._schemas = jvm.common.schema.HoodieSchema
        self._properties = jvm.common.config.TypedProperties
        self._option = jvm.common.util.Option
        self._deduce = jvm.HoodieSchemaUtils.deduceWriterSchema
        self._check = jvm.common.schema.HoodieSchemaCompatibility.checkSchemaCompatible
        self._rewrite = jvm.avro.HoodieAvroUtils.rewriteRecordDeep
        self._avro = hudi.jvm.org.apache.avro
        self._samples: dict[tuple[str, str], Any] = {}

    def answer(self, case: Case, combination: str) -> str:
        """Return the answer to a case."""
        table, rows = (arrow_to_avro(with_key(schema), "t") for schema in (case.table, case.write))
        properties = self._properties()
        for name, value in options(combination).items():
            properties.setProperty(name, value)
        table_schema = self._option.of(self._schemas.parse(table))
        validate, drop = ("v" in combination), ("d" in combination)
        try:
            deduced = self._deduce(
                self._schemas.parse(rows), table_schema, self._option.empty(), properties
            )
            # As ``HoodieTable.validateSchema`` does later.
            if validate or not drop:
                self._check(table_schema.get(), deduced, validate, drop)
        except (Py4JJavaError, CapturedException):
            return REFUSED
        avro = deduced.toAvroSchema()
        if not all(self._can_rewrite(given, avro) for given in (table, rows)):
            return FAILS
        found = deduced.toString()
        if found in (table, rows):
            return TABLE if found == table else ROWS
        return json.dumps(json.loads(found)["fields"][2:], separators=(",", ":"))

    def _can_rewrite(self, schema: str, to: Any) -> bool:
        """Whether one of the samples of a schema can be rewritten."""
        for sample in ("1", "2024-02-29"):
            try:
                self._rewrite(self._sample(schema, sample), to)
            except (Py4JJavaError, CapturedException):
                continue
            return True
        return False

    def _sample(self, schema: str, string: str) -> Any:
        """Return a record with a value in each column, and this text in all texts."""
        if (schema, string) not in self._samples:
            parsed = self._schemas.parse(schema).toAvroSchema()
            value = json.dumps(_sample(json.loads(schema), "", string))
            decoder = self._avro.io.DecoderFactory.get().jsonDecoder(parsed, value)
            read = self._avro.generic.GenericDatumReader(parsed).read(None, decoder)
            self._samples[schema, string] = read
        return self._samples[schema, string]


def _sample(avro: Any, namespace: str, string: str) -> Any:
    """Return a value of a type in Avro's JSON encoding."""
    if isinstance(avro, list):
        kind = avro[1]
        name = kind if isinstance(kind, str) else kind["type"]
        if name in ("record", "fixed"):
            name = f"{kind.get('namespace', namespace)}.{kind['name']}"
        return {name: _sample(kind, namespace, string)}
    kind = avro if isinstance(avro, str) else avro["type"]
    if kind == "record":
        inside = avro.get("namespace", namespace)
        return {f["name"]: _sample(f["type"], inside, string) for f in avro["fields"]}
    if kind == "array":
        return [_sample(avro["items"], namespace, string)]
    if kind == "map":
        return {"k": _sample(avro["values"], namespace, string)}
    if kind == "fixed":
        return "\0" * (avro["size"] - 1) + "\1"
    return {"boolean": True, "string": string, "bytes": string}.get(kind, 1)


def rows_after(hudi: Hudi, path: Path, case: Case, combination: str) -> Any:
    """Return the rows of a new table after a case's write; ``FAILS`` if that fails."""
    how = {**WRITE, **options(combination)}
    insert, upsert = ({**how, "hoodie.datasource.write.operation": o} for o in ("insert", "upsert"))
    hudi.write(stored_rows(case), path, insert, partitions=1)
    try:
        hudi.write(written_rows(case), path, upsert, partitions=1)
        return {"rows": text(hudi.read(path)), "schema": stored_schema(path)}
    except (Py4JJavaError, CapturedException) as error:
        sys.stdout.write(f"{error}\n")
        return FAILS


def stored_schema(path: Path) -> Any:
    """Return the fields of the newest commit's schema."""
    meta = TableMetaClient.open(LocalStorage(str(path)))
    commit = meta.read(meta.active_timeline().completed().instants[-1])
    assert isinstance(commit, CommitMetadata)
    return json.loads(commit.extra_metadata["schema"])["fields"]


def schemas(hudi: Hudi) -> dict[str, dict[str, str]]:
    """Return case → answer → the combinations with that answer."""
    asked = Asked(hudi)
    found: dict[str, dict[str, list[str]]] = {}
    for case in cases():
        for combination in case.combinations:
            answer = asked.answer(case, combination)
            found.setdefault(case.name, {}).setdefault(answer, []).append(combination)
    return {
        name: {answer: "|".join(of) for answer, of in answers.items()}
        for name, answers in found.items()
    }


def main() -> None:
    """Record the answers."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with hudi_session(folder / "warehouse") as hudi:
            # The vectorised reader refuses nested columns whose types have changed.
            hudi.spark.conf.set("spark.sql.parquet.enableVectorizedReader", "false")
            found = schemas(hudi)
            _save({"hudi": HUDI, "schemas": found})
            recorded.cache_clear()
            rows = {}
            for number, (case, combination) in enumerate(row_cases()):
                after = rows_after(hudi, folder / str(number), case, combination)
                rows[f"{case.name}|{combination}"] = after
                sys.stdout.write(f"{case.name}|{combination} {str(after)[:300]}\n")
                sys.stdout.flush()
                _save({"hudi": HUDI, "schemas": found, "rows": rows})


def _save(found: Mapping[str, Any]) -> None:
    """Write the answers, each case on a line of its own."""
    parts = [f'"hudi": {json.dumps(found["hudi"])}']
    for name in ("schemas", "rows"):
        cases_of = found.get(name, {}).items()
        lines = ",\n".join(f"{json.dumps(case)}: {json.dumps(each)}" for case, each in cases_of)
        parts.append(f"{json.dumps(name)}: {{\n{lines}\n}}")
    ANSWERS.write_text("{" + ",\n".join(parts) + "}\n", "utf-8")


if __name__ == "__main__":
    main()
