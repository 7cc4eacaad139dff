"""Golden tables followed with every store: answers are as recorded, with restarts or without."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fsview.local_view import LocalView
from fsview.store.stores import KINDS
from fsview.wire.json_form import PathForms, base_file_dto
from tests.conformance.view_suite import replay, servers, told
from tests.fsview.subject import LocalClient
from tests.fsview.sync.test_timeline_diff import data_folders
from tests.kit.servers.stores import ALL_KINDS, OTHER_KINDS, Restarted
from tests.kit.storage.troubled_storage import IN_FLIGHT, UNSAID_SIZES, TroubledStorage
from tests.kit.tables import golden
from tests.kit.tables.products import ALL, Product
from tests.kit.tables.rebuilt import differences_from_rebuilt
from timeline.storage.local import LocalStorage

STORES = Product(dict.fromkeys(OTHER_KINDS, ALL), least=70)


@pytest.mark.property
@pytest.mark.parametrize(("kind", "scenario"), STORES.params(*OTHER_KINDS))
def test_every_store_answers_as_recorded_with_restarts_between_any_two_steps(
    kind: str, scenario: str, tmp_path: Path
) -> None:
    """Only services whose store lasts are restarted."""
    storage = TroubledStorage(scenario)
    service = Restarted(kind, tmp_path, storage)
    (server,) = servers(scenario)
    recorded = golden.recorded_steps(scenario, server)
    LocalView.newest(service.view).load_all_partitions()
    for step in golden.steps(scenario):
        storage.step(step)
        if KINDS[kind].lasts:
            service.restart()
        LocalView.synced(service.view).load_all_partitions()
        in_flight = step in IN_FLIGHT.get(scenario, ())
        view = LocalView.newest(service.view)
        found = differences_from_rebuilt(view.snapshot, golden.GoldenStorage(scenario, step))
        assert not found, f"step {step}: {found}"
        if step in recorded and not in_flight:
            client = LocalClient(service.view)
            service.view.loaded.clear()
            recording = golden.recording(scenario, step, server, base=client.base_path)
            wrong = replay(client, recording, f"{scenario}/{step:02d}", times=False)
            assert not wrong, told(wrong)
    service.close()
    if scenario not in UNSAID_SIZES:
        assert set(data_folders(storage.listed).values()) == {1}
    assert service.metrics.get("reloads") == 0


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_modification_time_before_1970_is_kept(kind: str, tmp_path: Path) -> None:
    """Hudi's modification times are Java's ``long``, which may be negative (#12)."""
    base = golden.build("cow_basic_v9", 7, tmp_path / "t")
    partition = "2024-01-01"
    modified = -1_500
    for path in (base / partition).iterdir():
        os.utime(path, ns=(0, modified * 1_000_000))
    service = Restarted(kind, tmp_path / "store", LocalStorage(str(base)))
    for _ in range(2):
        files = LocalView.newest(service.view).latest_base_files(partition)
        assert {file.mtime_ms for file in files} == {modified}
        service.restart()
    dto = base_file_dto(files[0], PathForms.of(str(base)))
    assert dto["fileStatus"]["modificationTime"] == modified
    service.close()
