"""``strandline pins``: the leases by which readers hold a table's files."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from strandline.cli.output import counted, errors_in_a_line, output_option, print_rows
from strandline.table_api.metadata_rows import PINS_SCHEMA
from strandline.table_api.table import Table
from timeline.errors import InputError


@click.command()
@click.argument("table", type=click.Path())
@click.option("--revoke", multiple=True, metavar="ID", help="End this lease. Repeatable.")
@output_option
def pins(table: str, revoke: tuple[str, ...], output: str) -> None:
    """Show the leases by which readers hold files of a table, or revoke them.

    TABLE is the base path, a path or a URL. Cleans of this package keep the files that a lease's
    reader needs until it ends, expires or is revoked; a reader whose lease was revoked may miss
    files. With --revoke the leases that are left are shown.
    """
    with errors_in_a_line():
        found = Table(table)
        missing = [each for each in revoke if not found.revoke(each)]
        if missing:
            raise InputError(f"{table} has no lease {', '.join(missing)}")
        rows = found.pins().to_pylist()
    print_rows([_as_text(row) for row in rows], PINS_SCHEMA.names, output, {}, "pins")
    left = f"{counted(len(revoke), 'lease')} revoked, {len(rows)} left"
    click.echo(left if revoke else counted(len(rows), "lease"), err=True)


def _as_text(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its times as ISO 8601."""
    return {
        name: value.isoformat(timespec="milliseconds") if isinstance(value, datetime) else value
        for name, value in row.items()
    }
