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
    commits = table.commits(archived=archived)
    return {commit.requested_time: step_of(commit.extra_metadata) for commit in commits}


def step_of(extra_metadata: Mapping[str, str]) -> Step:
    """Return the step that ``note`` has put into a commit's extra metadata."""
    return int(extra_metadata[_BATCH]), extra_metadata[_STEP]


def last_step(base_path: str, storage_options: Mapping[str, Any] | None = None) -> Step:
    """Return the step of the table's last commit; ``(0, "")`` if there is none."""
    return next(reversed(steps_done(base_path, storage_options).values()), (0, ""))
