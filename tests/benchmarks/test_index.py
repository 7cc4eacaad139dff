"""The benchmark of indexes: its arguments."""

from __future__ import annotations

import pytest

from benchmarks.index import main


@pytest.mark.parametrize("flag", ["--files", "--rows", "--rounds"])
@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_numbers_are_one_or_more(flag: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([f"{flag}={value}"])
    assert ended.value.code == 2
    assert f"{flag}: '{value}'; allowed: a whole number, 1 or more" in capsys.readouterr().err
