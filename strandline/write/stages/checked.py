"""``Checked``: the table and all rows of a write can be written; nothing has been."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from strandline.records.meta_fields import PARTITION_PATH
from strandline.records.schema.schema_evolution import EvolutionRules
from strandline.settings.setting import Settings
from strandline.write.context import WriteRequest
from strandline.write.engine.base import EngineContext
from strandline.write.engine.driver import DriverEngine
from strandline.write.engine.driver_limits import DriverLimits
from strandline.write.index.base import KeyedRows
from strandline.write.operation import Operation
from strandline.write.options.settings import COMBINE_INSERT, SORT_MODE, UNSORTED
from strandline.write.partition_choice import PartitionChoice
from strandline.write.target import Target, open_target
from strandline.write.tasks import key_task
from strandline.write.tasks.columns import keyed_schema
from strandline.write.tasks.key_task import KeyProfileTask, KeyTask, ProblemTask, decoded_batch
from strandline.write.tasks.write_task import refuse_nested


@dataclass(frozen=True, slots=True)
class Checked:
    """A write whose table and rows are checked.

    Attributes:
        rows: The rows with their keys, kept while the stage lasts.
        target: The table, with the columns that the rows add.
    """

    rows: KeyedRows[Any]
    target: Target


@contextmanager
def checked(request: WriteRequest, given: Any) -> Iterator[Checked]:
    """Check table and rows, and keep the keyed rows while the block runs.

    The driver holds the rows of a batch within the client's ``DriverLimits``: it fetches them if
    the engine estimates few, or gets them with their counts. Otherwise they stay in the engine,
    persisted.

    Args:
        request: The write.
        given: The caller's rows in the engine's form; ``None`` if the operation has none.

    Raises:
        InputError: A column or a row can't be written.
        UnsupportedTableError: The table can't be written.
    """
    context, operation, account = request.context, request.operation, request.account
    engine = context.engine
    if request.partitions is not None:
        yield _without_rows(request, request.partitions)
        return
    target, task = _table_and_task(request, engine.schema(given))
    keyed_form = keyed_schema(task.schema)
    limits = DriverLimits()
    if not engine.in_process:
        limits = DriverLimits.of(
            context.settings, matches=operation.needs_match, result_bytes=engine.result_bytes
        )
    if context.needs_service(operation, alone=limits.rows > 0):
        context.embedded.begin_start()
    with account.timed("tag"):
        if limits.rows and (fetched := engine.fetch(given, limits.estimated_bytes)) is not None:
            if fetched.num_rows <= limits.rows and fetched.nbytes <= limits.bytes:
                engine = DriverEngine(engine, limits, waits=context.storage.is_remote)
                limits, task = DriverLimits(), replace(task, attempt=engine.attempt)
            given = engine.adopt(fetched)
        if context.needs_service(operation, alone=isinstance(engine, DriverEngine)):
            context.embedded.begin_start()
        made = engine.transform(given, task, keyed_form)
    count = KeyProfileTask(limits, engine.attempt)
    with ExitStack() as persisted:
        with account.timed("tag"):
            by = PARTITION_PATH if may_stay(operation, engine, context.settings) else None
            counted = engine.persist_counted(made, count, key_task.PROFILE_SCHEMA, by)
            keyed, profile = persisted.enter_context(counted)
            counts, bad = key_task.rows_by_partition(profile)
            if bad:
                found = engine.transform(given, ProblemTask(task), key_task.PROBLEM_SCHEMA)
                good = sum(count.rows for count in counts.values())
                raise key_task.bad_rows(engine.collect(found), bad, good + bad)
            in_parts = key_task.rows_by_part(profile) if by else None
        key_task.refuse_long_names(counts, context.storage)
        if not operation.hard_delete:
            refuse_nested(counts)
        if target.exists:
            target.check_forms_of_dates(counts)
        batch = decoded_batch(profile, counts, keyed_form, limits)
        if batch is not None:
            persisted.close()
            engine = DriverEngine(engine, limits, waits=context.storage.is_remote)
            keyed, in_parts = engine.adopt(batch), None
        row_bytes = key_task.row_bytes(profile)
        yield Checked(KeyedRows(engine, keyed, task.schema, counts, row_bytes, in_parts), target)


def _without_rows(request: WriteRequest, partitions: PartitionChoice) -> Checked:
    """Return the checked state of an operation on partitions."""
    context, operation = request.context, request.operation
    target = _opened(request, create=False)
    storage = context.storage.for_cause("table")
    schema = None if target.avro_schema is None else target.schema
    partitions.check(storage, target.config, schema)
    if context.needs_service(operation, alone=True):
        context.embedded.begin_start()
    engine = DriverEngine(context.engine, DriverLimits(), waits=context.storage.is_remote)
    nothing = engine.adopt(pa.table({}))
    return Checked(KeyedRows(engine, nothing, pa.schema([]), {}, 0), target)


def may_stay(operation: Operation, engine: EngineContext[Any], settings: Settings) -> bool:
    """Whether rows may be written in the parts where they lie.

    They may if nothing sorts, matches or combines them, or sends them to stored files. If the
    driver holds them, they always move, which costs little in memory.
    """
    settled = operation.sorts and settings.get(SORT_MODE) != UNSORTED
    moves = operation.needs_match or operation.fills_small_files or settings.get(COMBINE_INSERT)
    return not (engine.in_process or settled or moves)


def _table_and_task(request: WriteRequest, incoming: pa.Schema) -> tuple[Target, KeyTask]:
    """Check the table and the schema of the rows; return the table and the task that keys rows."""
    context, operation = request.context, request.operation
    create = not operation.hard_delete
    target = _opened(request, create=create)
    ordering = ordering_fields(target, operation)
    key_task.check_columns(incoming, target.generator, ordering)
    columns = key_columns = pa.schema([])
    if create:
        rules = context.settings.read(EvolutionRules)
        target, columns = target.columns_of(incoming, context.history, rules)
        # Raises an error for a column type that can't mark deletes.
        target.merge_properties.deletes(columns.empty_table())
    else:
        key_columns = target.key_columns_of(incoming)
    task = KeyTask(
        columns,
        target.generator,
        context.engine.attempt,
        ordering,
        key_columns,
        target.merge_properties,
    )
    return target, task


def _opened(request: WriteRequest, *, create: bool) -> Target:
    """Open the table, or describe the one to be created; check its index and its archive."""
    context = request.context
    target = open_target(
        context.storage,
        context.settings,
        context.history,
        create=create,
        last=context.last_timeline,
    )
    target.check_index(context.history)
    target.check_archived(request.operation)
    request.check_batch(target)
    return target


def ordering_fields(target: Target, operation: Operation) -> tuple[str, ...]:
    """Return the columns that rows are ordered by; empty by commit time and for deletes."""
    by_time = target.event_time and not operation.hard_delete
    return target.config.ordering_fields if by_time else ()
