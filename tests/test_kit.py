"""What the kit promises to the tests that use it."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.kit.interruptible import interruptible

ASK = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"


def asked() -> str:
    return subprocess.check_output([sys.executable, "-c", ASK], text=True).strip()


def test_children_are_interruptible_also_where_the_tests_are_not():
    """As in ``nohup tox &``. (#12)"""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert asked() == "False"
        with interruptible():
            assert asked() == "True"
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
