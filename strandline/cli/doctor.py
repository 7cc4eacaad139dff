"""``strandline doctor``: what is wrong with a table, and putting right what can be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import click

from strandline.cli.common_options import TableSource, columns_option, limit_option, table_command
from strandline.cli.late_module import LateModule
from strandline.cli.output import counted
from strandline.cli.writer_options import apply_options, writer_options
from strandline.table_services.doctor.severity import Severity
from timeline.errors import ConfigError, TableNotFoundError

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.cli import rows_output
    from strandline.table_services.doctor import examination, repair
    from strandline.table_services.doctor import finding as findings
    from timeline import clock
    from timeline.storage import open as opening
else:
    clock = LateModule("timeline.clock")
    examination = LateModule("strandline.table_services.doctor.examination")
    findings = LateModule("strandline.table_services.doctor.finding")
    opening = LateModule("timeline.storage.open")
    repair = LateModule("strandline.table_services.doctor.repair")
    rows_output = LateModule("strandline.cli.rows_output")

FAILED: Final = 3
"""Exit code if something is as bad as ``--fail-on`` says."""
_PEOPLE: Final = ("severity", "code", "what", "names", "bytes", "remedy")
_TO_FIX: Final = ("code", "names", "bytes", "remedy")
_LEVELS: Final = tuple(severity.value for severity in Severity)


@click.command()
@table_command
@click.option("--deep", is_flag=True, help="Open the newest base files, too, and the archive.")
@click.option("--fix", is_flag=True, help="Show what a repair would change.")
@apply_options("With --fix: repair it, under the table's lock.", "its lock. Repeatable.")
@click.option(
    "--fail-on",
    type=click.Choice(_LEVELS),
    help="Exit with code 3 if there is a finding of this severity or a worse one; with --fix"
    " --apply, if one is left.",
)
@limit_option
@columns_option
def doctor(
    source: TableSource,
    output: str,
    deep: bool,
    fix: bool,
    apply: bool,
    options: tuple[str, ...],
    fail_on: str | None,
    limit: int | None,
    columns: Sequence[str] | None,
) -> None:
    """Show what is wrong with a table, and what to do about it.

    TABLE is a path, a URL, or a name of ~/.config/strandline/tables.toml. Nothing is changed
    without --fix --apply, which deletes files of writes that a rollback has undone, extra files of
    repeated tasks and forgotten markers, heartbeats and temporary files, and writes missing
    checksums and partition metadata: nothing of a pending instant, and nothing younger than a day.
    Other writers of the table need a lock, whose options --option passes.
    """
    if apply and not fix:
        raise ConfigError("--apply is given without --fix; allowed: --fix --apply")
    if apply:  # before anything is repaired
        rows_output.checked_columns(columns or (), repair.REPAIRS_SCHEMA.names)
    parsed = writer_options(options, apply=apply, own=(), flags="")
    found = () if apply else _examined(source, deep=deep)
    if not fix:
        shown = _for_people(findings.findings_table(found), output, columns, _PEOPLE)
        rows_output.print_rows(shown, output, name="findings", columns=columns, limit=limit)
        _tell(found)
    elif not apply:
        fixable = [each for each in found if each.fixable]
        shown = _for_people(findings.findings_table(fixable), output, columns, _TO_FIX)
        rows_output.print_rows(shown, output, name="fixable", columns=columns, limit=limit)
        left = Counter(each.code for each in found if not each.fixable)
        more = "".join(f"; left: {code} ({count})" for code, count in sorted(left.items()))
        would = f"{counted(len(fixable), 'finding')} of {len(found)} would be repaired"
        click.echo(f"{would}{more}", err=True)
    else:
        with source.writer(parsed) as client:
            done = client.repair()
        rows_output.print_rows(
            repair.repairs_table(done), output, name="repairs", columns=columns, limit=limit
        )
        repaired = sum(each.done for each in done)
        click.echo(f"{repaired} of {counted(len(done), 'file')} repaired", err=True)
        found = _examined(source, deep=deep) if fail_on else ()
        if any(each.failed for each in done):
            click.get_current_context().exit(1)
    if fail_on and any(each.severity.rank >= Severity(fail_on).rank for each in found):
        click.get_current_context().exit(FAILED)


def _examined(source: TableSource, *, deep: bool) -> tuple[findings.Finding, ...]:
    """Examine the table by its storage: one whose properties are broken can't be opened."""
    storage = opening.open_storage(source.path, source.storage_options)
    try:
        return examination.examine(storage, clock.SystemClock(), deep=deep)
    except TableNotFoundError:
        source.open()  # raises it again, with what is near
        raise


def _for_people(
    rows: pa.Table, output: str, columns: Sequence[str] | None, people: Sequence[str]
) -> pa.Table:
    """Return the rows with the columns for people, unless others are asked for."""
    return rows.select(people) if output == "table" and columns is None else rows


def _tell(found: Iterable[findings.Finding]) -> None:
    counts = Counter(each.severity for each in found)
    told = [
        counted(counts[severity], severity.value) if severity is not Severity.INFO
        else f"{counts[severity]} info"
        for severity in reversed(Severity)
        if counts[severity]
    ]  # fmt: skip
    fixable = sum(each.fixable for each in found)
    more = f"; --fix shows the {fixable} that can be repaired" if fixable else ""
    click.echo(f"{', '.join(told) or 'nothing is wrong'}{more}", err=True)
