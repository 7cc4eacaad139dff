"""Every file of every timeline that real Hudi wrote, against what the Java client read of it."""

import json
from functools import cache

import pytest

from tests.kit.formats.avro_container import container_by_fastavro
from tests.kit.tables import golden
from timeline.clock import parse_instant_time
from timeline.encoding import avro
from timeline.instant import SAVEPOINT, Instant, State
from timeline.meta_client import TableMetaClient
from timeline.metadata import codec
from timeline.metadata.codec import decode
from timeline.metadata.instant_metadata import CommitMetadata, RequestedReplaceMetadata
from timeline.storage.base import FileInfo
from timeline.storage.local import LocalStorage
from timeline.timeline import Timeline

NO_INSTANTS = (".crc", ".properties", ".aux", ".schema", ".temp")
FOLDERS = ("archived", "history", "metadata")


def client_of(scenario: str, step: int) -> TableMetaClient:
    return TableMetaClient.open(golden.GoldenStorage(scenario, step))


def every_instant(client: TableMetaClient) -> list[Instant]:
    """Return the instant of each file of the active timeline; every other file must be known."""
    found = []
    for entry in client.storage.list(client.layout.folder):
        instant = client.layout.parse(entry.name, entry.mtime_ms)
        if instant is not None:
            assert client.layout.file_name(instant) == entry.name
            found.append(instant)
        else:
            assert entry.name.endswith(NO_INSTANTS) or entry.name in FOLDERS
    return found


@pytest.mark.parametrize("scenario", golden.scenarios())
def test_every_file_of_every_active_timeline_is_read(scenario: str) -> None:
    known: dict[tuple[str, bytes], object] = {}
    for step in golden.steps(scenario):
        client = client_of(scenario, step)
        for instant in every_instant(client):
            data = client.read_bytes(instant)
            path = client.path_of(instant)
            if (path, data) in known:
                continue
            value = known[path, data] = client.read(instant)
            assert isinstance(value, codec.metadata_type(instant.action, instant.state))
            assert (value == type(value)()) == (not data) or is_empty_record(value, data)


def is_empty_record(value: object, data: bytes) -> bool:
    """An insert overwrite's requested file is a record of nulls."""
    return value == RequestedReplaceMetadata() and data.startswith(avro.MAGIC)


@pytest.mark.parametrize("scenario", golden.scenarios())
def test_plans_are_found_whatever_the_state(scenario: str) -> None:
    client = client_of(scenario, golden.steps(scenario)[-1])
    for instant in every_instant(client):
        if instant.state is State.REQUESTED and instant.action not in ("commit", "deltacommit"):
            plan = client.read(instant)
            done = Instant(instant.requested_time, instant.action, State.COMPLETED, "x")
            assert client.read_plan(done) == client.read_plan(instant) == plan


@pytest.mark.parametrize("scenario", golden.scenarios())
def test_timelines_are_the_java_clients(scenario: str) -> None:
    for server in ("rest", "rest_mdt_off"):
        for step in golden.recorded_steps(scenario, server):
            client = client_of(scenario, step)
            java = golden.client(scenario, step, server)
            active = client.active_timeline()
            for name, ours in {
                "active_timeline": active,
                "client_timeline": active.client_timeline(),
                "completed_or_major_minor": active.server_timeline(),
                "write_timeline": active.write_timeline(),
            }.items():
                assert described(ours) == [
                    (i["requestedTime"], i["action"], i["state"], i["completionTime"])
                    for i in java[name]["instants"]
                ], (server, step, name)
                assert ours.hash == java[name]["hash"], (server, step, name)
            assert active.client_timeline().hash == java["timelinehash"]
            last = active.client_timeline().last
            assert last is not None
            assert last.requested_time == java["lastinstantts"]
            assert client.config.version == java["table_version"]
            assert str(client.config.layout_version) == java["timeline_layout_version"]


def described(timeline: Timeline) -> list[tuple[str, str, str, str | None]]:
    return [(i.requested_time, i.action, i.state.value, i.completion_time) for i in timeline]


@pytest.mark.parametrize("scenario", golden.scenarios())
def test_every_archived_timeline_is_read(scenario: str) -> None:
    """Instants' metadata is the same in the archive as it was in the active timeline."""
    seen: dict[Instant, object] = {}
    deleted: set[Instant] = set()
    for step in golden.steps(scenario):
        client = client_of(scenario, step)
        active = client.active_timeline()
        archived = client.archived_timeline()
        times = archived.completion_times("", "~")
        for instant in archived.timeline:
            assert instant.is_completed
            if instant in seen:
                assert archived.read(instant) == seen[instant]
            assert times[instant.requested_time] == instant.completion_time
            assert parse_instant_time(instant.completion_time, "UTC") > parse_instant_time(
                instant.requested_time, "UTC"
            )
        deleted = {i for i in seen if not active.contains(i) and not archived.timeline.contains(i)}
        seen |= {i: client.read(i) for i in active.completed()}
        undone = {i.action for i in deleted} - {SAVEPOINT, "rollback"}
        assert not undone or {"rollback", "restore"} & {i.action for i in active}, (step, deleted)


@pytest.mark.parametrize("scenario", [s for s in golden.scenarios() if s.startswith("archival")])
def test_archives_have_instants_and_their_plans(scenario: str) -> None:
    archived = client_of(scenario, golden.steps(scenario)[-1]).archived_timeline()
    assert len(archived.timeline) > 10
    cleans = [i for i in archived.timeline if i.action == "clean"]
    assert cleans
    for clean in cleans:
        plan, done = archived.read_plan(clean), archived.read(clean)
        planned = {
            (partition, info.file_path.rpartition("/")[2])
            for partition, files in plan.file_paths_to_be_deleted_per_partition.items()
            for info in files
        }
        deleted = {
            (partition, name)
            for partition, found in done.partition_metadata.items()
            for name in found.success_delete_files
        }
        assert planned == deleted


@pytest.mark.parametrize("scenario", golden.scenarios())
def test_commit_metadata_names_the_files_of_the_table(scenario: str) -> None:
    """The decoded paths and sizes are those of the listing."""
    step = golden.steps(scenario)[-1]
    client = client_of(scenario, step)
    sizes = {e.path: e.size for e in golden.listing(scenario, step)}
    found = 0
    for instant in client.active_timeline().completed():
        value = client.read(instant)
        if not isinstance(value, CommitMetadata):
            continue
        for partition, stats in value.partition_to_write_stats.items():
            for stat in stats:
                assert stat.partition_path == partition
                assert stat.file_id is not None
                assert stat.path is not None
                assert stat.file_id in stat.path
                if stat.path in sizes:
                    found += 1
                    assert stat.file_size_in_bytes == sizes[stat.path]
    assert found


@cache
def unique_files() -> dict[bytes, str]:
    found: dict[bytes, str] = {}
    for scenario in golden.scenarios():
        for step in golden.steps(scenario):
            for path, data in golden.contents(scenario, step).items():
                found.setdefault(data, f"{scenario} {step} {path}")
    return found


@pytest.mark.property
def test_every_file_is_read_as_by_fastavro() -> None:
    compared = 0
    for data, source in unique_files().items():
        if data.startswith(avro.MAGIC):
            assert avro.read_container(data) == container_by_fastavro(data), source
            compared += 1
    assert compared > 700


@pytest.mark.property
def test_our_schemas_are_those_in_the_files_of_1_2_0() -> None:
    compared = set()
    for data in unique_files():
        if not data.startswith(avro.MAGIC):
            continue
        header = json.loads(avro._only_block(data)[0])
        name = header["name"]
        if name in compared:
            continue
        ours = plain(json.loads(avro.schema_text(name)), {})
        if len(str(plain(header, {}))) == len(str(ours)):  # 0.15's lack fields
            assert plain(header, {}) == ours
            compared.add(name)
    assert compared == {
        "HoodieCleanMetadata",
        "HoodieCleanerPlan",
        "HoodieCommitMetadata",
        "HoodieCompactionPlan",
        "HoodieReplaceCommitMetadata",
        "HoodieRequestedReplaceMetadata",
        "HoodieRestoreMetadata",
        "HoodieRestorePlan",
        "HoodieRollbackMetadata",
        "HoodieRollbackPlan",
        "HoodieSavepointMetadata",
    }


def plain(schema: object, named: dict[str, object]) -> object:
    """Return a schema without documentation, Java's hints and the like."""
    if isinstance(schema, list):
        return [plain(branch, named) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    kind = schema["type"]
    if kind == "record":
        fields = [
            (f["name"], plain(f["type"], named), str(f.get("default", "none")))
            for f in schema["fields"]
        ]
        return (schema["name"], fields)
    if kind == "map":
        return ("map", plain(schema["values"], named))
    if kind == "array":
        return ("array", plain(schema["items"], named))
    return plain(kind, named)


def java_stats(scenario: str, suffix: str) -> list[tuple[bytes, CommitMetadata]]:
    found = []
    for path, data in golden.contents(scenario, golden.steps(scenario)[-1]).items():
        if path.startswith(".hoodie/2") and path.endswith(suffix):
            found.append((data, decode(CommitMetadata, data)))
    assert found
    return found


@pytest.mark.parametrize(
    ("scenario", "suffix"),
    [
        ("cow_basic_v6_h0150", ".commit"),
        ("mor_basic_v6_h0150", ".deltacommit"),
        ("rollback_mor_v6_h0150", ".deltacommit"),
    ],
)
def test_json_of_0_15_is_written_again_field_by_field(scenario: str, suffix: str) -> None:
    """Except the order of keys and the sizes of compacted logs, which no reader uses."""
    for data, value in java_stats(scenario, suffix):
        java, ours = json.loads(data), json.loads(codec.encode(value, 6))
        assert list(ours) == list(java)
        for partition, stats in java["partitionToWriteStats"].items():
            for theirs, mine in zip(stats, ours["partitionToWriteStats"][partition], strict=True):
                mine.pop("prevBaseFile", None)
                theirs = {k: v for k, v in theirs.items() if k != "totalLogSizeCompacted"}
                theirs["recordsStats"] = {"val": None} if "recordsStats" in theirs else None
                mine.setdefault("recordsStats", None)
                assert mine.pop("totalLogSizeCompacted") == 0
                assert mine == theirs


def test_a_sparse_listing_keeps_sizes(tmp_path) -> None:
    base = golden.build("cow_basic_v6", 3, tmp_path / "t")
    for entry in golden.listing("cow_basic_v6", 3):
        found = (base / entry.path).stat()
        assert found.st_mtime_ns == entry.mtime_ms * 1_000_000
        assert entry.is_dir or found.st_size == entry.size


def test_golden_storage_lists_as_local_files_do(tmp_path) -> None:
    local = LocalStorage(str(golden.build("mdt_mor_v9", 2, tmp_path / "t")))
    memory = golden.GoldenStorage("mdt_mor_v9", 2)

    def walk(storage, path: str) -> list[tuple[str, FileInfo]]:
        found = []
        for info in storage.list(path):
            child = f"{path}/{info.name}".lstrip("/")
            if info.is_dir:
                found += walk(storage, child)
            else:
                found.append((child, info))
        return found

    assert walk(local, "") == walk(memory, "")
