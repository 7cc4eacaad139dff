"""``history``, ``commit``, ``files``, ``slices``, ``partitions`` and more: a table's metadata.

Each prints what the method of ``Table`` with this name returns. As ``table``, for people, they
leave out columns that repeat others; ``--columns`` and the other forms have all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from strandline.cli.common_options import (
    TableSource,
    as_of_option,
    columns_option,
    limit_option,
    partition_filter_option,
    since_option,
    table_command,
    until_option,
)
from strandline.cli.completion import complete_instant, complete_partition
from strandline.cli.late_module import LateModule
from strandline.cli.output import counted
from strandline.settings.setting import nearest
from timeline.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.cli import rows_output
    from strandline.table_api import metadata_rows
    from strandline.table_api.table import Table
else:
    metadata_rows = LateModule("strandline.table_api.metadata_rows")
    rows_output = LateModule("strandline.cli.rows_output")

_HISTORY: Final = (
    *("requested_time", "action", "state", "operation"),
    *("rows_inserted", "rows_updated", "rows_deleted"),
)
_FILES: Final = ("path", "size", "base_instant", "log_paths")
_INSPECTED: Final[Mapping[str, tuple[str, str, Sequence[str]]]] = {
    "instants": (
        "instants",
        "instant",
        ("requested_time", "completion_time", "action", "state", "archived"),
    ),
    "log-files": ("log_files", "log file", ("path", "size", "blocks")),
    "markers": ("markers", "marker", ("instant", "kind", "path")),
    "metadata-table": (
        "metadata_table",
        "partition",
        ("partition", "state", "newest_instant", "in_step", "reason"),
    ),
    "pending": (
        "pending",
        "pending instant",
        ("requested_time", "action", "state", "file_groups", "heartbeat_at"),
    ),
    "replaced": ("replaced", "replaced file group", ("partition", "file_id", "replaced_by")),
}
"""WHAT → the method of ``Inspect``, what a row is, and the columns for people."""

_partition_option: Final = click.option(
    "--partition",
    metavar="PATH",
    shell_complete=complete_partition,
    help="Only of this partition, such as day=2026-01-31.",
)


@click.command()
@table_command
@since_option
@until_option
@limit_option
@columns_option
def history(
    source: TableSource,
    output: str,
    since: str | None,
    until: str | None,
    limit: int | None,
    columns: Sequence[str] | None,
) -> None:
    """Show all instants of a table, archived ones first, and what each did.

    With --limit the newest of them.
    """
    found = source.open().history(since, until)
    if limit is not None:
        found = found.slice(max(0, found.num_rows - limit))
    _print(found, output, "instant", columns, people=_HISTORY)


@click.command()
@table_command
@click.argument("instant", required=False, shell_complete=complete_instant)
@limit_option
@columns_option
def commit(
    source: TableSource,
    output: str,
    instant: str | None,
    limit: int | None,
    columns: Sequence[str] | None,
) -> None:
    """Show what a commit wrote to each partition, and what it recorded about itself.

    INSTANT is the commit's requested time; without it the newest commit is shown. As json there is
    one object, with the metadata that the writer stored.
    """
    found = source.open().commit_metadata(instant)
    total = found.total
    head = {
        "requested_time": found.requested_time,
        "completion_time": found.completion_time,
        "action": found.action,
        "operation": found.operation,
        "archived": found.archived,
        "extra_metadata": dict(found.extra_metadata),
    }
    rows = metadata_rows.commit_rows(found)
    rows_output.print_rows(rows, output, name="partitions", head=head, columns=columns, limit=limit)
    click.echo(
        f"{found.action} {found.requested_time} ({found.operation}):"
        f" {counted(total.files_written, 'file')}, {total.bytes_written} bytes;"
        f" {total.rows_inserted} rows inserted, {total.rows_updated} updated,"
        f" {total.rows_deleted} deleted",
        err=True,
    )


@click.command()
@table_command
@_partition_option
@partition_filter_option
@as_of_option
@limit_option
@columns_option
def files(
    source: TableSource,
    output: str,
    partition: str | None,
    filter: str | None,
    as_of: str | None,
    limit: int | None,
    columns: Sequence[str] | None,
) -> None:
    """Show the files that readers of a table read: the newest slice of each file group.

    A slice is a base file and its logs. With --as-of those that readers of that time read.
    """
    table = source.open()
    found = table.files(partition, as_of=as_of, filter=filter)
    _check_partition(table, found, partition)
    _print(found, output, "slice", columns, limit, people=_FILES, name="files")


@click.command()
@table_command
@_partition_option
@partition_filter_option
@as_of_option
@limit_option
@columns_option
def slices(
    source: TableSource,
    output: str,
    partition: str | None,
    filter: str | None,
    as_of: str | None,
    limit: int | None,
    columns: Sequence[str] | None,
) -> None:
    """Show every file slice of a table's file groups, the newest of each group first.

    Older slices stay until a clean; those of pending and failed writes are shown, too. With --as-of
    those that began by that time and are still there.
    """
    table = source.open()
    found = table.slices(partition, as_of=as_of, filter=filter)
    _check_partition(table, found, partition)
    _print(found, output, "slice", columns, limit, people=_FILES)


def _check_partition(table: Table, found: pa.Table, partition: str | None) -> None:
    """Refuse a partition that isn't there.

    Raises:
        InputError: It has no files, and the table doesn't name it; the nearest is named.
    """
    if partition is None or found.num_rows:
        return
    known = table.partitions()["partition"].to_pylist()
    if partition not in known:
        near = nearest(partition, known)
        hint = f"the nearest is {near!r}" if near else f"it has {counted(len(known), 'partition')}"
        raise InputError(f"the table has no partition {partition!r}", hint=hint)


@click.command()
@table_command
@partition_filter_option
@as_of_option
@limit_option
@columns_option
def partitions(
    source: TableSource,
    output: str,
    filter: str | None,
    as_of: str | None,
    limit: int | None,
    columns: Sequence[str] | None,
) -> None:
    """Show the partitions of a table, with the number and size of their files."""
    found = source.open().partitions(as_of=as_of, filter=filter)
    _print(found, output, "partition", columns, limit)


@click.command()
@table_command
@partition_filter_option
@as_of_option
@limit_option
@columns_option
def stats(
    source: TableSource,
    output: str,
    filter: str | None,
    as_of: str | None,
    limit: int | None,
    columns: Sequence[str] | None,
) -> None:
    """Show how many files a table has and how large they are, also by partition.

    The first row, whose partition is null, is of the whole table. Sizes are bytes; smallest, median
    and largest are those of base files.
    """
    found = source.open().stats(as_of=as_of, filter=filter)
    rows_output.print_rows(found, output, name="stats", columns=columns, limit=limit)


@click.command()
@table_command
@as_of_option
@limit_option
@columns_option
def schema(
    source: TableSource,
    output: str,
    as_of: str | None,
    limit: int | None,
    columns: Sequence[str] | None,
) -> None:
    """Show the columns of a table's rows, meta columns first, with their Arrow types."""
    table = source.open()
    found = table.schema() if as_of is None else table.scan(as_of=as_of).schema
    rows = metadata_rows.column_rows(found)
    _print(rows, output, "column", columns, limit, name="schema")


@click.command()
@table_command
@click.argument("names", nargs=-1)
def properties(source: TableSource, output: str, names: tuple[str, ...]) -> None:
    """Show the properties of a table: those of hoodie.properties, by name.

    NAMES are those to show, in this order; all if there are none.
    """
    found = source.open().properties
    for name in names:
        if name not in found:
            near = nearest(name, found)
            hint = f"the nearest is {near}" if near else None
            raise InputError(f"the table has no property {name!r}", hint=hint)
    rows = metadata_rows.property_rows(found, names or sorted(found))
    _print(rows, output, "property", None, name="properties")


@click.command()
@table_command
@click.argument("what", type=click.Choice([*_INSPECTED]))
@click.option("--archived", is_flag=True, help="With instants: begin with those in the archive.")
@_partition_option
@limit_option
@columns_option
def inspect(
    source: TableSource,
    output: str,
    what: str,
    archived: bool,
    partition: str | None,
    limit: int | None,
    columns: Sequence[str] | None,
) -> None:
    """Show one kind of a table's metadata.

    WHAT is instants (without reading them), log-files and their blocks, markers of writes that
    haven't ended, the state of the metadata-table, pending instants and the heartbeats of their
    writers, or replaced file groups. --partition is for log-files.
    """
    method, noun, people = _INSPECTED[what]
    arguments: dict[str, Any] = {}
    if archived:
        _only(what, "instants", "--archived")
        arguments["archived"] = True
    if partition is not None:
        _only(what, "log-files", "--partition")
        arguments["partition"] = partition
    call: Callable[..., pa.Table] = getattr(source.open().inspect, method)
    _print(call(**arguments), output, noun, columns, limit, people=people, name=method)


def _only(what: str, allowed: str, option: str) -> None:
    if what != allowed:
        raise InputError(f"{option} is given with {what}; allowed: with {allowed}")


def _print(
    rows: pa.Table,
    output: str,
    noun: str,
    columns: Sequence[str] | None,
    limit: int | None = None,
    *,
    people: Sequence[str] | None = None,
    name: str | None = None,
) -> None:
    """Print rows, and on stderr how many.

    Args:
        rows: The rows.
        output: As of ``print_rows``.
        noun: What a row is.
        columns: The columns that the user chose.
        limit: As of ``print_rows``.
        people: The columns that ``table`` has otherwise.
        name: Name of the list; ``None``: the noun with an s.
    """
    if columns is None and output == "table":
        columns = people
    count = rows_output.print_rows(
        rows, output, name=name or f"{noun}s", columns=columns, limit=limit
    )
    more = f" of {rows.num_rows}" if count < rows.num_rows else ""
    click.echo(f"{counted(count, noun)}{more}", err=True)
