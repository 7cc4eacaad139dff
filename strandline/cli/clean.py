"""``strandline clean`` and ``strandline why``: what a clean deletes, and why a file is there."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import click

from strandline.cli.output import (
    counted,
    errors_in_a_line,
    output_option,
    print_line,
    print_rows,
)
from strandline.cli.progress import DeletionProgress
from strandline.cli.writer_options import apply_options, writer_options
from strandline.table_api.table import Table
from strandline.table_services.clean.policy import (
    MAX_COMMITS,
    POLICIES,
    POLICY,
    RETENTION_OF,
)
from strandline.table_services.clean.preview import CLEANABLE_SCHEMA
from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine

_POLICY = click.option(
    "--policy",
    type=click.Choice(POLICIES),
    default=POLICY.default,
    show_default=True,
    help="What is retained.",
)
_RETAIN = click.option(
    "--retain",
    type=int,
    metavar="N",
    help="Commits (10 if not given), hours (24) or file versions (3) that are retained.",
)


@click.command()
@click.argument("table", type=click.Path())
@_POLICY
@_RETAIN
@apply_options("Delete them. Else only what would go is shown.", "its lock. Repeatable.")
@output_option
def clean(
    table: str,
    policy: str,
    retain: int | None,
    apply: bool,
    options: tuple[str, ...],
    output: str,
) -> None:
    """Show what a clean of a table would delete, or delete it.

    TABLE is the base path, a path or a URL. Nothing is changed without --apply. With it, cleans
    that crashed are finished first, and failed writes are rolled back if that is left to cleans.
    Other writers of the table need a lock, whose options --option passes. Of merge-on-read tables
    it is only shown.
    """
    with errors_in_a_line():
        own = [POLICY.name, *(each.name for each in RETENTION_OF.values())]
        parsed = writer_options(options, apply=apply, own=own, flags="--policy and --retain")
        if apply:
            _apply(table, policy, retain, parsed, output)
            return
        found = Table(table).cleanable(policy, retain)
    rows = found.files.to_pylist()
    head = {"policy": found.policy, "earliest": found.earliest}
    print_rows(rows, CLEANABLE_SCHEMA.names, output, head, "files")
    total = f"{counted(len(rows), 'file')}, {found.bytes} bytes, would be deleted"
    kept = f"; retained from {found.earliest} on" if found.earliest else ""
    click.echo(f"{total} by {found.policy}{kept}", err=True)


def _apply(
    table: str, policy: str, retain: int | None, options: dict[str, str], output: str
) -> None:
    # What was shown is deleted, even if no write has completed since the last clean.
    given = {MAX_COMMITS.name: "0", POLICY.name: policy, **options}
    if retain is not None:
        given[RETENTION_OF[policy].name] = str(retain)
    progress = DeletionProgress(sys.stderr)
    with progress, WriteClient(LocalEngine(), table, given) as client:
        done = client.clean(progress=progress)
    row: dict[str, Any] = (
        {"instant": None, "files_deleted": 0, "bytes_deleted": 0} if done is None else asdict(done)
    )
    if output == "table":
        print_line(
            "nothing was deleted"
            if done is None
            else f"clean {done.instant} deleted {counted(done.files_deleted, 'file')},"
            f" {done.bytes_deleted} bytes"
        )
    else:
        print_rows([row], list(row), "jsonl", {}, "")


@click.command()
@click.argument("table", type=click.Path())
@click.argument("file", type=click.Path())
@_POLICY
@_RETAIN
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
        print_line(f"{'deleted' if not found.is_there else state}: {found.reason}")
    else:
        row = asdict(found)
        print_rows([row], list(row), "jsonl", {}, "")


def _below(table: str, file: str) -> str:
    """Return a file's path without the table's, as a shell completes it, and without ``./``."""
    return file.removeprefix(f"{table.rstrip('/')}/").removeprefix("./")
