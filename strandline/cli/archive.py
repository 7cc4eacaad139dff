"""``strandline archive``: which instants of a table an archival moves out of the timeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from strandline.cli.common_options import TableSource, columns_option, limit_option, table_command
from strandline.cli.late_module import LateModule
from strandline.cli.output import counted
from strandline.cli.writer_options import apply_options, writer_options
from strandline.table_services.archive.policy import KEEP_MAX, KEEP_MIN

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.cli import rows_output
    from timeline.instant import Instant
else:
    pa = LateModule("pyarrow")
    rows_output = LateModule("strandline.cli.rows_output")

_COLUMNS: Final = ("instant", "action", "completed")


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

    TABLE is a path, a URL, or a name of ~/.config/strandline/tables.toml. Nothing is changed
    without --apply. Instants stay that a pending instant, a savepoint, a reader's lease, the last
    clean or a compaction still needs. Other writers of the table need a lock, whose options
    --option passes.
    """
    own = KEEP_MIN.name, KEEP_MAX.name
    parsed = writer_options(options, apply=apply, own=own, flags="--keep-min and --keep-max")
    rows_output.checked_columns(columns or (), _COLUMNS)  # before anything is moved
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
    rows = [(i.requested_time, i.action, i.completion_time) for i in instants]
    text = pa.schema([(name, pa.string()) for name in _COLUMNS])
    found = pa.Table.from_pylist([dict(zip(_COLUMNS, row, strict=True)) for row in rows], text)
    rows_output.print_rows(found, output, name="instants", columns=columns, limit=limit)
    click.echo(f"{counted(len(rows), 'instant')} {what}", err=True)
