"""A bar of steps with an estimate of what is left; lines where the output is no terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

_BESIDE: Final = 54
"""Columns of the terminal that the bar, the estimate and the elapsed time take."""


@dataclass(slots=True)
class StepBar:
    """Steps of which it is known how long they take on two idle cores; used by one thread.

    Attributes:
        progress: Shows the bar.
        task: The bar.
        total_s: Seconds of all steps.
        clock: Monotonic seconds.
    """

    progress: Progress
    task: TaskID
    total_s: float
    clock: Callable[[], float]
    began_s: float
    done_s: float = 0.0
    _step_s: float = 0.0
    _text: str = ""

    @classmethod
    @contextmanager
    def running(
        cls, console: Console, total_s: float, clock: Callable[[], float] = time.monotonic
    ) -> Iterator[StepBar]:
        """Show the bar until the block ends."""
        progress = Progress(
            BarColumn(bar_width=16),
            TextColumn("{task.percentage:>3.0f} %, {task.fields[left]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[text]}"),
            console=console,
            transient=True,
        )
        with progress:
            task = progress.add_task("", total=total_s, text="", left="")
            yield cls(progress, task, total_s, clock, clock())

    def begin(self, text: str, step_s: float) -> None:
        """End the step before and begin one that takes so many seconds on two idle cores."""
        self.done_s += self._step_s
        self._step_s, self._text = step_s, text
        self._show(text)
        console = self.progress.console
        if not console.is_terminal:
            share = min(1.0, self.done_s / self.total_s)
            console.print(f"{share:4.0%}  {text}; {self.left()}", highlight=False, markup=False)

    def part(self, text: str, part_s: float) -> None:
        """End a part of the current step, which took so many of its seconds."""
        part_s = min(part_s, self._step_s)
        self.done_s += part_s
        self._step_s -= part_s
        self._show(f"{self._text}: {text}")

    def left(self) -> str:
        """Return about how much time is left, by the pace up to now."""
        pace = (self.clock() - self.began_s) / self.done_s if self.done_s else 1.0
        seconds = max(0.0, self.total_s - self.done_s) * pace
        return (
            f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"
        )

    def _show(self, text: str) -> None:
        # Cut here: where the line is too long, rich would shorten the bar and the estimate, too.
        short = text[: max(8, self.progress.console.width - _BESIDE)]
        self.progress.update(self.task, completed=self.done_s, text=short, left=self.left())
