"""The job's progress, which is in the table alone: each commit's metadata names its batch and step.

A restarted job continues after the last commit; the proof names commits of different tables by it.
"""

from __future__ import annotations

from typing import Final

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


def steps_done(base_path: str) -> dict[str, Step]:
    """Return requested time → step of each completed commit, oldest first; empty without a table.

    Cost: lists the timeline and reads each commit.
    """
    try:
        table = Table(base_path)
    except TableNotFoundError:
        return {}
    return {
        commit.requested_time: (int(commit.extra_metadata[_BATCH]), commit.extra_metadata[_STEP])
        for commit in table.commits()
    }


def last_step(base_path: str) -> Step:
    """Return the step of the table's last commit; ``(0, "")`` if there is none."""
    return next(reversed(steps_done(base_path).values()), (0, ""))
