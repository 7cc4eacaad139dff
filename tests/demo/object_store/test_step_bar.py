"""What is said of the time that is left."""

import io
import re

import pytest
from rich.console import Console

from demo.object_store.step_bar import StepBar


class Clock:
    """A clock that is set by hand."""

    now_s = 0.0

    def __call__(self):
        return self.now_s


@pytest.mark.parametrize(("pace", "left"), [(1, "about 60 s left"), (3, "about 3 min left")])
def test_what_is_left_follows_the_pace_up_to_now(pace, left):
    clock, console = Clock(), Console(file=io.StringIO(), width=80)
    with StepBar.running(console, 80.0, clock) as bar:
        bar.begin("one", 20.0)
        assert bar.left() == "about 80 s left"
        clock.now_s = 10.0 * pace
        bar.part("half of it", 10.0)
        clock.now_s = 20.0 * pace
        bar.begin("two", 60.0)
        assert bar.left() == left
    assert console.file.getvalue().splitlines()[:2] == [
        "  0%  one; about 80 s left",
        f" 25%  two; {left}",
    ]


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_has_a_bar_and_no_lines(width):
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    with StepBar.running(console, 10.0, Clock()) as bar:
        bar.begin("one", 5.0)
        bar.begin(f"two {'and more ' * 20}", 5.0)
    told = console.file.getvalue()
    assert re.search(r"━+ *50 %, about \d s left 0:00:0\d two an", told)
    assert " 50%  two" not in told
    assert max(map(len, re.split(r"[\r\n]", told))) < 2 * width
