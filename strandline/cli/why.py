"""``strandline why``: why a file of a table is still there, or gone."""

from __future__ import annotations

from dataclasses import asdict

import click

from strandline.cli.clean import POLICY_OPTION, RETAIN_OPTION
from strandline.cli.output import errors_in_a_line, output_option, print_rows
from strandline.server.log_format import escaped
from strandline.table_api.table import Table


@click.command()
@click.argument("table", type=click.Path())
@click.argument("file", type=click.Path())
@POLICY_OPTION
@RETAIN_OPTION
@output_option
def why(table: str, file: str, policy: str, retain: int | None, output: str) -> None:
    """Show why a file of a table is still there, or gone.

    TABLE is the base path, FILE the path of a base or log file below it, or with it: day=1/NAME or
    TABLE/day=1/NAME. The rule, the instant, the savepoint, the lease or the pending service that
    keeps it is named, or the clean that has deleted it. That the table never had the file is an
    error, with exit code 2.
    """
    with errors_in_a_line():
        found = Table(table).why(_below(table, file), policy, retain)
    if output == "table":
        state = "would be deleted" if found.goes else "stays"
        state = state if found.is_there else "deleted"
        click.echo(f"{state}: {escaped(found.reason)}")
    else:
        row = asdict(found)
        print_rows([row], list(row), "jsonl", {}, "")


def _below(table: str, file: str) -> str:
    """Return a file's path without the table's, as a shell completes it, and without ``./``."""
    return file.removeprefix(f"{table.rstrip('/')}/").removeprefix("./")
