"""``strandline archive``: which instants of a table an archival moves out of the timeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import click

from strandline.cli.output import counted, errors_in_a_line, output_option, print_rows
from strandline.cli.writer_options import apply_options, writer_options
from strandline.table_api.table import Table
from strandline.table_services.archive.policy import KEEP_MAX, KEEP_MIN
from strandline.write.client import WriteClient
from strandline.write.engine.local import LocalEngine
from timeline.instant import Instant

_COLUMNS: Final = ("instant", "action", "completed")


@click.command()
@click.argument("table", type=click.Path())
@click.option(
    "--keep-min",
    type=int,
    metavar="N",
    help="Completed writes that stay: hoodie.keep.min.commits (20 if not given).",
)
@click.option(
    "--keep-max",
    type=int,
    metavar="N",
    help="Nothing is archived unless the timeline has more writes than this:"
    " hoodie.keep.max.commits (30 if not given).",
)
@apply_options(
    "Archive them; otherwise only show what would be archived.",
    "its lock or its cleaner. Repeatable.",
)
@output_option
def archive(
    table: str,
    keep_min: int | None,
    keep_max: int | None,
    apply: bool,
    options: tuple[str, ...],
    output: str,
) -> None:
    """Show which instants of a table an archival would move, or move them.

    TABLE is the base path, a path or a URL. Nothing is changed without --apply. Instants stay that
    a pending instant, a savepoint, a reader's lease, the last clean or a compaction still needs.
    Other writers of the table need a lock, whose options --option passes.
    """
    with errors_in_a_line():
        own = KEEP_MIN.name, KEEP_MAX.name
        parsed = writer_options(options, apply=apply, own=own, flags="--keep-min and --keep-max")
        if not apply:
            _print(Table(table).archivable(keep_min, keep_max), output, "would be archived")
            return
        numbers = {KEEP_MIN.name: keep_min, KEEP_MAX.name: keep_max}
        given = {name: str(value) for name, value in numbers.items() if value is not None}
        with WriteClient(LocalEngine(), table, {**given, **parsed}) as client:
            done = client.archive()
    _print(() if done is None else done.instants, output, "were archived")


def _print(instants: Iterable[Instant], output: str, what: str) -> None:
    rows: list[Mapping[str, Any]] = [
        {"instant": i.requested_time, "action": i.action, "completed": i.completion_time}
        for i in instants
    ]
    print_rows(rows, _COLUMNS, output, {}, "instants")
    click.echo(f"{counted(len(rows), 'instant')} {what}", err=True)
