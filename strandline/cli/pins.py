"""``strandline pins``: the leases by which readers hold a table's files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from strandline.cli.common_options import TableSource, columns_option, limit_option, table_command
from strandline.cli.late_module import LateModule
from strandline.cli.output import counted
from timeline.errors import InputError

if TYPE_CHECKING:
    from strandline.cli import rows_output
    from strandline.table_api import metadata_rows
else:
    metadata_rows = LateModule("strandline.table_api.metadata_rows")
    rows_output = LateModule("strandline.cli.rows_output")


@click.command()
@table_command
@click.option("--revoke", multiple=True, metavar="ID", help="End this lease. Repeatable.")
@limit_option
@columns_option
def pins(
    source: TableSource,
    output: str,
    revoke: tuple[str, ...],
    limit: int | None,
    columns: Sequence[str] | None,
) -> None:
    """Show the leases by which readers hold files of a table, or revoke them.

    TABLE is a path, a URL, or a name of ~/.config/strandline/tables.toml. Cleans of this package
    keep the files that a lease's reader needs until it ends, expires or is revoked; a reader whose
    lease was revoked may miss files. With --revoke the leases that are left are shown.
    """
    rows_output.checked_columns(
        columns or (), metadata_rows.PINS_SCHEMA.names
    )  # before anything is revoked
    found = source.open()
    missing = [each for each in revoke if not found.revoke(each)]
    if missing:
        raise InputError(f"{source.path} has no lease {', '.join(missing)}")
    rows = found.pins()
    rows_output.print_rows(rows, output, name="pins", columns=columns, limit=limit)
    left = rows.num_rows
    leases = counted(len(revoke), "lease")
    click.echo(f"{leases} revoked, {left} left" if revoke else counted(left, "lease"), err=True)
