"""``strandline tables``: the tables below a root."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import click
import pyarrow as pa

from strandline.cli.output import counted
from strandline.cli.rows_output import print_rows
from strandline.cli.table_command import TableSource, columns_option, limit_option, root_command
from strandline.table_api.discovery import DEPTH, tables_below
from timeline.errors import PathNotFoundError, StrandlineError, TableNotFoundError
from timeline.meta_client import TableMetaClient
from timeline.storage.open import open_storage

_SCHEMA: Final = pa.schema(
    [
        ("path", pa.string()),
        ("name", pa.string()),
        ("type", pa.string()),
        ("version", pa.int64()),
        ("problem", pa.string()),
    ]
)


@click.command()
@root_command
@click.option(
    "--depth",
    type=click.IntRange(min=0),
    default=DEPTH,
    show_default=True,
    metavar="N",
    help="Levels of folders below ROOT that are searched.",
)
@limit_option
@columns_option
def tables(
    source: TableSource,
    output: str,
    depth: int,
    limit: int | None,
    columns: Sequence[str] | None,
) -> None:
    """Show the tables below a root.

    ROOT is a path or a URL. A table isn't searched, nor are folders whose names begin with a dot.
    What can't be read has its reason in the column problem. A table is shown as soon as it is
    found, except as a table.
    """
    batches = (pa.RecordBatch.from_pylist([row], _SCHEMA) for row in _rows(source, depth))
    reader = pa.RecordBatchReader.from_batches(_SCHEMA, batches)
    count = print_rows(reader, output, name="tables", columns=columns, limit=limit)
    click.echo(counted(count, "table"), err=True)


def _rows(source: TableSource, depth: int) -> Iterator[dict[str, Any]]:
    root = source.path.rstrip("/") or "/"
    storage = open_storage(source.path, source.storage_options)
    try:
        storage.check_base()
    except PathNotFoundError as error:
        raise TableNotFoundError(f"there is no folder {source.path} to find tables in") from error
    for below, problem in tables_below(storage, depth):
        path = f"{root}/{below}" if below else root
        yield _row(source, path) if problem is None else {"path": path, "problem": problem.message}


def _row(source: TableSource, path: str) -> dict[str, Any]:
    try:
        config = TableMetaClient.open(open_storage(path, source.storage_options)).config
    except StrandlineError as error:
        return {"path": path, "problem": error.message}
    return {
        "path": path,
        "name": config.name,
        "type": config.table_type,
        "version": config.version,
    }
