"""Logs that real Hudi 1.2.0 wrote: ``tests/golden/log_files``, and those of golden tables."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.kit.tables import golden

_ZIP = Path(__file__).parents[2] / "golden" / "log_files" / "logs.zip"


@cache
def recorded() -> dict[str, bytes]:
    """Return name → content: ``<case>/upsert.log`` and, with a delete operation, ``delete.log``.

    The cases ``ord_<type>`` have an update and a flagged delete in a table with an ordering column
    of this type; ``ord_two`` has two, ``ord_none`` none. ``all_avro`` and ``all_parquet`` have
    columns of all types in either format of data blocks. The partition is ``x``.
    """
    with zipfile.ZipFile(_ZIP) as packed:
        return {name: packed.read(name) for name in packed.namelist()}


def of_tables() -> Iterator[tuple[str, bytes]]:
    """Yield the path and content of each log in the golden tables' final steps."""
    for found in sorted(golden.FOLDER.glob("*.zip")):
        if golden.has_final_table(found.stem):
            for path, data in golden.final_files(found.stem).items():
                name = path.rpartition("/")[2]
                if ".log." in name and not name.endswith(".crc"):
                    yield f"{found.stem}/{path}", data
