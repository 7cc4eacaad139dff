"""``strandline compact``: which file groups of a merge-on-read table a compaction takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.common_options import TableSource, columns_option, limit_option, table_command
from strandline.cli.late_module import LateModule
from strandline.cli.output import counted
from strandline.cli.writer_options import apply_options, refuse_with_apply, writer_options
from strandline.table_services.compact.policy import STRATEGY
from timeline.errors import ConfigError

if TYPE_CHECKING:
    from strandline.cli import rows_output
    from strandline.table_services.compact import planner
else:
    planner = LateModule("strandline.table_services.compact.planner")
    rows_output = LateModule("strandline.cli.rows_output")


@click.command()
@table_command
@click.option(
    "--strategy",
    metavar="NAMES",
    help="Which file groups are taken: Hudi's class names, separated by commas, as of"
    " hoodie.compaction.strategy (those with the largest logs first if not given).",
)
@click.option(
    "--plan", is_flag=True, help="With --apply: only plan a compaction, for a later call or Hudi."
)
@apply_options("Compact them. Else only what would be taken is shown.", "its lock. Repeatable.")
@limit_option
@columns_option
def compact(
    source: TableSource,
    output: str,
    strategy: str | None,
    plan: bool,
    apply: bool,
    options: tuple[str, ...],
    limit: int | None,
    columns: Sequence[str] | None,
) -> None:
    """Show which file groups of a table a compaction would take, or compact them.

    TABLE is a path, a URL, or a name of ~/.config/strandline/tables.toml. Nothing is changed
    without --apply. With it, planned compactions are executed first, Hudi's, too; those that died
    are undone and executed again. Other writers of the table need a lock, whose options --option
    passes.
    """
    parsed = writer_options(options, apply=apply, own=[STRATEGY.name], flags="--strategy")
    refuse_with_apply(columns, limit, apply=apply)
    if plan and not apply:
        raise ConfigError(
            "--plan is given without --apply; allowed: --plan --apply, which plans a compaction, or"
            " neither, which shows what it would take"
        )
    if not apply:
        found = source.open().compactable(strategy)
        rows_output.print_rows(found, output, name="file_groups", columns=columns, limit=limit)
        size = sum(found.column("bytes").to_pylist())
        groups = counted(found.num_rows, "file group")
        click.echo(f"{groups} with {size} bytes of logs would be compacted", err=True)
        return
    given = {} if strategy is None else {STRATEGY.name: strategy}
    with source.writer({**given, **parsed}) as client:
        if plan:
            _planned(client.schedule_compaction(), output)
        else:
            _done(client.compact(), output)


def _planned(instant: str | None, output: str) -> None:
    if output == "table":
        click.echo("nothing was planned" if instant is None else f"planned {instant}")
    else:
        rows_output.print_row({"instant": instant}, output)


def _done(done: planner.CompactionResult | None, output: str) -> None:
    row: dict[str, Any] = asdict(done or planner.CompactionResult("", 0, 0, 0, 0, 0.0))
    del row["storage_calls"]
    row["instant"] = row["instant"] or None
    if output != "table":
        rows_output.print_row(row, output)
    elif done is None:
        click.echo("nothing was compacted")
    else:
        groups, logs = counted(done.file_groups, "file group"), counted(done.logs, "log")
        before = f"; finished {', '.join(done.finished)} before" if done.finished else ""
        click.echo(f"compaction {done.instant} merged {logs} into {groups}{before}")
