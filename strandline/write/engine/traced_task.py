"""``TracedTask``: a task that continues the trace of its stage, in whichever process it runs.

The trace's headers travel with the task. An executor that records no spans passes them on in its
requests to the service, whose spans then belong to the stage.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import dataclass

import pyarrow as pa

from strandline.write.engine.base import Task, TaskAttempt
from timeline import tracing


@dataclass(frozen=True, slots=True)
class TracedTask:
    """A task with the trace that it continues.

    Attributes:
        task: The task.
        carrier: The headers of the trace.
        attempt: Returns the running attempt, inside the task.
    """

    task: Task
    carrier: tracing.Carrier
    attempt: Callable[[], TaskAttempt]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the task; its span ends with the iterator."""
        # Entered for each step only: whoever takes the batches works in another context, and so
        # does a task that makes them.
        context = copy_context()
        name = f"task {type(self.task).__name__}"
        attributes = {"strandline.task.attempt": self.attempt().write_token}
        span = ExitStack()
        context.run(span.enter_context, tracing.continued(self.carrier, name, attributes))
        try:
            made = context.run(self.task, batches)
            if isinstance(made, Generator):
                # In its own context, and not wherever it is collected, if nobody takes the rest.
                span.callback(made.close)
            while (batch := context.run(next, made, None)) is not None:
                yield batch
        except BaseException as error:
            context.run(span.__exit__, type(error), error, error.__traceback__)
            raise
        context.run(span.close)


def traced(task: Task, attempt: Callable[[], TaskAttempt]) -> Task:
    """Return a task that continues the current trace; without one, the task itself."""
    carrier = tracing.headers()
    return TracedTask(task, carrier, attempt) if carrier else task
