"""``write``: the order of a write's stages, from the caller's rows to the result.

::

    check table and rows → create the table if new, drop its metadata table, roll back failed writes
    → request the instant, read the timeline → tag → assign buckets → inflight → write files
    → complete → delete markers, sync → clean

A failure before the instant completes leaves it pending, and the next write rolls it back. A commit
that conflicts with another writer's is rolled back at once.

Source: Hudi 1.2.0 ``SparkRDDWriteClient``, ``BaseCommitActionExecutor``.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from strandline.commit.own_heartbeat import Heartbeat
from strandline.write.context import WriteRequest
from strandline.write.last_timeline import TimelineOutdatedError
from strandline.write.result import WriteResult
from strandline.write.stages.begun import Begun, Ready, begun, ready, until_committed
from strandline.write.stages.checked import checked
from strandline.write.stages.committed import Committed, committed, tidied, told
from strandline.write.stages.placed import placed
from strandline.write.stages.tagged import tagged
from strandline.write.stages.written import written
from strandline.write.tasks.write_task import BegunFiles
from timeline.tracing import INSTANT, TABLE, span

logger = logging.getLogger(__name__)


def write(request: WriteRequest, data: object) -> WriteResult:
    """Write rows; the errors are those of the stages, and of ``WriteClient.upsert``.

    Args:
        request: The write.
        data: The caller's rows; ``None`` if the operation has none.
    """
    context, name = request.context, request.operation.name.lower()
    with span(f"write {name}", {TABLE: context.storage.base_path}) as recorded:
        given = None if request.partitions is not None else context.engine.adopt(data)
        # Only between writes, because tasks know only their service address.
        context.embedded.replace_ended()
        try:
            result = _written_once(request, given)
        except TimelineOutdatedError as outdated:
            # Nothing was written, and the last timeline is forgotten: the next call lists it.
            logger.info("write begins again, as the timeline has changed: %s", outdated.__cause__)
            result = _written_once(request, given)
        recorded.set(INSTANT, result.instant)
    return result


def _written_once(request: WriteRequest, given: Any) -> WriteResult:
    context, files = request.context, BegunFiles()
    with ExitStack() as held:
        prepared = _ready(request, given, held)
        heartbeat = Heartbeat(context.storage, context.heartbeats, context.clock)
        try:
            done = _committed(request, begun(request, prepared, heartbeat, files))
            view = told(request, done)
        finally:
            # An interrupt may have come between the steps that would set it.
            files.is_left = True
            heartbeat.give_up()
    return tidied(request, done, view)


def _ready(request: WriteRequest, given: Any, held: ExitStack) -> Ready:
    """Check the table and the rows, which ``held`` keeps, and prepare the table.

    Raises:
        TimelineOutdatedError: The check failed, and its timeline has changed since.
    """
    storage, last = request.context.storage, replace(request.context.last_timeline)
    try:
        # Check all rows before writing anything.
        return ready(request, held.enter_context(checked(request, given)))
    except Exception as error:
        # Another writer may have deleted files of the last timeline, or undone its schema.
        if last.is_outdated(storage):
            raise TimelineOutdatedError from error
        raise


def _committed(request: WriteRequest, begun: Begun) -> Committed:
    """Run a write from its begun state to its commit, which makes it visible to readers."""
    with until_committed(request, begun):
        with tagged(request, begun) as rows:
            files = written(request, placed(request, rows))
        return committed(request, files)
