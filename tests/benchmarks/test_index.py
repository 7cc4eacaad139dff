"""The benchmark of indexes: its arguments."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("flag", ["--files", "--rows", "--rounds"])
@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_numbers_are_one_or_more(flag: str, value: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.index", f"{flag}={value}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert f"{flag}: '{value}'; allowed: a whole number, 1 or more" in ran.stderr
