"""``strandline clean`` and ``strandline why``: what a clean deletes, and why a file is there."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import click

from strandline.cli.output import errors_in_a_line, output_option, print_rows
from strandline.cli.progress import DeletionProgress
from strandline.cli.writer_options import apply_options, writer_options
from strandline.settings.setting import settings_of
from strandline.table_api.table import Table
from strandline.table_services.clean.policy import (
    POLICIES,
    POLICY,
    RETENTION_OF,
    CleanSettings,
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
@click.argument("table")
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
    Other writers of the table need a lock, whose options --option passes.
    """
    with errors_in_a_line():
        own = [each.name for each in settings_of(CleanSettings)]
        parsed = writer_options(options, apply=apply, own=own, flags="--policy and --retain")
        if apply:
            _apply(table, policy, retain, parsed, output)
            return
        found = Table(table).cleanable(policy, retain)
    rows = found.files.to_pylist()
    head = {"policy": found.policy, "earliest": found.earliest}
    print_rows(rows, CLEANABLE_SCHEMA.names, output, head, "files")
    total = f"{len(rows)} files of {found.bytes} bytes would be deleted"
    kept = f"; retained from {found.earliest} on" if found.earliest else ""
    click.echo(f"{total} by {found.policy}{kept}", err=True)


def _apply(
    table: str, policy: str, retain: int | None, options: dict[str, str], output: str
) -> None:
    given = {POLICY.name: policy, **options}
    if retain is not None:
        given[RETENTION_OF[policy].name] = str(retain)
    progress = DeletionProgress(sys.stderr)
    with progress, WriteClient(LocalEngine(), table, given) as client:
        done = client.clean(progress=progress)
    row: dict[str, Any] = (
        {"instant": None, "files_deleted": 0, "bytes_deleted": 0} if done is None else asdict(done)
    )
    if output == "table":
        click.echo(
            "nothing was deleted"
            if done is None
            else f"clean {done.instant} deleted {done.files_deleted} files of"
            f" {done.bytes_deleted} bytes"
        )
    else:
        print_rows([row], list(row), "jsonl", {}, "")


@click.command()
@click.argument("table")
@click.argument("file")
@_POLICY
@_RETAIN
@output_option
def why(table: str, file: str, policy: str, retain: int | None, output: str) -> None:
    """Show why a file of a table is still there, or gone.

    TABLE is the base path, FILE the path of a base or log file below it. The rule, the instant, the
    savepoint or the pending service that keeps it is named, or the clean that has deleted it.
    """
    with errors_in_a_line():
        found = Table(table).why(file, policy, retain)
    if output == "table":
        state = "would be deleted" if found.goes else "stays"
        click.echo(f"{'deleted' if not found.is_there else state}: {found.reason}")
    else:
        row = asdict(found)
        print_rows([row], list(row), "jsonl", {}, "")
