"""``strandline read``, ``count`` and ``incremental``: a table's rows, streamed to stdout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from strandline.cli.common_options import (
    TableSource,
    as_of_option,
    columns_option,
    filter_option,
    limit_option,
    table_command,
    until_option,
)
from strandline.cli.late_module import LateModule
from strandline.cli.output import counted

if TYPE_CHECKING:
    from strandline.cli import rows_output
    from strandline.read.scan import Scan
    from strandline.records import meta_fields
else:
    meta_fields = LateModule("strandline.records.meta_fields")
    rows_output = LateModule("strandline.cli.rows_output")

_read_optimized_option: Final = click.option(
    "--read-optimized", is_flag=True, help="Base files alone, without the changes in their logs."
)


@click.command()
@table_command
@columns_option
@filter_option
@as_of_option
@limit_option
@_read_optimized_option
def read(
    source: TableSource,
    output: str,
    columns: Sequence[str] | None,
    filter: str | None,
    as_of: str | None,
    limit: int | None,
    read_optimized: bool,
) -> None:
    """Print the rows of a table, those of its newest instant or of an earlier time.

    Rows are printed while files are read, with the memory of a few batches. Partitions and files
    that --filter excludes aren't read. As a table meta columns are left out, unless --columns names
    them.
    """
    scan = source.open().scan(columns, filter, as_of, limit, read_optimized=read_optimized)
    _print(scan, output, columns)


@click.command()
@table_command
@click.option(
    "--since",
    required=True,
    metavar="TIME",
    help="After this time: ISO 8601, the completion time of a commit (in table version 6 its"
    " requested time), or earliest.",
)
@until_option
@columns_option
@filter_option
@limit_option
def incremental(
    source: TableSource,
    output: str,
    since: str,
    until: str | None,
    columns: Sequence[str] | None,
    filter: str | None,
    limit: int | None,
) -> None:
    """Print the rows that the commits of a time wrote: after --since, up to --until.

    Rows that were overwritten or deleted since aren't among them. What continues after these
    commits, the next --since, is printed to stderr.
    """
    scan = source.open().incremental(since, until, columns=columns, filter=filter, limit=limit)
    _print(scan, output, columns)
    if scan.next_since is not None:
        click.echo(f"next: --since {scan.next_since}", err=True)


@click.command()
@table_command
@filter_option
@as_of_option
@limit_option
@_read_optimized_option
def count(
    source: TableSource,
    output: str,
    filter: str | None,
    as_of: str | None,
    limit: int | None,
    read_optimized: bool,
) -> None:
    """Print the number of a table's rows.

    Without --filter footers are read, and only slices with logs as a whole. With --limit it stops
    at that number.
    """
    scan = source.open().scan(None, filter, as_of, limit, read_optimized=read_optimized)
    found = scan.count()
    if output == "table":
        click.echo(found)
    else:
        rows_output.print_row({"rows": found}, output)


def _print(scan: Scan, output: str, columns: Sequence[str] | None) -> None:
    if output == "table" and columns is None:
        own = [name for name in scan.schema.names if name not in meta_fields.META_FIELDS]
        scan = scan.narrowed(own)
    click.echo(counted(rows_output.print_rows(scan, output), "row"), err=True)
