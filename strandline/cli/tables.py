"""``strandline tables``: the tables below a root."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.common_options import TableSource, columns_option, limit_option, root_command
from strandline.cli.late_module import LateModule
from strandline.cli.output import counted
from timeline.errors import PathNotFoundError, StorageError, StrandlineError, TableNotFoundError

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.cli import rows_output
    from strandline.table_api import discovery
    from timeline import meta_client
    from timeline.storage import open as opening
else:
    discovery = LateModule("strandline.table_api.discovery")
    meta_client = LateModule("timeline.meta_client")
    opening = LateModule("timeline.storage.open")
    pa = LateModule("pyarrow")
    rows_output = LateModule("strandline.cli.rows_output")


@click.command()
@root_command
@click.option(
    "--depth",
    type=click.IntRange(min=0),
    metavar="N",
    help="Levels of folders below ROOT that are searched (3 if not given).",
)
@limit_option
@columns_option
def tables(
    source: TableSource,
    output: str,
    depth: int | None,
    limit: int | None,
    columns: Sequence[str] | None,
) -> None:
    """Show the tables below a root.

    ROOT is a path or a URL. A table isn't searched, nor are folders whose names begin with a dot.
    The column problem says why a table is broken, or why a folder can't be read; for a folder the
    exit code is 1, too. If ROOT can't be read any more either, the search ends. A table is shown as
    soon as it is found, except as a table.
    """
    failed: list[StorageError] = []
    texts = [(name, pa.string()) for name in ("path", "name", "type", "problem")]
    schema = pa.schema([*texts[:3], ("version", pa.int64()), texts[3]])
    batches = (pa.RecordBatch.from_pylist([row], schema) for row in _rows(source, depth, failed))
    reader = pa.RecordBatchReader.from_batches(schema, batches)
    count = rows_output.print_rows(reader, output, name="tables", columns=columns, limit=limit)
    click.echo(counted(count, "table"), err=True)
    if failed:
        raise failed[-1]


def _rows(
    source: TableSource, depth: int | None, failed: list[StorageError]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of tables and of what can't be read; errors of storage go to ``failed``."""
    root = source.path.rstrip("/") or "/"
    storage = opening.open_storage(source.path, source.storage_options)
    try:
        storage.check_base()
    except PathNotFoundError as error:
        raise TableNotFoundError(f"there is no folder {source.path} to find tables in") from error
    levels = discovery.DEPTH if depth is None else depth
    try:
        for below, problem in discovery.tables_below(storage, levels):
            path = f"{root}/{below}" if below else root
            row = _row(source, path) if problem is None else problem
            if isinstance(row, StorageError):
                failed.append(row)
            values = {"problem": row.message} if isinstance(row, StrandlineError) else row
            # A name that isn't UTF-8 has escapes, also within a problem.
            yield {
                name: v.encode(errors="backslashreplace").decode() if isinstance(v, str) else v
                for name, v in {"path": path, **values}.items()
            }
    except StorageError as error:
        failed.append(error)


def _row(source: TableSource, path: str) -> dict[str, Any] | StrandlineError:
    try:
        config = meta_client.TableMetaClient.open(
            opening.open_storage(path, source.storage_options)
        ).config
    except StrandlineError as error:
        return error
    return {"name": config.name, "type": config.table_type, "version": config.version}
