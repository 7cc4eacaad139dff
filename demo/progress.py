"""The job's progress, which is in the table alone: each commit's metadata names its batch and step.

A restarted job continues after the last commit; the proof names commits of different tables by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from strandline import Table
from timeline.errors import TableNotFoundError

STEPS: Final = ("upsert", "delete")
"""The steps of a batch, in order; each is a commit."""

Step = tuple[int, str]
"""A batch's number and the name of its step."""

NOTHING: Final[Step] = (0, "")
"""What precedes the first step."""
COMPACTION: Final = "compaction"
"""Stands for the step of a compaction after a batch's write."""

_BATCH: Final = "demo.batch"
_STEP: Final = "demo.step"


def note(number: int, step: str) -> dict[str, str]:
    """Return the extra metadata of a step's commit."""
    return {_BATCH: str(number), _STEP: step}


def steps_done(
    base_path: str, storage_options: Mapping[str, Any] | None = None, *, archived: bool = False
) -> dict[str, Step]:
    """Return requested time → step of each completed commit, oldest first; empty without a table.

    Args:
        base_path: The table's base path.
        storage_options: Options of fsspec.
        archived: Whether to begin with the archived commits.

    Cost: lists the timeline and reads each commit.
    """
    try:
        table = Table(base_path, storage_options)
    except TableNotFoundError:
        return {}
    found: dict[str, Step] = {}
    step = NOTHING
    for commit in table.commits(archived=archived):
        step = step_of(commit.operation, commit.extra_metadata, step)
        found[commit.requested_time] = step
    return found


def step_of(operation: str, extra_metadata: Mapping[str, str], before: Step) -> Step:
    """Return the step of a commit.

    Args:
        operation: The commit's.
        extra_metadata: The commit's, in which ``note`` has put the step.
        before: The step of the commit before it, whose batch a compaction belongs to.
    """
    if operation == "COMPACT":
        return before[0], COMPACTION
    return int(extra_metadata[_BATCH]), extra_metadata[_STEP]


def last_step(base_path: str, storage_options: Mapping[str, Any] | None = None) -> Step:
    """Return the last step that was written; ``NOTHING`` if there is none."""
    steps = reversed(steps_done(base_path, storage_options).values())
    return next((step for step in steps if step[1] != COMPACTION), NOTHING)
