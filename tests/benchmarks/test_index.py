"""The benchmark of indexes: its arguments."""

from __future__ import annotations

from itertools import product

import pytest

from benchmarks.index import main


def test_numbers_are_one_or_more(
    subtests: pytest.Subtests, capsys: pytest.CaptureFixture[str]
) -> None:
    for flag, value in product(["--files", "--rows", "--rounds"], ["0", "-1", "many"]):
        with subtests.test(flag=flag, value=value):
            with pytest.raises(SystemExit) as ended:
                main([f"{flag}={value}"])
            assert ended.value.code == 2
            assert (
                f"{flag}: '{value}'; allowed: a whole number, 1 or more" in capsys.readouterr().err
            )
