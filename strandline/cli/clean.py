"""``strandline clean``: what a clean deletes, and deleting it; ``strandline why``: why it does.

``DeletionProgress`` shows how far a deletion is, as a bar on a terminal, elsewhere as lines.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from strandline.cli.common_options import TableSource, columns_option, limit_option, table_command
from strandline.cli.late_module import LateModule
from strandline.cli.output import counted
from strandline.cli.writer_options import apply_options, refuse_with_apply, writer_options
from strandline.server.log_format import escaped
from strandline.table_services.clean.policy import (
    MAX_COMMITS,
    POLICIES,
    POLICY,
    RETENTION_OF,
)

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

    from strandline.cli import rows_output
    from strandline.table_services.clean import execution
else:
    execution = LateModule("strandline.table_services.clean.execution")
    rows_output = LateModule("strandline.cli.rows_output")

_LABEL: Final = "deleting files"
_LINES: Final = 10
"""Maximum number of lines of one deletion."""


class DeletionProgress:
    """Shows how many files were deleted; for one call at a time.

    A second deletion, such as that of a new clean after a crashed one, starts the bar again.

    Args:
        stream: Where, such as stderr.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._bar: ProgressBar[int] | None = None
        self._deleted = self._total = 0

    def __call__(self, deleted: int, total: int) -> None:
        """Show that ``deleted`` of ``total`` files were deleted."""
        if deleted < self._deleted or total != self._total:
            self._end()
            self._total = total
        if self._stream.isatty():
            self._draw(deleted, total)
        elif deleted * _LINES // total > self._deleted * _LINES // total:
            click.echo(f"{_LABEL}: {deleted} of {total}", file=self._stream)
        self._deleted = deleted
        if deleted == total:
            self._end()

    def __enter__(self) -> DeletionProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _draw(self, deleted: int, total: int) -> None:
        if self._bar is None:
            self._bar = click.progressbar(
                length=total, label=_LABEL, show_pos=True, file=self._stream
            )
        self._bar.update(deleted - self._deleted)

    def _end(self) -> None:
        """End the bar's line, so that messages follow below it."""
        if self._bar is not None:
            self._bar.render_finish()
        self._bar, self._deleted = None, 0


POLICY_OPTION = click.option(
    "--policy",
    type=click.Choice(POLICIES),
    default=POLICY.default,
    show_default=True,
    help="What is retained.",
)
RETAIN_OPTION = click.option(
    "--retain",
    type=int,
    metavar="N",
    help="Commits (10 if not given), hours (24) or file versions (3) that are retained.",
)


@click.command()
@table_command
@POLICY_OPTION
@RETAIN_OPTION
@apply_options("Delete them; otherwise only show what would be deleted.", "its lock. Repeatable.")
@limit_option
@columns_option
def clean(
    source: TableSource,
    output: str,
    policy: str,
    retain: int | None,
    apply: bool,
    options: tuple[str, ...],
    limit: int | None,
    columns: Sequence[str] | None,
) -> None:
    """Show what a clean of a table would delete, or delete it.

    TABLE is a path, a URL, or a name of ~/.config/strandline/tables.toml. Nothing is changed
    without --apply. With it, cleans that crashed are finished first, and failed writes are rolled
    back if that is left to cleans. Other writers of the table need a lock, whose options --option
    passes.
    """
    own = [POLICY.name, *(each.name for each in RETENTION_OF.values())]
    parsed = writer_options(options, apply=apply, own=own, flags="--policy and --retain")
    refuse_with_apply(columns, limit, apply=apply)
    if apply:
        _apply(source, policy, retain, parsed, output)
        return
    found = source.open().cleanable(policy, retain)
    head = {"policy": found.policy, "earliest": found.earliest}
    files = found.files
    rows_output.print_rows(files, output, name="files", head=head, columns=columns, limit=limit)
    total = f"{counted(files.num_rows, 'file')}, {found.bytes} bytes, would be deleted"
    kept = f"; retained from {found.earliest} on" if found.earliest else ""
    click.echo(f"{total} by {found.policy}{kept}", err=True)


def _apply(
    source: TableSource, policy: str, retain: int | None, options: dict[str, str], output: str
) -> None:
    # What was shown is deleted, even if no write has completed since the last clean.
    given = {MAX_COMMITS.name: "0", POLICY.name: policy, **options}
    if retain is not None:
        given[RETENTION_OF[policy].name] = str(retain)
    progress = DeletionProgress(sys.stderr)
    with progress, source.writer(given) as client:
        done = client.clean(progress=progress)
    row: dict[str, Any] = asdict(done or execution.CleanResult("", 0, 0, "", 0.0))
    row["instant"] = row["instant"] or None
    if output == "table":
        click.echo("nothing was deleted" if done is None else _in_words(done))
    else:
        rows_output.print_row(row, output)


def _in_words(done: execution.CleanResult) -> str:
    deleted = f"{counted(done.files_deleted, 'file')}, {done.bytes_deleted} bytes"
    failed = f"; {done.files_failed} couldn't be deleted, the next clean tries again"
    return f"clean {done.instant} deleted {deleted}{failed if done.files_failed else ''}"


@click.command()
@table_command
@click.argument("file", type=click.Path())
@POLICY_OPTION
@RETAIN_OPTION
def why(source: TableSource, output: str, file: str, policy: str, retain: int | None) -> None:
    """Show why a file of a table is still there, or gone.

    TABLE is the base path, FILE the path of a base or log file below it, or with it: day=1/NAME or
    TABLE/day=1/NAME. The rule, the instant, the savepoint, the lease or the pending service that
    keeps it is named, or the clean that has deleted it. That the table never had the file is an
    error, with exit code 2.
    """
    found = source.open().why(_below(source.path, file), policy, retain)
    if output == "table":
        state = "would be deleted" if found.goes else "stays"
        state = state if found.is_there else "deleted"
        click.echo(f"{state}: {escaped(found.reason)}")
    else:
        rows_output.print_row(asdict(found), output)


def _below(table: str, file: str) -> str:
    """Return a file's path without the table's, as a shell completes it, and without ``./``."""
    return file.removeprefix(f"{table.rstrip('/')}/").removeprefix("./")
