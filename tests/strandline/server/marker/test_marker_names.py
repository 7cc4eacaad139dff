"""Which directories and marker names are accepted, and when a log of another instant is."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.server.marker.file import split_directory
from strandline.server.marker.registry import MarkerService
from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.formats.marker_name import create
from tests.kit.servers.live_service import HttpClient, serving
from tests.strandline.server.marker.marker_service import INSTANT, directory, files, name
from timeline.errors import InputError, RootNotAllowedError
from timeline.instant import CLUSTERING, REPLACE_COMMIT
from timeline.meta_client import TableMetaClient
from timeline.metadata.instant_metadata import RequestedReplaceMetadata
from timeline.storage.base import Storage
from timeline.storage.local import LocalStorage
from timeline.storage.table_id import TableId
from timeline.table.config import TableConfig
from timeline.table.config_file import write_table_config

OLDER = "20261121080000000"


NO_DIRECTORIES = [
    "",
    "/",
    "/.hoodie/.temp/1",
    "/t",
    "/t/.hoodie",
    "/t/.hoodie/.temp",
    "/t/.hoodie/.temp/",
    "/t/.hoodie/.temp/..",
    "/t/.hoodie/.temp/1/..",
    "/t/.hoodie/.temp/1/2",
    "/t/.hoodie/.temp/x",
    "/t/.hoodie/timeline/1",
    "/t/.hoodie/.temp/1\n",
    "/t\0/.hoodie/.temp/1",
]


def test_only_the_directory_of_an_instant_is_taken(subtests: pytest.Subtests) -> None:
    for path in NO_DIRECTORIES:
        with (
            subtests.test(path=path),
            pytest.raises(InputError, match=r"markerdirpath is .*; allowed: <base path>/\.hoodie"),
        ):
            split_directory(path)


def test_a_directory_is_base_path_and_instant() -> None:
    assert split_directory(f"s3://b/t//.hoodie/.temp/{INSTANT}/") == ("s3://b/t", INSTANT)
    mdt = f"/t/.hoodie/metadata/.hoodie/.temp/{INSTANT}_1"
    assert split_directory(mdt) == ("/t/.hoodie/metadata", f"{INSTANT}_1")


def test_base_paths_outside_the_roots_are_refused(service: MarkerService) -> None:
    with pytest.raises(RootNotAllowedError):
        create(service, f"/elsewhere/.hoodie/.temp/{INSTANT}", name(1))
    with pytest.raises(RootNotAllowedError):
        service.delete(f"/elsewhere/.hoodie/.temp/{INSTANT}")


def test_a_refused_name_touches_no_storage() -> None:
    """It is refused before its table is looked for."""

    def table_of(base_path: str) -> tuple[TableId, Storage]:
        raise AssertionError(base_path)

    service = MarkerService(table_of)
    foreign = name(1).replace(INSTANT, OLDER)
    for refused in ("m", "p/m.marker.CREATE", foreign, foreign.replace("CREATE", "MERGE")):
        with pytest.raises(InputError, match="markername is"):
            create(service, f"/t/.hoodie/.temp/{INSTANT}", refused)
    service.close()


def test_a_marker_of_another_writes_file_is_refused_in_a_known_directory(
    base: Path, service: MarkerService
) -> None:
    assert create(service, directory(base), name(1)).result(PATIENCE_S)
    with pytest.raises(InputError, match=f"allowed under instant {INSTANT}"):
        create(service, directory(base), name(1).replace(INSTANT, OLDER))
    assert service.names(directory(base)) == (name(1),)


def log(instant: str, kind: str = "CREATE") -> str:
    return f"2024-01-01/.f0001-0_{instant}.log.1_0-1-1.marker.{kind}"


@pytest.mark.parametrize(("version", "taken"), [(9, True), (8, True), (6, False)])
def test_only_a_clustering_explains_a_new_log_of_another_instant(
    version: int, taken: bool, tmp_path: Path, service: MarkerService
) -> None:
    """While it resizes buckets, writes put rows also into logs that bear its instant."""
    base = tmp_path / "sound"
    storage = LocalStorage(str(base))
    config = TableConfig.create(name="t", record_key_fields=("id",), version=version)
    write_table_config(storage, config, create=True)
    TableMetaClient(storage, config).create_requested(
        CLUSTERING if taken else REPLACE_COMMIT,
        OLDER,
        RequestedReplaceMetadata(operation_type="CLUSTER"),
    )
    held = [create(service, directory(base), each) for each in (name(1), log(OLDER), name(2))]
    assert held[0].result(PATIENCE_S)
    assert held[2].result(PATIENCE_S)
    if taken:
        assert held[1].result(PATIENCE_S)
    else:
        with pytest.raises(InputError, match=f"allowed under instant {INSTANT}"):
            held[1].result(PATIENCE_S)
    with pytest.raises(InputError, match=f"allowed under instant {INSTANT}"):
        create(service, directory(base), log("20261121070000000")).result(PATIENCE_S)
    assert create(service, directory(base), log("20261121070000000", "APPEND")).result(PATIENCE_S)
    assert (log(OLDER) in service.names(directory(base))) is taken


@pytest.mark.parametrize(
    ("planned", "completion", "taken"),
    [
        (CLUSTERING, "20261121085959999", False),
        (CLUSTERING, "20261121090000001", True),
        (REPLACE_COMMIT, "20261121090000001", False),
    ],
    ids=["before the write", "beside the write", "no clustering"],
)
def test_a_log_of_a_clustering_that_completed_before_the_write_is_committed(
    tmp_path: Path,
    service: MarkerService,
    planned: str,
    completion: str,
    taken: bool,
) -> None:
    """Hudi leaves the plan of a clustering on the timeline, also when that is done."""
    base = tmp_path / "sound"
    storage = LocalStorage(str(base))
    config = TableConfig.create(name="t", record_key_fields=("id",), version=9)
    write_table_config(storage, config, create=True)
    timeline = TableMetaClient(storage, config).layout.folder
    for state in ("requested", "inflight"):
        storage.create(f"{timeline}/{OLDER}.{planned}.{state}")
    pending = create(service, directory(base), log(OLDER))
    assert (pending.exception(20) is None) is (planned == CLUSTERING)
    storage.create(f"{timeline}/{OLDER}_{completion}.replacecommit", b"{}")
    answer = create(service, directory(base), log(OLDER).replace("f0001", "f0002"))
    if taken:
        assert answer.result(PATIENCE_S)
    else:
        with pytest.raises(InputError, match=f"allowed under instant {INSTANT}"):
            answer.result(PATIENCE_S)


def test_the_query_of_a_creation_is_only_as_long_as_its_names(base: Path) -> None:
    with serving(str(base.parent)) as server, HttpClient(server.port) as client:
        asked = {
            "markerdirpath": directory(base),
            "markername": name(1),
            "x": "y" * 40_000,
        }
        status, body = client.ask("POST", "/v1/hoodie/marker/create", asked)
        assert status == 400
        assert body.endswith(b"bytes; allowed: up to 32768")
        assert files(base) == {}
