"""``strandline archive``: which instants of a table an archival moves out of the timeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

import click
import pyarrow as pa

from strandline.cli.output import counted
from strandline.cli.rows_output import checked_columns, print_rows
from strandline.cli.table_command import TableSource, columns_option, limit_option, table_command
from strandline.cli.writer_options import apply_options, writer_options
from strandline.table_services.archive.policy import KEEP_MAX, KEEP_MIN
from timeline.instant import Instant

_SCHEMA: Final = pa.schema(
    [("instant", pa.string()), ("action", pa.string()), ("completed", pa.string())]
)


@click.command()
@table_command
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
@limit_option
@columns_option
def archive(
    source: TableSource,
    output: str,
    keep_min: int | None,
    keep_max: int | None,
    apply: bool,
    options: tuple[str, ...],
    limit: int | None,
    columns: Sequence[str] | None,
) -> None:
    """Show which instants of a table an archival would move, or move them.

    TABLE is the base path, a path or a URL, or a name. Nothing is changed without --apply. Instants
    stay that a pending instant, a savepoint, a reader's lease, the last clean or a compaction
    still needs. Other writers of the table need a lock, whose options --option passes.
    """
    own = KEEP_MIN.name, KEEP_MAX.name
    parsed = writer_options(options, apply=apply, own=own, flags="--keep-min and --keep-max")
    checked_columns(columns or (), _SCHEMA.names)  # before anything is moved
    show = partial(_print, output=output, columns=columns, limit=limit)
    if not apply:
        show(source.open().archivable(keep_min, keep_max), "would be archived")
        return
    numbers = {KEEP_MIN.name: keep_min, KEEP_MAX.name: keep_max}
    given = {name: str(value) for name, value in numbers.items() if value is not None}
    with source.writer({**given, **parsed}) as client:
        done = client.archive()
    show(() if done is None else done.instants, "were archived")


def _print(
    instants: Iterable[Instant],
    what: str,
    *,
    output: str,
    columns: Sequence[str] | None,
    limit: int | None,
) -> None:
    rows = [
        {"instant": i.requested_time, "action": i.action, "completed": i.completion_time}
        for i in instants
    ]
    found = pa.Table.from_pylist(rows, _SCHEMA)
    print_rows(found, output, name="instants", columns=columns, limit=limit)
    click.echo(f"{counted(len(rows), 'instant')} {what}", err=True)
