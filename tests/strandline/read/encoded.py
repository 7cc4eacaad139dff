"""Avro records for the tests of their decoding."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa

from strandline.read.avro.records import EncodedRecords
from strandline.read.logs.block_rows import _arrow_schema, avro_pieces


def joined_records(records: Sequence[bytes]) -> EncodedRecords:
    """Return records one after the other."""
    sizes = np.fromiter(map(len, records), np.int64, len(records))
    ends = np.cumsum(sizes)
    return EncodedRecords(memoryview(b"".join(records)), ends - sizes, ends)


def avro_rows(
    avro_schema: str, records: EncodedRecords, columns: Collection[str] | None = None
) -> pa.Table:
    """Return records as rows, with some columns or all."""
    if columns is None:
        columns = _arrow_schema(avro_schema).names
    return pa.concat_tables(avro_pieces(avro_schema, records, columns))
