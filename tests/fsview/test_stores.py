"""Golden tables followed on every store: as recorded, nothing listed twice, restarts or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsview.rebuilt import differences_from_rebuilt
from tests.conformance.view_suite import replay, servers, told
from tests.fsview.subject import LocalClient
from tests.fsview.test_follow import IN_FLIGHT, UNSAID_SIZES, data_folders
from tests.kit import golden
from tests.kit.stepping import SteppingStorage
from tests.kit.stores import OTHER_KINDS, Restarted

SCENARIOS = [
    pytest.param(name, marks=() if name == "rollback_mor_v9" else pytest.mark.property)
    for name in golden.scenarios()
]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_every_store_answers_as_recorded_with_restarts_between_any_two_steps(
    kind: str, scenario: str, tmp_path: Path
) -> None:
    """What doesn't last is loaded anew by each service; what lasts is never listed again."""
    storage = SteppingStorage(scenario)
    service = Restarted(kind, tmp_path, storage)
    (server,) = servers(scenario)
    recorded = golden.recorded_steps(scenario, server)
    service.view.newest().load_all_partitions()
    for step in golden.steps(scenario):
        storage.step(step)
        if kind == "rocksdb":
            service.restart()
        service.view.sync().load_all_partitions()
        in_flight = step in IN_FLIGHT.get(scenario, ())
        view = service.view.newest()
        found = differences_from_rebuilt(view.snapshot, golden.GoldenStorage(scenario, step))
        assert not found, f"step {step}: {found}"
        if step in recorded and not in_flight:
            client = LocalClient(service.view)
            service.view.clear_loaded()
            recording = golden.recording(scenario, step, server, base=client.base_path)
            wrong = replay(client, recording, f"{scenario}/{step:02d}", times=False)
            assert not wrong, told(wrong)
    service.close()
    if scenario not in UNSAID_SIZES:
        assert set(data_folders(storage.listed).values()) == {1}
    assert service.metrics.get("reloads") == 0
