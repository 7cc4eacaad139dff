"""What the kit promises to the tests that use it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.concurrency.interruptible import interruptible

ASK = """
import signal
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
print(signal.getsignal(signal.SIGHUP) == signal.SIG_DFL)
"""


def asked() -> list[str]:
    return subprocess.check_output([sys.executable, "-c", ASK], text=True).split()


def test_children_are_interruptible_also_where_the_tests_are_not():
    """As in ``nohup tox &``. (#12)"""
    both = (signal.SIGINT, signal.SIGHUP)
    before = [signal.signal(each, signal.SIG_IGN) for each in both]
    try:
        assert asked() == ["False", "False"]
        with interruptible():
            assert asked() == ["True", "True"]
        assert [signal.getsignal(each) for each in both] == [signal.SIG_IGN] * 2
    finally:
        for each, handler in zip(both, before, strict=True):
            signal.signal(each, handler)


@pytest.mark.property
def test_the_tests_run_in_the_zone_of_the_recorded_tables():
    """Wherever the machine is. (#12)"""
    code = "import tests.conftest, time; print(time.localtime(0).tm_hour, time.tzname[0])"
    said = subprocess.check_output(
        [sys.executable, "-c", code],
        env=os.environ | {"TZ": "Asia/Kolkata"},
        cwd=Path(__file__).parents[1],
        text=True,
    )
    assert said.split() == ["0", "UTC"]
