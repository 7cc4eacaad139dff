"""The benchmark of markers: our side of it, for a moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.command import Bench, measured
from benchmarks.markers import CONNECTIONS, PARTS
from benchmarks.servers.marker_load import MarkerLoad, Outcome, names
from benchmarks.servers.server import ServerError
from tests.kit.servers.live_service import serving

pytestmark = pytest.mark.property


def test_latencies_are_given_as_percentiles() -> None:
    outcome = Outcome(latencies_s=[n / 1000 for n in range(100, 0, -1)])
    assert outcome.percentile_ms(50) == pytest.approx(51)
    assert outcome.percentile_ms(99) == pytest.approx(100)


def test_an_answer_that_is_no_marker_is_an_error(tmp_path: Path) -> None:
    with (
        serving(str(tmp_path), token=None) as server,
        MarkerLoad(server.port, 2) as load,
        pytest.raises(ServerError, match="404 Not Found"),
    ):
        load.run(f"{tmp_path}/.hoodie/.temp/1", names("1"), 0.1)


@pytest.mark.property  # it starts a service for each number of clients
@pytest.mark.parametrize("number", CONNECTIONS)
def test_no_marker_is_lost(tmp_path: Path, number: int) -> None:
    bench = Bench(tmp_path, hudi=None, scale=0.02, rounds=1)
    found = {figure.what: figure for figure in measured(bench, PARTS, [str(number)])}
    gone = found[f"{number} at a time: markers lost or timed out"]
    assert list(gone.ours) == [0]
    assert gone.met
    assert all(figure.ours and not figure.java for figure in found.values())
